#!/usr/bin/env bash
# Configures and builds one preset, with as many parallel jobs as memory allows.
#   ./scripts/build.sh [PRESET [TARGET ...]]      default: release, everything
# CMAKE_ARGS: extra arguments for configuring; TORCH_ROOT: an existing LibTorch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
[ $# -eq 0 ] || shift

# A file that includes torch/torch.h takes up to 1.2 GB to compile.
if [ -z "${CMAKE_BUILD_PARALLEL_LEVEL:-}" ] && [ -r /proc/meminfo ]; then
  by_memory=$(awk '/^MemAvailable/ {print int($2 / 1500000)}' /proc/meminfo)
  jobs=$(nproc)
  [ "$by_memory" -ge "$jobs" ] || jobs=$by_memory
  [ "$jobs" -ge 1 ] || jobs=1
  export CMAKE_BUILD_PARALLEL_LEVEL=$jobs
fi

read -ra extra <<<"${CMAKE_ARGS:-}"
# Passed every time: CMake reads the environment only when it first configures a build directory.
[ -z "${TORCH_ROOT:-}" ] || extra+=("-DTORCH_ROOT=$TORCH_ROOT")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" --log-level=NOTICE "${extra[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}"
