#!/usr/bin/env bash
# Builds everything and runs the tests: those of the gate, with --all those of the night as well, with --fast a few.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  -h | --help)
    cat <<'USAGE'
Usage: ./scripts/test.sh [--all | --fast] [ctest argument ...]

Installs what is missing (scripts/setup.sh --test), builds the release preset and runs the tests with ctest.
  ./scripts/test.sh                    the tests of the gate: each promise has one here
  ./scripts/test.sh --all              also those labelled *-long, which run each night: every combination and
                                       repetition, comparisons with large libraries, recipes trained to the end
  ./scripts/test.sh --fast             the dev preset (incremental, file by file) and its unit tests only: no
                                       multi-process jobs, no Python peers, no setup
  ./scripts/test.sh --fast -R sampler  of these, the tests whose names match
  ./scripts/test.sh -R resume          only tests whose names match (--all -R resume: the long ones, too)
  ./scripts/test.sh --rerun-failed

Environment: DDP_SETUP=cpu|gpu|test chooses what is installed (default test; without it, tests that compare with
Python's torch are skipped); TORCH_ROOT etc. as in scripts/setup.sh.
USAGE
    exit 0 ;;
esac

# Labels from tests/*/CMakeLists.txt. The slow ones start jobs, servers or Python.
readonly slow='e2e|gpu|peers|recipes|clusters|store|launcher-waits|[a-z]*-long'
readonly unit_tests=(launcher_tests ddp_hydra_tests ddp_config_tests ddp_remote_tests ddp_runtime_tests ddp_metrics_tests ddp_image_tests ddp_tensorfile_tests ddp_tokenizer_tests)
readonly torch_tests=(ddp_model_tests ddp_trainer_tests ddp_refusal_tests)
preset=release
select=(-LE '[-]long$')
whole=()
[ "${1:-}" != --all ] || { shift; select=(); }
if [ "${1:-}" = --fast ]; then
  shift
  preset=dev
  ./scripts/build.sh dev "${unit_tests[@]}" ddp_config_show ddp-run
  if grep -qiE '^DDP_BUILD_TRAINER:[A-Z]+=(OFF|NO|FALSE|0)$' build/dev/CMakeCache.txt; then
    echo "test: build/dev is configured without trainer; with it: CMAKE_ARGS=-DDDP_BUILD_TRAINER=ON ./scripts/test.sh --fast"
  else
    ./scripts/build.sh dev "${torch_tests[@]}"
    # To load LibTorch takes a third of a second: all tests of such a program share one process, unless some are asked for,
    # and then those of a file.
    [ $# -gt 0 ] || whole=("${torch_tests[@]}")
  fi
  select=(-LE "^($slow${whole:+|trainer})\$" -E '_NOT_BUILT|fuzzing corpus')
else
  ./scripts/setup.sh "--${DDP_SETUP:-test}"
  ./scripts/build.sh release
fi

log=$(mktemp)
trap 'rm -f "$log"*' EXIT
status=0
# More tests than cores at a time, as most wait for processes, and two that do nothing but wait.
ctest --preset "$preset" --parallel "$(($(nproc) * 2 + 4))" "${select[@]}" "$@" 2>&1 | tee "$log" || status=$?

total=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$log" | tail -1)
failed=$(sed -n 's/.*, \([0-9]*\) tests\{0,1\} failed out of.*/\1/p' "$log" | tail -1)
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
if [ -z "$total" ]; then
  echo "test: ctest exited with $status and ran no tests"
  exit "$(( status == 0 ? 1 : status ))"
fi
# A case that is skipped among others of its file: the file's test has passed.
sort -u "build/$preset/Testing/Temporary/LastTest.log" 2>/dev/null | grep -aE '^\[skipped\] ' | sed 's/^/test: /' || true
echo "test: $(( total - failed - skipped )) of $total tests passed, $failed failed, $skipped skipped"
pids=()
for program in "${whole[@]}"; do
  OMP_NUM_THREADS=1 "build/$preset/bin/$program" '~[peer]' >"$log.$program" 2>&1 &
  pids+=($!)
done
for i in "${!whole[@]}"; do
  program=${whole[i]}
  if wait "${pids[i]}"; then
    echo "test: $program: $(grep '^All tests passed' "$log.$program")"
  else
    status=1
    cat "$log.$program"
    echo "test: $program: FAILED, see above"
  fi
done
exit "$status"
