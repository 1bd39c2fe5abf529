#!/usr/bin/env bash
# Compares ddp-run with torchrun. The launchers take turns in one run; each figure is a median with its range.
#   scripts/bench/bench_launcher.sh [RUNS [MEASURE ...]]     default: 20 runs of every measure
# Measures:
#   start     command to the first line of a worker, with 1, 2 and 8 workers
#   memory    memory of the launcher while two workers run
#   restart   SIGKILL of a worker to the first line of the restarted group
#   orphans   processes of the job still alive 1 s after SIGKILL of the launcher
#   reform    rounds in which two Python workers form a Gloo group again after a rank was killed
#   delay     latency from a worker's write to the teed line in the launcher's output pipe
#   lines     32 workers write 1,000 lines each in three pieces: torn and lost lines on the console
# DDP_RUN, TORCHRUN and PYTHON override the programs; without torchrun only ddp-run is measured.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
runs=${1:-20}
shift $(($# > 0 ? 1 : 0))
measures=("$@")
[[ $# -gt 0 ]] || measures=(start memory restart orphans reform delay lines)
ddp_run=${DDP_RUN:-$root/build/release/bin/ddp-run}
torchrun=${TORCHRUN:-$root/.venv/bin/torchrun}
export PYTHON_EXEC=${PYTHON:-$root/.venv/bin/python}
[[ -x $ddp_run ]] || { echo "error: $ddp_run is missing; run ./scripts/build.sh, or set DDP_RUN" >&2; exit 2; }
launchers=(ddp-run)
[[ -x $torchrun ]] && launchers+=(torchrun) || echo "torchrun is missing ($torchrun): only ddp-run is measured" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work OMP_NUM_THREADS=1

cat > "$work/worker" <<'W'
#!/bin/bash
case $BENCH_MODE in
  orphans) setsid sleep 100 & echo "line $$ $!"; exec sleep 100 ;;
  delay) for ((i = 0; i < BENCH_LINES; ++i)); do echo "line $EPOCHREALTIME"; sleep 0.05; done; exit ;;
  lines) for ((i = 0; i < 1000; ++i)); do printf 'begin '; printf '%s ' "$RANK"; printf '%s end\n' "$i"; done; exit ;;
esac
echo "line $$ $PPID $TORCHELASTIC_RESTART_COUNT"
[[ $BENCH_MODE == start || $TORCHELASTIC_RESTART_COUNT != 0 ]] || exec sleep 100
W
chmod +x "$work/worker"
cat > "$work/reform.py" <<'P'
import datetime, os, signal
import torch, torch.distributed as dist
if os.environ["RANK"] == "0":
    os.write(1, b"began\n")
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=15))
total = torch.ones(1)
dist.all_reduce(total)
attempt, last = (int(os.environ["TORCHELASTIC_" + name]) for name in ("RESTART_COUNT", "MAX_RESTARTS"))
if dist.get_rank() == 0:
    os.write(1, b"formed\n")
dist.barrier()
if attempt < last:
    if dist.get_rank() == attempt % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
os._exit(0)
P

launch() {  # launcher workers [options]
  local launcher=$1 workers=$2
  shift 2
  case $launcher in
    ddp-run) exec "$ddp_run" --nproc_per_node="$workers" "$@" ;;
    torchrun) exec "$torchrun" --nproc_per_node="$workers" "$@" ;;
  esac 2>> "$work/stderr"
}
bash_job() { launch "$1" "$2" --max_restarts=1 --no-python "${@:3}" "$work/worker"; }
now() { echo "${EPOCHREALTIME/[.,]/}"; }  # microseconds
statistics() {  # of a file with one duration in microseconds per line
  sort -n "$1" | awk '{ v[NR] = $1 / 1000 } END {
    m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
    printf "%9.1f ms  [%.1f - %.1f]  n=%d\n", m, v[1], v[NR], NR }'
}
each_launcher() { for launcher in "${launchers[@]}"; do "$@" "$launcher"; done; }
take_turns() {  # TIMES FUNCTION: calls it for each launcher in turn
  local turn
  for ((turn = 0; turn < $1; ++turn)); do each_launcher "${@:2}"; done
}
row() { printf '%-34s %-9s' "$1" "$2"; }

# --- start
first_line() {  # workers launcher
  local begin end
  begin=$(now)
  exec {out}< <(bash_job "$2" "$1")
  local child=$!
  read -r <&"$out"
  end=$(now)
  cat <&"$out" > /dev/null
  exec {out}<&-
  wait "$child" || true
  echo $((end - begin)) >> "$work/start.$2.$1"
}
show_start() { row "command to first line, $1 workers" "$2"; statistics "$work/start.$2.$1"; }
measure_start() {
  export BENCH_MODE=start
  for workers in 1 2 8; do take_turns "$runs" first_line "$workers"; done
  for workers in 1 2 8; do each_launcher show_start "$workers"; done
}

# --- memory, restart
memory_of() {  # Pss of processes, in KiB
  local sum=0 pid kib
  for pid in "$@"; do
    kib=$(awk '/^Pss:/ { print $2 }' "/proc/$pid/smaps_rollup")
    sum=$((sum + kib))
  done
  echo "$sum"
}
slept() { awk '/^voluntary_ctxt_switches:/ { print $2 }' "/proc/$1/status"; }
at_rest() {  # PID: between two of its sleeps it has done what it does now and then; ddp-run's guardian, every 3 s
  local before
  before=$(slept "$1")
  while (($(slept "$1") < before + 2)); do sleep 0.1; done
}
kill_a_worker() {  # launcher
  local pid agent begin end count
  exec {out}< <(bash_job "$1" 2)
  local child=$!
  read -r _ pid agent count <&"$out"
  read -r <&"$out"
  local processes=("$child")
  [[ $agent == "$child" ]] || processes+=("$agent")
  at_rest "$child"
  memory_of "${processes[@]}" >> "$work/memory.$1"
  begin=$(now)
  kill -9 "$pid"
  while read -r _ _ _ count <&"$out"; do [[ $count != 1 ]] || break; done
  end=$(now)
  cat <&"$out" > /dev/null
  exec {out}<&-
  wait "$child" || true
  echo $((end - begin)) >> "$work/restart.$1"
}
run_restarts() {  # once, for both measures
  [[ ! -e $work/restart.ddp-run ]] || return 0
  export BENCH_MODE=restart
  take_turns "$runs" kill_a_worker
}
show_restart() { row "SIGKILL to restarted first line" "$1"; statistics "$work/restart.$1"; }
show_memory() {
  row "memory of the launcher (Pss)" "$1"
  sort -n "$work/memory.$1" | awk '{ v[NR] = $1 / 1024 } END {
    printf "%9.1f MiB [%.1f - %.1f]  n=%d\n", v[int((NR + 1) / 2)], v[1], v[NR], NR }'
}
measure_restart() { run_restarts; each_launcher show_restart; }
measure_memory() { run_restarts; each_launcher show_memory; }

# --- orphans
kill_the_launcher() {  # launcher
  local pids=() pid child left=0
  exec {out}< <(bash_job "$1" 2)
  local launcher=$!
  for _ in 1 2; do
    read -r _ pid child <&"$out"
    pids+=("$pid" "$child")
  done
  kill -9 "$launcher"
  wait "$launcher" 2> /dev/null || true
  sleep 1
  for pid in "${pids[@]}"; do
    ! kill -0 "$pid" 2> /dev/null || left=$((left + 1))
  done
  kill -9 "${pids[@]}" 2> /dev/null || true
  exec {out}<&-
  echo "$left" >> "$work/orphans.$1"
}
show_orphans() {
  row "alive 1 s after its SIGKILL, of 4" "$1"
  awk '{ sum += $1; clean += $1 == 0 } END { printf "%9.1f      none in %d of %d runs\n", sum / NR, clean, NR }' "$work/orphans.$1"
}
measure_orphans() {
  export BENCH_MODE=orphans
  take_turns "$runs" kill_the_launcher
  each_launcher show_orphans
}

# --- reform
form_again() {  # launcher
  # A failed round takes 15 s to time out, so the launchers get equal time rather than equal rounds.
  local program=$ddp_run
  [[ $1 == ddp-run ]] || program=$torchrun
  PET_HEALTHY_AFTER=0.001 timeout $((60 + 6 * runs)) "$program" --nproc_per_node=2 --max_restarts="$runs" "$work/reform.py" \
    > "$work/reform.$1" 2>> "$work/stderr" || true
}
show_reform() {
  row "Gloo group formed after a restart" "$1"
  awk '/began/ { ++began } /formed/ { ++formed } END { printf "%9d of %d rounds\n", formed - 1, began - 1 }' "$work/reform.$1"
}
measure_reform() {
  "$PYTHON_EXEC" -c 'import torch' 2> /dev/null || { echo "reform: skipped, $PYTHON_EXEC has no torch"; return; }
  each_launcher form_again
  each_launcher show_reform
}

# --- delay
read_lines() {  # launcher
  local stamp
  exec {out}< <(bash_job "$1" 1 --tee=3)
  while read -r _ stamp <&"$out"; do
    echo $(($(now) - ${stamp/[.,]/})) >> "$work/delay.$1"
  done
  exec {out}<&-
}
show_delay() { row "console delay of a teed line" "$1"; statistics "$work/delay.$1"; }
measure_delay() {
  export BENCH_MODE=delay BENCH_LINES=$runs
  each_launcher read_lines
  each_launcher show_delay
}

# --- lines
write_lines() {  # launcher
  (bash_job "$1" 32 --tee=3) > "$work/lines.$1"
}
show_lines() {
  row "of 32,000 lines torn or lost" "$1"
  awk '{ whole = $0 ~ /^\[default[0-9]+\]:begin [0-9]+ [0-9]+ end$/
         if (whole) seen[$0] = 1; else ++torn }
       END { for (line in seen) ++good; printf "%9d torn, %d lost\n", torn, 32000 - good }' "$work/lines.$1"
}
measure_lines() {
  export BENCH_MODE=lines
  each_launcher write_lines
  each_launcher show_lines
}

for measure in "${measures[@]}"; do
  declare -F "measure_$measure" > /dev/null || { echo "error: no measure '$measure'; see the header of $0" >&2; exit 2; }
done
for measure in "${measures[@]}"; do "measure_$measure"; done
printf 'load average: %s\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
