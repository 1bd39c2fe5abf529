#!/usr/bin/env bash
# From a fresh clone to a text that a model of one's own wrote: set up, build, train on two ranks, generate.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly config=configs/quickstart.yaml
readonly run_dir=outputs/quickstart
readonly bin=build/release/bin

usage() {
  cat <<USAGE
Usage: ./scripts/quickstart.sh [key=value ...]

Installs what is missing (scripts/setup.sh), builds, trains $config on two CPU ranks or on all NVIDIA
GPUs, and prints a text that the trained model wrote. Arguments override the configuration, for example
  ./scripts/quickstart.sh trainer_config.max_epochs=1
  ./scripts/quickstart.sh data_config.path=data/input.txt
A second run needs no network, builds nothing and trains afresh; the run before it is kept in
$run_dir.previous.
USAGE
}

for argument in "$@"; do
  case $argument in
    -h | --help) usage; exit 0 ;;
    *=* | ~*) ;;
    *) echo "error: unexpected argument '$argument'" >&2
       echo "  tip: overrides have the form key=value, for example trainer_config.max_epochs=1" >&2
       exit 2 ;;
  esac
done

./scripts/setup.sh

[ -x "$bin/trainer" ] || echo "quickstart: building ddp-run and trainer, some minutes the first time"
./scripts/build.sh release ddp-run ddp-store trainer

# trainer resumes where a snapshot exists; a quickstart shows a training from its first step.
# A run that left no snapshot has nothing worth the place of the one before it.
if [ ! -e "$run_dir/snapshot.pt" ]; then
  rm -rf "$run_dir"
else
  rm -rf "$run_dir.previous"
  mv "$run_dir" "$run_dir.previous"
  echo "quickstart: training afresh; the previous run is in $run_dir.previous"
fi

ranks=2
if [ "${CUDA_VISIBLE_DEVICES-all}" != "" ] && compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  ranks=gpu
fi
command=("$bin/ddp-run" --standalone "--nproc_per_node=$ranks" "$bin/trainer" --config "$config" "$@")
echo "quickstart: ${command[*]}"
"${command[@]}"

snapshot=$run_dir/snapshot.pt
for argument in "$@"; do
  case $argument in trainer_config.snapshot_path=*) snapshot=${argument#*=} ;; esac
done
prompt='In the morning'
generate=("$bin/trainer" generate --snapshot "$snapshot" --prompt "$prompt" --max_new_tokens 500 --temperature 0.5)
printf '\nThe model continues "%s":\n\n' "$prompt"
# One thread: the model is small, and threads that wait for each other are slow on a busy machine.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "${generate[@]}"
cat <<NEXT


What to do next:
  $bin/trainer generate --snapshot $snapshot --prompt 'Anna the baker' --temperature 0.5
  ${command[*]} trainer_config.max_epochs=12     # goes on from the snapshot
  ./scripts/fetch_data.sh && ./scripts/quickstart.sh data_config.path=data/input.txt     # Shakespeare
  ./scripts/test.sh                                                                       # every test
NEXT
