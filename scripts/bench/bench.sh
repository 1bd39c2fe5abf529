#!/usr/bin/env bash
# The standing benchmark: trainer beside plain PyTorch, taking turns; a table, JSON, rows of docs/benchmarks.md.
#   scripts/bench/bench.sh [--only NAME ...] [--pairs N] [--quick] [--json FILE] [--docs] [--list]
# TRAINER, DDP_RUN and PYTHON override the programs; PYTHON needs torch.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/bench.py" "$@"
