#!/usr/bin/env bash
# On a machine with NVIDIA GPUs, in under 8 minutes with 16 cores: builds with CUDA and NCCL, tests, trains, profiles,
# benchmarks. Prints a figure for each and ends with 1 where one is missing.
#   ./scripts/gpu_check.sh [--no-build] [--no-tests] [--no-bench]
#   ./scripts/gpu_check.sh --dry-run      the same on the CPU with a tiny model: shows that the script works, builds nothing
# Environment: PYTHON, a Python with torch 2.11 or newer (default: that of .venv, else python3), whose LibTorch is used unless
# TORCH_ROOT is set. Where there is no apt-get, CMAKE_PREFIX_PATH names the folders of yaml-cpp, fmt and the others, and nothing
# is installed. CMAKE_ARGS: for configuring. TRAINER, DDP_RUN: programs that are there already, with --no-build.
# GPU_CHECK_SECONDS: what does not begin within them (default 480) is a missing figure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

build=yes tests=yes bench=yes dry=no
for word; do
  case $word in
    --no-build) build=no ;;
    --no-tests) tests=no ;;
    --no-bench) bench=no ;;
    --dry-run) dry=yes build=no tests=no ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown argument '$word'; tip: --help" >&2; exit 2 ;;
  esac
done
readonly limit=${GPU_CHECK_SECONDS:-480}
python=${PYTHON:-.venv/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=$(command -v python3)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# --- figures -----------------------------------------------------------------------------------------------------------

missing=()
figure() {  # NAME VALUE
  printf '%-24s %s\n' "$1" "${2:-missing}" | tee -a "$out/figures"
  [ -n "${2:-}" ] || missing+=("$1")
}

in_time() { [ "$SECONDS" -lt "$limit" ]; }

last_match() { grep -oE "$2" "$1" 2>/dev/null | tail -1 || true; }

# Average speed of a training run, as its last lines have it.
speed_of() { last_match "$out/$1.txt" 'Training finished.*' | grep -oE '[0-9.]+[kMG]? (tok|images)/s' || true; }

# Largest difference of the losses that two runs have in common; "equal" where they are the same digits.
difference() {
  "$python" - "$out/$1/metrics.jsonl" "$out/$2/metrics.jsonl" 2>/dev/null <<'PYTHON' || true
import json, sys
def losses(path):
    rows = map(json.loads, open(path, encoding="utf-8"))
    return {row["step"]: row["loss"] for row in rows if row["split"] == "train"}
a, b = map(losses, sys.argv[1:])
most = max(abs(a[step] - b[step]) for step in a.keys() & b.keys())
print("equal" if most == 0 else f"{most:.2g}")
PYTHON
}

# --- what is run -------------------------------------------------------------------------------------------------------

if [ "$dry" = yes ]; then
  device=cpu backend=gloo ranks=2 steps=6 machine="dry run on the CPU"
  shape=(gpt_config.n_layer=1 gpt_config.n_head=2 gpt_config.n_embd=32 data_config.block_size=32 trainer_config.batch_size=4)
  vocabulary=301 padding=64 bench_rows=(cpu_step_1) bench_options=(--quick)
else
  command -v nvidia-smi >/dev/null || { echo "error: nvidia-smi was not found: no NVIDIA driver on this machine" >&2; exit 1; }
  gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader)
  [ -n "$gpus" ] || { echo "error: the NVIDIA driver lists no GPU" >&2; exit 1; }
  ranks=$(wc -l <<<"$gpus")
  device=cuda backend=nccl steps=100
  machine="$(sort <<<"$gpus" | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd ', '), driver $(
    nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
  shape=(gpt_config.n_layer=12 gpt_config.n_head=12 gpt_config.n_embd=768 data_config.block_size=256 trainer_config.batch_size=16)
  vocabulary=4001 padding=auto
  bench_rows=(gpu_gpt2_b16 gpu_gpt2_b32 gpu_gpt2_b64 gpu_default gpu_small) bench_options=(--pairs 1)
fi

build_all() {
  if [ -z "${CMAKE_PREFIX_PATH:-}" ]; then
    ./scripts/setup.sh "--$([ "$tests" = yes ] && echo test || echo gpu)"
  elif [ -z "${TORCH_ROOT:-}" ]; then
    TORCH_ROOT=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
    export TORCH_ROOT
  fi
  CMAKE_ARGS="-DDDP_CUDA=ON ${CMAKE_ARGS:-}" ./scripts/build.sh release
}

train_on() {  # DEVICE RANKS NAME override...
  local where=$1 count=$2 name=$3 options=()
  shift 3
  in_time || return 0
  [ "$where" = cpu ] || options=("distributed_config.backend=$backend")
  echo "== $name"
  "$ddp_run" --standalone --nproc_per_node="$count" --max-restarts="${restarts:-0}" "$trainer" --config configs/quickstart.yaml \
    trainer_config.device="$where" "${options[@]}" "hydra.run.dir=$out/$name" "trainer_config.snapshot_path=$out/$name/snapshot.pt" \
    trainer_config.log_every_steps=1 trainer_config.eval_iters=2 trainer_config.sample_every_steps=0 "$@" \
    >"$out/$name.txt" 2>&1 || { echo "$name failed:"; tail -5 "$out/$name.txt"; rm -rf "${out:?}/$name" "$out/$name.txt"; }
}
train() { train_on "$device" "$ranks" "$@"; }

# --- build and tests ---------------------------------------------------------------------------------------------------

if [ "$build" = yes ]; then
  build_all
  figure build "$SECONDS s"
fi
trainer=${TRAINER:-build/release/bin/trainer} ddp_run=${DDP_RUN:-build/release/bin/ddp-run}
for program in "$trainer" "$ddp_run"; do
  [ -x "$program" ] || { echo "error: $program is missing; tip: run without --no-build, or set TRAINER and DDP_RUN" >&2; exit 2; }
done
if [ "$tests" = yes ]; then
  ctest --preset release -L trainer -j "$(nproc)" >"$out/ctest.txt" 2>&1 || grep -A20 'The following tests FAILED' "$out/ctest.txt"
  figure tests "$(last_match "$out/ctest.txt" '100% tests passed.*')"
fi

# Copies, waits of the host, collectives and memory of a step, as counted on fake GPUs (tests/gpu/expected_counts.json).
if [ "$dry" = no ]; then
  TRAINER=$trainer DDP_RUN=$ddp_run "$python" scripts/checks/gpu_counts.py --gpus "$ranks" >"$out/counts.txt" 2>&1 && counts=equal
  cat "$out/counts.txt"
  figure counts_as_on_fake_gpus "${counts:-}"
fi

# --- the device, what is equal on it, and what is not --------------------------------------------------------------------

"$ddp_run" --standalone --nproc_per_node="$ranks" "$trainer" doctor >"$out/doctor.txt" 2>&1 || tail -5 "$out/doctor.txt"
figure doctor "$(last_match "$out/doctor.txt" 'All checks passed')"

short=("${shape[@]}" trainer_config.deterministic=true "trainer_config.max_steps=$((steps / 5 + 2))")
train first "${short[@]}"
train again "${short[@]}"
figure same_seed "$(difference first again)"
train resumed "${short[@]}" "trainer_config.max_steps=$((steps / 10 + 1))"
train resumed "${short[@]}"
figure resumed "$(difference first resumed)"

plain=("${shape[@]}" gpt_config.embd_pdrop=0 gpt_config.resid_pdrop=0 gpt_config.attn_pdrop=0 trainer_config.max_steps=4)
train_on "$device" 1 on_device "${plain[@]}"
train_on cpu 1 on_cpu "${plain[@]}"
figure device_and_cpu "$(difference on_device on_cpu)"

# --- speeds, each beside its loss ------------------------------------------------------------------------------------------

half=("${shape[@]}" trainer_config.use_amp=true trainer_config.amp_dtype=bfloat16 "trainer_config.max_steps=$steps"
      "trainer_config.log_every_steps=$((steps / 2))")
"$trainer" tokenize --tokenizer bpe --train --vocab_size "$vocabulary" --input data/sample_corpus.txt --output "$out/tokens" \
  >"$out/tokenize.txt" 2>&1 || tail -2 "$out/tokenize.txt"
odd=("${half[@]}" data_config.path="$out/tokens" data_config.tokenizer="$out/tokens")
train fp32 "${half[@]}" trainer_config.use_amp=false
figure fp32 "$(speed_of fp32)"
train tf32 "${half[@]}" trainer_config.use_amp=false trainer_config.tf32=true
figure tf32 "$(speed_of tf32)"
train bf16 "${half[@]}"
figure bf16 "$(speed_of bf16)"
TORCH_CUDNN_SDPA_DEPRIORITIZED=1 train other_attention "${half[@]}"
figure without_cudnn_attention "$(speed_of other_attention)"
train odd_vocabulary "${odd[@]}" gpt_config.pad_vocab_to_multiple_of=0
figure odd_vocabulary "$(speed_of odd_vocabulary)"
train padded_vocabulary "${odd[@]}" gpt_config.pad_vocab_to_multiple_of="$padding"
figure padded_vocabulary "$(speed_of padded_vocabulary)"
figure padding_and_loss "$(difference odd_vocabulary padded_vocabulary)"
train compressed "${half[@]}" distributed_config.gradient_compression=bf16
figure compressed "$(speed_of compressed)"
figure compression_and_loss "$(difference bf16 compressed)"
train copies "${half[@]}" trainer_config.ram_snapshots=true
figure copies_in_memory "$(speed_of copies)"
figure copies_made "$(last_match "$out/copies.txt" '[0-9]+ in memory')"

train profiled "${half[@]}" "profile.start=$((steps / 2))" profile.steps=2
figure communication "$(last_match "$out/profiled.txt" 'gradients in flight.*')"
figure operations "$("$python" scripts/bench/breakdown.py "$out/profiled/profile_rank_0.json" --steps 2 --most 5 2>/dev/null | awk 'NR > 1 && NF > 3 { print $4 " " $1 " ms" }' | paste -sd ';' | sed 's/;/; /g')"

# A rank is killed; the others leave by themselves, and the next round goes on from the copy in memory.
restarts=1 train killed "${half[@]}" trainer_config.log_every_steps=1 trainer_config.ram_snapshots=true \
  "trainer_config.fault_plan=['rank=$((ranks - 1)) step=$((steps / 2)) phase=backward kind=kill']"
figure restart "$(last_match "$out/killed.txt" 'Goodput.*')"
if [ "$ranks" -gt 1 ]; then
  figure survivors_left "$(last_match "$out/killed.txt" 'gives no sign of life|Connection (reset|closed) by peer')"
fi

# --- beside PyTorch --------------------------------------------------------------------------------------------------------

if [ "$bench" = yes ]; then
  for row in "${bench_rows[@]}"; do
    if in_time; then
      PYTHON=$python TRAINER=$trainer DDP_RUN=$ddp_run ./scripts/bench/bench.sh --only "$row" "${bench_options[@]}" --json "$out/$row.json" \
        >"$out/$row.txt" 2>"$out/$row.err" || tail -n 3 "$out/$row.txt" "$out/$row.err"
    fi
    figure "$row" "$(grep -E "^$row .*: (met|missed)" "$out/$row.txt" 2>/dev/null || true)"
  done
fi

echo
echo "== figures, $(date +%F), $machine, $SECONDS s, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
cat "$out/figures"
[ "${#missing[@]}" -eq 0 ] || { echo "error: without a figure: ${missing[*]}" >&2; exit 1; }
