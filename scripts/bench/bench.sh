#!/usr/bin/env bash
# The standing benchmark: trainer beside plain PyTorch, taking turns; a table, JSON, rows of docs/benchmarks.md.
#   scripts/bench.sh [--only NAME ...] [--pairs N] [--quick] [--json FILE] [--docs] [--list]
#   scripts/bench.sh zero [--help]     memory and time of the strategies that shard training, beside those of torch in Python
# TRAINER, DDP_RUN and PYTHON override the programs; PYTHON needs torch.
#   scripts/bench.sh plan [--help]     what trainer plan predicts against what runs need
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
if [ "${1:-}" = zero ]; then
  shift
  exec python3 -B "$here/bench_zero.py" "$@"
fi
if [ "${1:-}" = plan ]; then
  shift
  exec python3 -B "$here/bench_plan.py" "$@"
fi
exec python3 -B "$here/bench.py" "$@"
