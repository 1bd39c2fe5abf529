#!/usr/bin/env bash
# The regular benchmark: trainer against plain PyTorch, in alternation; a table, JSON, rows of docs/benchmarks.md.
#   scripts/bench.sh [--only NAME ...] [--pairs N] [--quick] [--json FILE] [--docs] [--list]
#   scripts/bench.sh zero [--help]         memory and time of the strategies that shard training, against torch's in Python
#   scripts/bench.sh plan [--help]         what trainer plan predicts against what runs need
#   scripts/bench.sh gpu_account [--help]  what a step asks of a GPU, by operator; needs no GPU
#   scripts/bench.sh gpu_predict [--help]  the predicted column of docs/gpus.md; needs no GPU
# TRAINER, DDP_RUN and PYTHON override the programs; PYTHON needs torch.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
case ${1:-} in
  zero) program=bench_zero.py ;;
  plan) program=bench_plan.py ;;
  gpu_account) program=gpu_account.py ;;
  gpu_predict) program=../gpu/predict.py ;;
  *) exec python3 -B "$here/bench.py" "$@" ;;
esac
shift
exec python3 -B "$here/$program" "$@"
