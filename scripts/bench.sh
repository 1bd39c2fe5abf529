#!/usr/bin/env bash
# Benchmarks; see scripts/bench/bench.sh.
exec "$(dirname "${BASH_SOURCE[0]}")/bench/bench.sh" "$@"
