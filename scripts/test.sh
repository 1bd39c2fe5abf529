#!/usr/bin/env bash
# Builds everything and runs every test. Arguments go to ctest: ./scripts/test.sh -R launcher
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  -h | --help)
    cat <<'USAGE'
Usage: ./scripts/test.sh [ctest argument ...]

Installs what is missing (scripts/setup.sh --test), builds the release preset and runs all tests with ctest.
  ./scripts/test.sh -R resume          only tests whose names match
  ./scripts/test.sh --rerun-failed

Environment: DDP_SETUP=cpu|gpu|test chooses the set that is installed (default test: tests that compare with
Python's torch are skipped without it); TORCH_ROOT and the like as in scripts/setup.sh.
USAGE
    exit 0 ;;
esac

./scripts/setup.sh "--${DDP_SETUP:-test}"
./scripts/build.sh release

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --preset release "$@" 2>&1 | tee "$log" || status=$?

total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -1)
failed=$(sed -n 's/.*, \([0-9]*\) tests\{0,1\} failed out of.*/\1/p' "$log" | tail -1)
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
if [ -z "$total" ]; then
  echo "test: ctest ended with exit code $status and ran no test"
  exit "$(( status == 0 ? 1 : status ))"
fi
echo "test: $(( total - failed - skipped )) of $total tests passed, $failed failed, $skipped skipped"
exit "$status"
