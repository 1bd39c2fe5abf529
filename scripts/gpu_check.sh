#!/usr/bin/env bash
# Measures trainer on a machine with NVIDIA GPUs, in 8 minutes on one H100: single operations, training against PyTorch, where
# the time goes, memory, kernels against float64, resume. Prints each figure at once and keeps it in OUT/gpu_check.json.
#   ./scripts/gpu_check.sh --bundle FOLDER    with the programs of scripts/gpu_bundle.sh: compiles nothing, needs no packages
#   ./scripts/gpu_check.sh [--no-build] [--tests]   builds with CUDA and NCCL first; --tests: runs the trainer's tests, too
#   ./scripts/gpu_check.sh --dry-run          on the CPU with tiny models: shows that the steps work; builds nothing
#   ./scripts/gpu_check.sh --record FILE      writes a run's figures into docs/gpu_figures.json and docs/gpus.md
#   --budget SECONDS     leaves out what would not end within it (480)
#   --rounds N           how often each of a pair is measured (2)
#   --only STEP...       only these steps; scripts/gpu/check.py lists them
#   --out FOLDER         default: outputs/gpu_check
# Environment: PYTHON, a Python with torch 2.11 or newer (default: that of .venv, else python3), whose LibTorch is used unless
# TORCH_ROOT is set. Where there is no apt-get, CMAKE_PREFIX_PATH names the folders of yaml-cpp, fmt and the others, and nothing
# is installed. CMAKE_ARGS: for configuring. TRAINER, DDP_RUN: programs that are there already.
set -euo pipefail
readonly caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "error: $1" >&2; exit "${2:-2}"; }
from_caller() { case $1 in /*) echo "$1" ;; *) echo "$caller/$1" ;; esac; }
value() { [ -n "${2:-}" ] || die "$1 needs a value; tip: --help"; printf '%s' "$2"; }

python=${PYTHON:-.venv/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=$(command -v python3)
build=yes tests=no dry=no bundle='' out=outputs/gpu_check rest=()
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) bundle=$(from_caller "$(value "$@")") build=no; shift ;;
    --no-build) build=no ;;
    --tests) tests=yes ;;
    --dry-run) dry=yes build=no rest+=(--dry-run) ;;
    --budget | --rounds) rest+=("$1" "$(value "$@")"); shift ;;
    --out) out=$(from_caller "$(value "$@")"); shift ;;
    --record) exec "$python" -B scripts/gpu/record.py "$(from_caller "$(value "$@")")" ;;
    --only) rest+=(--only); while [ $# -gt 1 ] && [[ $2 != -* ]]; do rest+=("$2"); shift; done ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument '$1'; tip: --help" ;;
  esac
  shift
done

if [ "$dry" = no ]; then
  command -v nvidia-smi >/dev/null || die "nvidia-smi was not found: no NVIDIA driver on this machine" 1
  nvidia-smi -L | grep -q . || die "the NVIDIA driver lists no GPU" 1
fi
if [ "$build" = yes ]; then
  if [ -z "${CMAKE_PREFIX_PATH:-}" ]; then
    ./scripts/setup.sh "--$([ "$tests" = yes ] && echo test || echo gpu)"
  elif [ -z "${TORCH_ROOT:-}" ]; then
    TORCH_ROOT=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
    export TORCH_ROOT
  fi
  CMAKE_ARGS="-DDDP_CUDA=ON ${CMAKE_ARGS:-}" ./scripts/build.sh release
fi
if [ -n "$bundle" ]; then
  TRAINER=$bundle/bin/trainer DDP_RUN=$bundle/bin/ddp-run
  [ ! -d "$bundle/against" ] || rest+=(--against "$bundle/against")
  # The bundle has no LibTorch: Python's.
  libraries=$("$python" -c 'import os, torch; d = os.path.dirname(torch.__file__)
print(d + "/lib:" + os.path.dirname(d) + "/nvidia/cu13/lib")')
  export LD_LIBRARY_PATH=$bundle/bin:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
export TRAINER=${TRAINER:-build/release/bin/trainer} DDP_RUN=${DDP_RUN:-build/release/bin/ddp-run} PYTHON=$python
for program in "$TRAINER" "$DDP_RUN"; do
  [ -x "$program" ] || die "$program is missing; tip: run without --no-build, or set TRAINER and DDP_RUN"
done
[ "$tests" = no ] || ctest --preset release -L trainer -j "$(nproc)" || true
"$python" -B scripts/gpu/check.py --out "$out" "${rest[@]}"
