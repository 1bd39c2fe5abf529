#!/usr/bin/env bash
# Measures the throughput of --tee=3: workers write 80-byte lines as fast as they can, ddp-run copies them to files and,
# with a prefix, into a pipe. Also the latency from a worker's write to the line in the pipe.
#   scripts/bench/bench_log_pump.sh [RUNS]     (default 5)
# DDP_RUN and STUB_WORKER override the programs; logs go to TMPDIR.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
runs=${1:-5}
ddp_run=${DDP_RUN:-$root/build/release/bin/ddp-run}
stub=${STUB_WORKER:-$root/build/release/bin/stub_worker}
for program in "$ddp_run" "$stub"; do
  [[ -x $program ]] || { echo "error: $program is missing; run ./scripts/build.sh, or set DDP_RUN and STUB_WORKER" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
total=$((512 << 20))
line=0123456789012345678901234567890123456789012345678901234567890123456789012345678

now() { echo "${EPOCHREALTIME/[.,]/}"; }  # microseconds
median() { sort -n "$1" | awk -v unit="$2" '{ v[NR] = $1 } END { printf "%8.1f %s  [%.1f - %.1f]  n=%d\n", v[int((NR + 1) / 2)], unit, v[1], v[NR], NR }'; }

throughput() {  # name workers option...
  local name=$1 workers=$2 begin end
  shift 2
  for ((i = 0; i < runs; ++i)); do
    begin=$(now)
    "$ddp_run" --nproc_per_node="$workers" "$@" "$stub" "repeat=$((total / 80 / workers)):$line\n" 2>> "$work/stderr" | cat > /dev/null
    end=$(now)
    rm -rf "$work/logs"
    awk -v t="$total" -v us="$((end - begin))" 'BEGIN { print t / us }' >> "$work/result.$name"
  done
  printf '%-42s' "$name, $workers workers"
  median "$work/result.$name" MB/s
  rm "$work/result.$name"
}

delay() {
  # The worker writes ten timestamped lines per run; the reader compares them with its clock.
  cat > "$work/worker" <<'W'
#!/bin/bash
for i in 1 2 3 4 5 6 7 8 9 10; do echo "at ${EPOCHREALTIME/[.,]/}"; read -t 0.02 <> <(:) || :; done
W
  chmod +x "$work/worker"
  local at
  for ((i = 0; i < runs; ++i)); do
    while read -r _ at; do echo $(($(now) - at)) >> "$work/delay"; done \
      < <("$ddp_run" --tee=3 --log-dir="$work/logs" "$work/worker" 2>> "$work/stderr")
    rm -rf "$work/logs"
  done
  awk '{ print $1 / 1000 }' "$work/delay" > "$work/delay.ms"
  printf '%-42s' "write to line in the pipe"
  median "$work/delay.ms" ms
}

for workers in 1 8; do
  throughput untouched "$workers"
  throughput tee "$workers" --tee=3 --log-dir="$work/logs"
  throughput tee,time "$workers" --tee=3 --log-line-prefix-template="\${time} " --log-dir="$work/logs"
  throughput tee,fold "$workers" --tee=3 --fold-lines=50 --log-dir="$work/logs"
  throughput redirect "$workers" --redirects=3 --log-dir="$work/logs"
  throughput rotate "$workers" --redirects=3 --log-max-size=64M --log-dir="$work/logs"
done
delay
if grep -h 'not shown' "$work/stderr"; then echo "(lines beyond the backlog, in the files only)"; fi
printf 'load average: %s\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
