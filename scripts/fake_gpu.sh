#!/usr/bin/env bash
# Runs a command on fake GPUs: the release programs with NCCL ranks and real numbers, on a machine without a GPU. Slow, and
# of no use for timings; tests/support/fake_cuda/README.md lists what it proves.
#   ./scripts/fake_gpu.sh [--devices N] [--memory GB] [--report FILE] COMMAND...
# Example: ./scripts/fake_gpu.sh --devices 2 ddp-run --nproc_per_node=gpu trainer --config configs/quickstart.yaml
# FILE gets one JSON object per process and line: launches, copies, host synchronizations and their call sites, peak memory,
# collectives. Builds the fake libraries on first use, in the release build folder (DDP_BUILD: another one).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

value() {
  [ -n "${2:-}" ] || { echo "fake_gpu: $1 needs a value; see --help" >&2; exit 2; }
  printf '%s' "$2"
}
while [ $# -gt 0 ]; do
  case $1 in
    --devices) FAKECUDA_DEVICES=$(value "$@"); export FAKECUDA_DEVICES; shift 2 ;;
    --memory) FAKECUDA_MEMORY_GB=$(value "$@"); export FAKECUDA_MEMORY_GB; shift 2 ;;
    --report) FAKECUDA_REPORT=$(realpath -m "$(value "$@")"); export FAKECUDA_REPORT FAKECUDA_SYNC_SITES=1; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    -*) echo "fake_gpu: unknown option '$1'; see --help" >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { usage >&2; exit 2; }

build=${DDP_BUILD:-$root/build/release}
fake=$build/tests/support/fake_cuda
if [ ! -e "$fake/torch/lib/libtorch_cuda.so" ] || [ ! -x "$build/bin/trainer" ]; then
  [ -e "$build/CMakeCache.txt" ] || { echo "fake_gpu: build first: ./scripts/build.sh" >&2; exit 2; }
  cmake --build "$build" --target fake_cuda trainer trainer_cuda ddp-run >&2 || {
    echo "fake_gpu: cannot build the fake libraries; they need torch 2.15 with its CUDA wheels (./scripts/setup.sh --gpu)" >&2
    exit 2
  }
fi

# Both programs look for device files below this folder (worker_contract.h).
count=${FAKECUDA_DEVICES:-1}
devices=$fake/devices/$count
mkdir -p "$devices/dev"
[ -e "$devices/sys" ] || ln -sfn /sys "$devices/sys"
for ((i = 0; i < count; ++i)); do : >"$devices/dev/nvidia$i"; done

# As compute capability 8.0: from 9.0 on torch takes cuDNN's attention.
export DDP_DEVICE_ROOT=$devices FAKECUDA_NUMERICS=${FAKECUDA_NUMERICS:-1} FAKECUDA_SM=${FAKECUDA_SM:-80}
export LD_LIBRARY_PATH=$fake/lib:$fake/torch/lib PATH=$build/bin:$PATH OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$@"
