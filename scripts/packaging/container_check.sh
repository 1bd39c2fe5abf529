#!/usr/bin/env bash
# Builds an image of scripts/containers/ and proves what ddp-run must do as PID 1: exit codes, signals, orphans.
#   scripts/packaging/container_check.sh [--cuda] [--base IMAGE] [--torch-args ARGUMENTS] [--built]      --built: the last call's image
# Needs build/packages with the wheel (pip wheel . --no-deps -w build/packages), buildah and podman. Without a registry, a base
# comes from debootstrap: debootstrap --variant=minbase bookworm ROOT; tar -C ROOT -c . | podman import - localhost/debian:12
# ENGINE_ARGS: options of both programs, such as --root and --storage-driver; RUN_ARGS: of podman run. As root in a sandbox:
#   ENGINE_ARGS='--root /var/tmp/images --storage-driver overlay' RUN_ARGS='--cgroups=disabled --network=host' ...
# and where limits may not be raised there, --ulimit nofile=1024:4096 --ulimit nproc=4096:4096 in RUN_ARGS as well.
# shellcheck disable=SC2016  # the workers' shells expand their commands
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build_args=() built=no kind=cpu
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) kind=cuda; shift ;;
    --base) build_args+=(--build-arg "BASE=$2"); shift 2 ;;
    --torch-args) build_args+=(--build-arg "TORCH_ARGS=$2"); shift 2 ;;
    --built) built=yes; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: unknown argument '$1'; tip: --help" >&2; exit 2 ;;
  esac
done
read -ra engine <<<"${ENGINE_ARGS:-}"
read -ra run <<<"${RUN_ARGS:-}"
readonly image=localhost/ddp-run:check-$kind name=ddp-run-check-$$
log=$(mktemp)
trap 'podman "${engine[@]}" rm --force --ignore "$name" >/dev/null 2>&1; rm -f "$log"' EXIT

fail() { echo "error: $1" >&2; cat "$log" >&2; exit 1; }
in_container() { podman "${engine[@]}" run --rm --name "$name" "${run[@]}" "$image" "$@" >"$log" 2>&1; }

# expect CODE WHAT COMMAND...: a job in a container, its output in $log.
expect() {
  local wanted=$1 what=$2 code=0
  shift 2
  in_container "$@" || code=$?
  [ "$code" -eq "$wanted" ] || fail "$what: exit code $code, not $wanted"
  echo "$what: exit code $code"
}

if [ "$built" = no ]; then
  buildah "${engine[@]}" bud --isolation chroot --layers=false "${build_args[@]}" \
    -f "scripts/containers/$kind.Containerfile" -t "$image" . \
    >"$log" 2>&1 || fail "the image could not be built"
fi
echo "image: $(podman "${engine[@]}" images --format '{{.Size}}' "$image")"

expect 0 "ddp-run is PID 1" --nproc_per_node=1 bash -c '[ "$(</proc/1/comm)" = ddp-run ]'
expect 7 "a worker's exit code" --nproc_per_node=2 bash -c 'exit 7'
expect 137 "a worker killed by SIGKILL" --nproc_per_node=2 bash -c 'kill -9 $$'
expect 127 "a program that is not there" nonexistent
# The orphan's parent has ended, so ddp-run must reap it: its entry in /proc goes, however long that takes.
expect 0 "orphans are reaped" --nproc_per_node=1 timeout 60 bash -c \
  'orphan=$(bash -c "sleep 0.1 >/dev/null & echo \$!"); while [ -e "/proc/$orphan" ]; do sleep 0.05; done'

# SIGTERM to the container: the workers receive it, save, and exit with 75.
in_container --nproc_per_node=2 bash -c 'trap "echo saved; exit 75" TERM; echo ready; while :; do sleep 0.1; done' &
job=$!
for _ in $(seq 600); do
  [ "$(grep -cx ready "$log")" -lt 2 ] || break
  sleep 0.1
done
podman "${engine[@]}" kill --signal TERM "$name" >/dev/null
code=0
wait "$job" || code=$?
[[ $code -eq 75 && $(grep -cx saved "$log") -eq 2 ]] || fail "SIGTERM: exit code $code, not 75 after both workers have saved"
echo "SIGTERM reaches both workers: exit code $code"

share=/opt/ddp-run/share/ddp_run
expect 0 "three steps of the quickstart on two ranks" --standalone --nproc_per_node=2 trainer --config $share/configs/quickstart.yaml \
  data_config.path=$share/data/sample_corpus.txt trainer_config.max_steps=3
echo "container: all of it works"
