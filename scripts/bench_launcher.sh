#!/usr/bin/env bash
# Compares ddp-run with torchrun: command to the first worker line, resident memory, restart after SIGKILL.
# Both launchers take turns in one run; each figure is a median with its range.
#   scripts/bench_launcher.sh [RUNS]     (default 20)
# DDP_RUN and TORCHRUN name the programs; without torchrun only ddp-run is measured.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
runs=${1:-20}
ddp_run=${DDP_RUN:-$root/build/release/bin/ddp-run}
torchrun=${TORCHRUN:-$root/.venv/bin/torchrun}
[[ -x $ddp_run ]] || { echo "error: $ddp_run is missing; run ./scripts/build.sh, or set DDP_RUN" >&2; exit 2; }
launchers=(ddp-run)
[[ -x $torchrun ]] && launchers+=(torchrun) || echo "torchrun is missing ($torchrun): only ddp-run is measured" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work OMP_NUM_THREADS=1
cat > "$work/worker" <<'W'
#!/bin/bash
echo "line $$ $PPID $TORCHELASTIC_RESTART_COUNT"
[[ $BENCH_MODE == start || $TORCHELASTIC_RESTART_COUNT != 0 ]] || exec sleep 100
W
chmod +x "$work/worker"

launch() {  # launcher workers
  case $1 in
    ddp-run) exec "$ddp_run" --nproc_per_node="$2" --max_restarts=1 "$work/worker" ;;
    torchrun) exec "$torchrun" --nproc_per_node="$2" --max_restarts=1 --no-python "$work/worker" ;;
  esac 2>> "$work/stderr"
}
now() { echo "${EPOCHREALTIME/[.,]/}"; }  # microseconds
statistics() {  # of a file with one number of microseconds a line
  sort -n "$1" | awk '{ v[NR] = $1 / 1000 } END {
    m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
    printf "%9.1f ms  [%.1f - %.1f]  n=%d\n", m, v[1], v[NR], NR }'
}

first_line() {  # launcher workers
  local begin end
  begin=$(now)
  exec {out}< <(launch "$1" "$2")
  local child=$!
  read -r <&"$out"
  end=$(now)
  cat <&"$out" > /dev/null
  exec {out}<&-
  wait "$child" || true
  echo $((end - begin)) >> "$work/start.$1.$2"
}

memory_of() {  # Pss in KiB of processes
  local sum=0 pid kib
  for pid in "$@"; do
    kib=$(awk '/^Pss:/ { print $2 }' "/proc/$pid/smaps_rollup")
    sum=$((sum + kib))
  done
  echo "$sum"
}

restart_and_memory() {  # launcher
  local pid agent begin end count
  exec {out}< <(launch "$1" 2)
  local child=$!
  read -r _ pid agent count <&"$out"
  read -r <&"$out"
  local processes=("$child")
  [[ $agent == "$child" ]] || processes+=("$agent")
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

export BENCH_MODE=start
for workers in 1 2 8; do
  for ((i = 0; i < runs; ++i)); do
    for launcher in "${launchers[@]}"; do first_line "$launcher" "$workers"; done
  done
done
export BENCH_MODE=restart
for ((i = 0; i < runs; ++i)); do
  for launcher in "${launchers[@]}"; do restart_and_memory "$launcher"; done
done

for workers in 1 2 8; do
  for launcher in "${launchers[@]}"; do
    printf 'command to first line, %d workers  %-9s' "$workers" "$launcher"
    statistics "$work/start.$launcher.$workers"
  done
done
for launcher in "${launchers[@]}"; do
  printf 'SIGKILL to restarted first line   %-9s' "$launcher"
  statistics "$work/restart.$launcher"
done
for launcher in "${launchers[@]}"; do
  printf 'memory of the launcher (Pss)      %-9s' "$launcher"
  sort -n "$work/memory.$launcher" | awk '{ v[NR] = $1 / 1024 } END { printf "%9.1f MiB  [%.1f - %.1f]  n=%d\n", v[int((NR + 1) / 2)], v[1], v[NR], NR }'
done
printf 'load average: %s\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
