#!/usr/bin/env bash
# On a machine with NVIDIA GPUs: build with CUDA and NCCL, test, train briefly, print figures for docs/benchmarks.md.
#   ./scripts/gpu_check.sh              uses TORCH_ROOT if set, else installs torch with CUDA
#   ./scripts/gpu_check.sh --no-tests   only the doctor and the training runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=yes
case ${1:-} in
  "") ;;
  --no-tests) tests=no ;;
  *) echo "error: unknown argument '$1'; tip: --no-tests" >&2; exit 2 ;;
esac

command -v nvidia-smi >/dev/null || { echo "error: nvidia-smi was not found: no NVIDIA driver on this machine" >&2; exit 1; }
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1 x /' | paste -sd ', ')
[ -n "$device" ] || { echo "error: the NVIDIA driver lists no GPU" >&2; exit 1; }
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)

./scripts/setup.sh "--$([ "$tests" = yes ] && echo test || echo gpu)"
start=$SECONDS
CMAKE_ARGS="-DDDP_CUDA=ON ${CMAKE_ARGS:-}" ./scripts/build.sh release
built=$((SECONDS - start))

if [ "$tests" = yes ]; then
  ctest --preset release
fi

readonly bin=build/release/bin
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$bin/ddp-run" --standalone --nproc_per_node=gpu "$bin/trainer" doctor

train() {  # NAME override...
  local name=$1
  shift
  echo
  echo "== $name"
  "$bin/ddp-run" --standalone --nproc_per_node=gpu "$bin/trainer" --config configs/quickstart.yaml \
    distributed_config.backend=nccl "hydra.run.dir=$out/$name" "trainer_config.snapshot_path=$out/$name/snapshot.pt" \
    "$@" 2>&1 | tee "$out/$name.txt"
}
train quickstart
wide=(gpt_config.n_layer=8 gpt_config.n_head=8 gpt_config.n_embd=512 data_config.block_size=128 data_config.stride=1
      trainer_config.batch_size=216 trainer_config.max_steps=200)
train gpt-25m-fp32 "${wide[@]}"
train gpt-25m-bf16 "${wide[@]}" trainer_config.use_amp=true trainer_config.amp_dtype=bfloat16
"$bin/trainer" generate --snapshot "$out/quickstart/snapshot.pt" --prompt 'In the morning' --max_new_tokens 300 --temperature 0.7

echo
echo "== figures, $(date +%F): $device, driver $driver"
echo "build: $built s"
for name in quickstart gpt-25m-fp32 gpt-25m-bf16; do
  echo "$name: $(grep -iE 'tok(ens)?(/s| per second)' "$out/$name.txt" | tail -1 | sed 's/^\(\[[^]]*\]\)* *- *//')"
done
