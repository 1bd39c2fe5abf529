#!/usr/bin/env bash
# Builds everything and runs every test, or with --fast what a change in one file needs first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  -h | --help)
    cat <<'USAGE'
Usage: ./scripts/test.sh [--fast] [ctest argument ...]

Installs what is missing (scripts/setup.sh --test), builds the release preset and runs all tests with ctest.
  ./scripts/test.sh --fast             the dev preset, which builds file by file, and its unit tests alone: no jobs of
                                       several processes, no Python peers, no set-up
  ./scripts/test.sh -R resume          only tests whose names match
  ./scripts/test.sh --rerun-failed

Environment: DDP_SETUP=cpu|gpu|test chooses the set that is installed (default test: tests that compare with
Python's torch are skipped without it); TORCH_ROOT and the like as in scripts/setup.sh.
USAGE
    exit 0 ;;
esac

# Labels of tests/*/CMakeLists.txt. Each of the slow ones starts jobs, servers or a Python.
readonly slow='^(e2e|peers|store|conformance|launcher-long)$'
readonly unit_tests=(launcher_tests ddp_config_tests ddp_remote_tests ddp_runtime_tests ddp_trainer_tests)
preset=release
select=()
if [ "${1:-}" = --fast ]; then
  shift
  preset=dev
  select=(-LE "$slow" -E '_NOT_BUILT$')
  ./scripts/build.sh dev "${unit_tests[@]}" ddp-run
else
  ./scripts/setup.sh "--${DDP_SETUP:-test}"
  ./scripts/build.sh release
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# More tests than cores at a time: most of them wait for processes. Those that load the cores are marked RUN_SERIAL.
ctest --preset "$preset" --parallel "$(($(nproc) * 2))" "${select[@]}" "$@" 2>&1 | tee "$log" || status=$?

total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -1)
failed=$(sed -n 's/.*, \([0-9]*\) tests\{0,1\} failed out of.*/\1/p' "$log" | tail -1)
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
if [ -z "$total" ]; then
  echo "test: ctest ended with exit code $status and ran no test"
  exit "$(( status == 0 ? 1 : status ))"
fi
echo "test: $(( total - failed - skipped )) of $total tests passed, $failed failed, $skipped skipped"
exit "$status"
