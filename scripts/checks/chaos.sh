#!/usr/bin/env bash
# Kills training jobs on purpose and measures the cost: long versions of the tests in docs/fault-tolerance.md.
#   scripts/checks/chaos.sh kills [N [SEED]]     N (200) SIGKILLs of random ranks at random moments, on 1, 2 and 4 CPU ranks. Every
#                                         job must end with the same tensors as an uninterrupted run; otherwise the exit
#                                         code is 1 and the job's directory is kept
#   scripts/checks/chaos.sh recovery [N [M]]     time from SIGKILL to the end of the first new optimizer step, 2 CPU ranks,
#                                         gpt-mini: N (50) times, and M (N / 4) times under torchrun with
#                                         scripts/peers/ddp_minimal.py
#   scripts/checks/chaos.sh goodput [SECONDS [PERIOD ...]]   one kill of a random rank per PERIOD (60 15) seconds, for SECONDS
#                                         (120) each, with and without copies in memory
#   scripts/checks/chaos.sh stall                how long a save stalls training, 27 million parameters
# DDP_RUN, TRAINER, TORCHRUN and PYTHON override the programs; without torchrun only ddp-run is measured.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
ddp_run=${DDP_RUN:-$root/build/release/bin/ddp-run}
trainer=${TRAINER:-$root/build/release/bin/trainer}
torchrun=${TORCHRUN:-$root/.venv/bin/torchrun}
python=${PYTHON:-$root/.venv/bin/python}
usage() { sed -n '2,/^set/p' "$0" | sed '/^set/d; s/^# \{0,1\}//'; }
for program in "$ddp_run" "$trainer"; do
  [[ -x $program ]] || { echo "error: $program is missing; run ./scripts/build.sh, or set DDP_RUN and TRAINER" >&2; exit 2; }
done
[[ -x $python ]] || python=python3

work=$(mktemp -d)
job_pid=
clean_up() {
  [[ -z $job_pid ]] || kill "$job_pid" 2> /dev/null || true
  wait
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
export TMPDIR=$work OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=

write_text() {  # LENGTH: words in pseudo-random order, the same on every machine
  awk -v most="$1" 'BEGIN {
    count = split("the brook ran high and Anna baked bread. Karl looked below an old oak, but kept", word, " ")
    for (state = 1; length_so_far < most; length_so_far += length(word[i]) + 1) {
      state = (state * 1103515245 + 12345) % 2147483648
      i = int(state / 65536) % count + 1
      printf "%s%s", word[i], state % 11 ? " " : "\n"
    } }'
}
write_text 5000 > "$work/small.txt"
write_text 200000 > "$work/text.txt"
cat > "$work/small.yaml" <<C
data_config: {path: $work/small.txt, block_size: 32, train_split: 0.9, stride: 32}
gpt_config: {n_layer: 2, n_head: 2, n_embd: 32, embd_pdrop: 0.1, resid_pdrop: 0.1, attn_pdrop: 0.1}
trainer_config: {max_steps: 40, batch_size: 4, data_loader_workers: 1, snapshot_path: snapshot.pt, save_every_steps: 5,
  eval_every_steps: 5, snapshot_every: null, log_every_steps: 1}
optimizer_config: {learning_rate: 0.003, weight_decay: 0.1}
distributed_config: {timeout_s: 30}
hydra: {run: {dir: .}}
C
cat > "$work/mini.yaml" <<C
data_config: {path: $work/text.txt, block_size: 64, train_split: 1}
gpt_config: {model_type: gpt-mini}
trainer_config: {max_steps: 1000000, batch_size: 4, data_loader_workers: 1, snapshot_path: snapshot.pt,
  snapshot_min_interval_s: 0.5, snapshot_disk_share: 1, snapshot_gb_per_hour: 0}  # kills are more frequent than in production
distributed_config: {timeout_s: 30}
hydra: {run: {dir: .}}
C

ask() { "$python" - "$@"; }  # a few lines of Python from stdin
load() { cut -d' ' -f1-3 /proc/loadavg; }
machine() { printf 'machine: %s CPU cores, load average %s\n' "$(env -u OMP_NUM_THREADS nproc)" "$(load)"; }
join() { local IFS=,; echo "$*"; }
quoted() { printf '"%s"\n' "$@"; }
fault_plan() { echo "trainer_config.fault_plan=[$(mapfile -t all < <(quoted "$@"); join "${all[@]}")]"; }
start_job() {  # folder ranks config [overrides]: in the background
  mkdir -p "$1"
  (cd "$1" && exec "$ddp_run" --standalone --nproc_per_node="$2" --max_restarts=1000 --healthy-after=0.5 "$trainer" --config "$3" "${@:4}" \
    > out 2> err) &
  job_pid=$!
}
end_job() {  # sets code
  code=0
  wait "$job_pid" || code=$?
  job_pid=
}
workers_in() {  # folder
  local pid
  for pid in $(pgrep -x "$(basename "$trainer")"); do
    [[ ! /proc/$pid/cwd -ef $1 ]] || echo "$pid"
  done
}
kill_one() {  # folder
  local pids
  mapfile -t pids < <(workers_in "$1")
  [[ ${#pids[@]} == 0 ]] || kill -9 "${pids[RANDOM % ${#pids[@]}]}" 2> /dev/null || true
}
restarts_of() { sed -n 's/.*restart \([0-9]*\) of 1000.*/\1/p' "$1/err" | sort -n | tail -1; }  # folder

# --- kills
readonly phases=(data forward backward all_reduce optimizer evaluation staging writing rename published)
choose_faults() {  # ranks: one every five steps, each in its own attempt
  local window phase rank step
  faults=()
  for window in 0 1 2 3 4 5 6 7; do
    phase=${phases[RANDOM % ${#phases[@]}]} rank=$((RANDOM % $1)) step=$((5 * window + 1 + RANDOM % 5))
    case $phase in
      evaluation) step=$((5 * window + 5)) ;;
      staging | writing | rename | published) step=$((5 * window + 5)) rank=0 ;;
    esac
    faults+=("rank=$rank step=$step phase=$phase kind=kill attempt=$window")
  done
}
slow_steps() { local attempt; for attempt in {0..9}; do echo "rank=0 step=1 phase=forward kind=slow value=40 attempt=$attempt"; done; }
content_of() {  # folder: everything that must be identical
  "$trainer" inspect "$1/snapshot.pt" --json > "$1/content.json"
  ask "$1/content.json" <<'P'
import json, sys
found = json.load(open(sys.argv[1]))
assert found["content_sha256"] and found["tensors"] and found["step"] == 40
print(found["content_sha256"], sorted((t["name"], t["sha256"]) for t in found["tensors"]))
P
}
killed_job() {  # folder ranks kind-of-job
  local memory=false times
  ((RANDOM % 3)) || memory=true
  if [[ $3 == inside ]]; then
    choose_faults "$2"
    start_job "$1" "$2" "$work/small.yaml" "$(fault_plan "${faults[@]}")" "trainer_config.ram_snapshots=$memory"
  else
    mapfile -t faults < <(slow_steps)
    start_job "$1" "$2" "$work/small.yaml" "$(fault_plan "${faults[@]}")" "trainer_config.ram_snapshots=$memory"
    for times in 1 2 3; do
      sleep "$((times > 1 ? RANDOM % 2 : 0)).$(printf '%03d' $((200 + RANDOM % 800)))"
      kill_one "$1"
    done
  fi
  end_job
}
run_kills() {
  local wanted=${1:-200} seed=${2:-$RANDOM} ranks folder kind jobs=0 same=0 kills=0 outside=0 count
  RANDOM=$seed
  echo "seed $seed"
  declare -A unbroken
  for ranks in 1 2 4; do
    start_job "$work/unbroken.$ranks" "$ranks" "$work/small.yaml"
    end_job
    unbroken[$ranks]=$(content_of "$work/unbroken.$ranks")
  done
  while ((kills < wanted)); do
    ranks=$((1 << jobs % 3)) kind=inside folder=$work/job.$jobs
    ((jobs % 4 != 3)) || kind=outside
    killed_job "$folder" "$ranks" "$kind"
    count=$(restarts_of "$folder")
    kills=$((kills + ${count:-0})) jobs=$((jobs + 1))
    [[ $kind == inside ]] || outside=$((outside + ${count:-0}))
    if [[ $code == 0 && $(content_of "$folder") == "${unbroken[$ranks]}" ]]; then
      same=$((same + 1))
      rm -rf "$folder"
      echo "job $jobs: $ranks ranks, killed from $kind, ${count:-0} kills, identical"
    else
      keep_evidence "$folder" "$ranks"
    fi
  done
  printf '%d kills in %d jobs (%d of them from outside); %d of %d jobs ended identically\n' "$kills" "$jobs" "$outside" "$same" "$jobs"
  machine
  ((same == jobs))
}
keep_evidence() {  # folder ranks
  local kept
  kept=$(TMPDIR='' mktemp -d -t chaos.XXXXXX)
  cp -r "$1" "$work/unbroken.$2" "$work"/small.* "$kept"
  echo "DIFFERENT: $2 ranks, exit code $code; kept in $kept" >&2
}

# --- recovery
readonly kills_per_job=25  # run_summary.json holds the last 50 restarts
recover() {  # folder kills
  local attempt list=()
  for ((attempt = 0; attempt < $2; ++attempt)); do
    list+=("rank=$((RANDOM % 2)) step=$((6 * attempt + 6)) phase=${phases[RANDOM % 5]} kind=kill attempt=$attempt")
  done
  start_job "$1" 2 "$work/mini.yaml" "$(fault_plan "${list[@]}")" trainer_config.save_every_steps=5 \
    trainer_config.max_steps=$((6 * $2 + 6))
  end_job
}
percentiles() {  # name; numbers of seconds from stdin
  sort -n | awk -v name="$1" '{ v[NR] = $1; sum += $1 } END {
    if (!NR) { print name ": none"; exit }
    half = int((NR + 1) / 2); high = int(0.99 * NR); if (high < 0.99 * NR) ++high
    printf "%-44s p50 %.3f s, p99 %.3f s [%.3f - %.3f] n=%d\n", name, v[half], v[high], v[1], v[NR], NR }'
}
times_of() {  # part ("" for the sum) files
  ask "$@" <<'P'
import json, sys
parts = [sys.argv[1]] if sys.argv[1] else ["to_detect", "to_restart", "to_first_step"]
for path in sys.argv[2:]:
    for restart in json.load(open(path))["restarts"]:
        if all(restart[part] is not None for part in parts):
            print(sum(restart[part] for part in parts))
P
}
run_recovery() {
  local wanted=${1:-50} left folder part peers=0
  local peer_kills=${2:-$(((wanted + 3) / 4))}
  for ((left = wanted; left > 0; left -= kills_per_job)); do
    folder=$work/recovery.$left
    recover "$folder" $((left < kills_per_job ? left : kills_per_job))
    [[ $code == 0 ]] || { tail -5 "$folder/err" >&2; return 1; }
  done
  times_of "" "$work"/recovery.*/run_summary.json | percentiles "ddp-run and trainer: kill to first new step"
  for part in to_detect to_restart to_first_step; do
    times_of $part "$work"/recovery.*/run_summary.json | percentiles "  $part"
  done
  [[ -x $torchrun ]] || { echo "torchrun is missing ($torchrun): only ddp-run is measured" >&2; machine; return; }
  (cd "$work" && timeout $((60 + 20 * peer_kills)) "$torchrun" --standalone --nproc_per_node=2 \
    --max_restarts=$((2 * peer_kills)) "$root/scripts/peers/ddp_minimal.py" "$work/peer.pt" "$peer_kills" \
    > "$work/peer.out" 2> "$work/peer.err") || peers=$?
  [[ $peers == 0 ]] || echo "torchrun exited with code $peers" >&2
  awk '$1 == "killed" { at = $2 } $1 == "step" && at { printf "%.3f\n", $2 - at; at = 0 }' "$work/peer.out" |
    percentiles "torchrun and Python: kill to first new step"
  machine
}

# --- goodput
goodput() {  # seconds period ram_snapshots
  local folder=$work/goodput.$2.$3 begin=$SECONDS next=$(($2 / 2))
  start_job "$folder" 2 "$work/mini.yaml" "trainer_config.ram_snapshots=$3"
  while ((SECONDS - begin < $1)); do
    ((SECONDS - begin < next)) || { kill_one "$folder"; next=$((next + $2)); }
    sleep 0.2
  done
  kill -TERM "$job_pid"
  end_job
  [[ $code == 75 ]] || { tail -5 "$folder/err" >&2; return 1; }
  ask "$folder/run_summary.json" "$2" "$3" "$(load)" <<'P'
import json, sys
s = json.load(open(sys.argv[1]))
share = "unknown" if s["goodput"] is None else f"{100 * s['goodput']:.1f} %"
print(f"a kill per {sys.argv[2]} s, ram_snapshots={sys.argv[3]}: goodput {share},"
      f" {len(s['restarts'])} kills in {s['wall_seconds']:.0f} s, {s['useful_steps']} useful steps of"
      f" {1e3 * s['median_step_seconds']:.1f} ms, {s['redone_steps']} repeated, {s['saves']['saved']} saves;"
      f" load {sys.argv[4]}")
P
}
run_goodput() {
  local seconds=${1:-120} period memory periods=("${@:2}")
  [[ ${#periods[@]} -gt 0 ]] || periods=(60 15)
  for period in "${periods[@]}"; do
    for memory in false true; do goodput "$seconds" "$period" "$memory"; done
  done
  machine
}

# --- stall
run_stall() {
  local saves=12 apart=20
  start_job "$work/stall" 1 "$root/configs/gpt2_train_cfg.yaml" "data_config.path=$work/text.txt" \
    data_config.truncate=1 data_config.train_split=1 data_config.block_size=32 trainer_config.batch_size=1 \
    trainer_config.snapshot_every=$apart trainer_config.snapshot_if_busy=wait trainer_config.max_steps=$((saves * apart))
  end_job
  [[ $code == 0 ]] || { tail -5 "$work/stall/err" >&2; return 1; }
  ask "$work/stall/run_summary.json" "$work/stall/gpt_snapshot.pt" <<'P'
import json, os, sys
s = json.load(open(sys.argv[1]))
saves = s["saves"]
print(f"snapshot of {os.path.getsize(sys.argv[2]) / 1e6:.0f} MB, {saves['saved']} saves, {saves['failed']} failed: training stalled"
      f" {1e3 * saves['stall_seconds'] / saves['saved']:.1f} ms per save, at most {1e3 * saves['longest_stall']:.1f} ms,"
      f" {100 * saves['stall_seconds'] / s['wall_seconds']:.2f} % of {s['wall_seconds']:.1f} s"
      f" (median step {1e3 * s['median_step_seconds']:.0f} ms)")
P
  machine
}

case ${1:-} in
  kills | recovery | goodput | stall) "run_$1" "${@:2}" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
