#!/usr/bin/env bash
# Installs the packages as a user would in bare Debian, without a compiler, and uses them: figures and failures are printed.
#   scripts/packaging/packages_in_bare_debian.sh [--suite bookworm|trixie] [--folder FOLDER] [PACKAGES]
# PACKAGES (default build/packages): a folder with the .deb, .tar.gz and .whl that ./scripts/package.sh and
# `pip wheel . --no-deps -w build/packages` make. What it tests is of HEAD. Downloads torch, 3 GB, unless FOLDER (see
# .ci/bare-root.sh) has it from the last call; needs root, debootstrap and 9 GB there.
set -euo pipefail

# --- inside bare Debian, at the root of a checkout -------------------------------------------------------------------

readonly env=/opt/env  # the user's virtual environment, which keeps torch between two calls
readonly small=(trainer_config.max_steps=6 trainer_config.snapshot_every=2 gpt_config.n_layer=1 gpt_config.n_embd=32
                gpt_config.n_head=2)
# shellcheck disable=SC2016  # the worker's shell expands it
readonly shell_worker=(bash -c 'echo "rank $RANK of $WORLD_SIZE"')

say() { printf '%-78s %s\n' "$1" "$2"; }
seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f s", to - from }'; }
megabytes() { du -sL --block-size=1000 "$@" | awk '{ sum += $1 } END { printf "%.1f MB", sum / 1000 }'; }
fail() { echo "error: $1" >&2; exit 1; }
without_compiler() {
  local tool
  for tool in cc c++ gcc g++ clang cmake ninja make; do
    ! command -v "$tool" >/dev/null || fail "$tool is installed here, so this proves nothing"
  done
}

# Compares two snapshots except for their headers, which contain the run's folder.
same_tensors() {
  python3 - "$@" <<'PYTHON'
import pathlib, struct, sys
data = [path.read_bytes() for path in map(pathlib.Path, sys.argv[1:])]
tensors = [bytes[8 + struct.unpack("<Q", bytes[:8])[0]:] for bytes in data]
sys.exit(tensors[0] != tensors[1] or len(tensors[0]) < 10_000)
PYTHON
}

# trains NAME PROGRAM SHARE: six steps on two ranks; then with a crash in step 5, after a snapshot at step 4.
trains() {
  local name=$1 program=$2 share=$3 folder from log
  folder=$(mktemp -d) log=$(mktemp)
  local job=("$program" --standalone --nproc_per_node=2 --max_restarts=1 trainer --config "$share/configs/quickstart.yaml"
             "data_config.path=$share/data/sample_corpus.txt" "${small[@]}")
  from=$EPOCHREALTIME
  "${job[@]}" "hydra.run.dir=$folder/calm" >"$log" 2>&1 || { cat "$log" >&2; fail "$name: the training failed"; }
  say "$name: six steps of the quickstart on two ranks" "$(seconds_since "$from")"
  DDP_FAULT_PLAN="rank=1 step=5 phase=backward kind=kill" "${job[@]}" "hydra.run.dir=$folder/crashed" >"$log" 2>&1 ||
    { cat "$log" >&2; fail "$name: the crashed training did not come back"; }
  grep -q 'SIGKILL.*restart 1 of 1' "$log" || { cat "$log" >&2; fail "$name: nothing crashed"; }
  same_tensors "$folder"/{calm,crashed}/snapshot.pt || fail "$name: the resumed training ended elsewhere"
  say "$name: a rank killed in step 5, restarted, the same snapshot" "$(grep -om1 'restart 1 of 1' "$log")"
  rm -rf "$folder" "$log"
}

launcher_package() {
  local from=$EPOCHREALTIME
  dpkg -i "$packages"/ddp-run_*.deb >/dev/null
  say "ddp-run's .deb: dpkg -i" "$(seconds_since "$from")"
  say "ddp-run's .deb: size, installed" "$(megabytes "$packages"/ddp-run_*.deb), $(dpkg-query -W -f='${Installed-Size}' ddp-run) KB"
  from=$EPOCHREALTIME
  [ "$(ddp-run --nproc_per_node=2 "${shell_worker[@]}" | sort | paste -sd,)" = "rank 0 of 2,rank 1 of 2" ] ||
    fail "shell workers of the .deb said something else"
  say "ddp-run's .deb: a job of two shells, begin to end" "$(seconds_since "$from")"
}

system_python() {
  apt-get -qq update
  apt-get -qq -y --no-install-recommends install python3-venv >/dev/null 2>&1
  printf '%s\n' 'import os' 'os.write(1, b"python, rank " + os.environb[b"RANK"] + b"\n")' >/tmp/plain.py
  [ "$(ddp-run --nproc_per_node=2 /tmp/plain.py | sort | paste -sd,)" = "python, rank 0,python, rank 1" ] ||
    fail "a Python script under the .deb said something else"
  say "ddp-run's .deb: a Python script without torch" "ok"
}

wheel() {
  local wheel from first before after installed busy
  wheel=$(echo "$packages"/ddp_run-*.whl)
  needed=$(unzip_torch_version "$wheel")
  [ -x $env/bin/pip ] || python3 -m venv $env
  $env/bin/pip uninstall -q -y ddp-run 2>/dev/null || true
  from=$EPOCHREALTIME
  TMPDIR=/var/tmp $env/bin/pip install -q --no-cache-dir --disable-pip-version-check "torch==$needed.*" 2>/dev/null
  say "torch $needed: pip install (or a look, if it is installed)" "$(seconds_since "$from"), $(megabytes $env)"
  python3 -m venv /tmp/bare
  from=$EPOCHREALTIME
  /tmp/bare/bin/pip install -q --disable-pip-version-check "$wheel"
  /tmp/bare/bin/ddp-run --nproc_per_node=2 /tmp/plain.py >/tmp/lines
  first=$(head -1 /tmp/lines)
  [[ $first = "python, rank "* ]] || fail "the wheel without torch said '$first'"
  say "wheel, environment without torch: pip install to the script's first line" "$(seconds_since "$from")"
  one_line "$(/tmp/bare/bin/trainer --version 2>&1 || true)" "no torch was found"
  from=$EPOCHREALTIME
  before=$(cut -d' ' -f16,17 "/proc/$$/stat")
  $env/bin/pip install -q --disable-pip-version-check "$wheel"
  installed=$(seconds_since "$from")
  $env/bin/ddp-run --standalone --nproc_per_node=2 tests/packages/user_script.py >/tmp/lines 2>/dev/null
  first=$(seconds_since "$from")
  after=$(cut -d' ' -f16,17 "/proc/$$/stat")
  [ "$(grep -c 'of 2: sum 3, store of ddp-run: True' /tmp/lines)" -eq 2 ] || fail "the user's script said $(cat /tmp/lines)"
  say "wheel: pip install; to the end of a script that imports torch and sums over two ranks" "$installed; $first"
  busy=$(awk -v before="$before" -v after="$after" 'BEGIN { split(before, b); split(after, a); print (a[1] + a[2] - b[1] - b[2]) / 100 }')
  say "  CPU time of that, which other programs cannot lengthen" "$busy s"
  # Two ranks on two cores: an idle machine takes less than this.
  [ "${busy%%.*}" -lt 10 ] || fail "that is not under 10 s"
  say "wheel: size, installed" "$(megabytes "$wheel"), $(megabytes $env/lib/python3*/site-packages/ddp_run $env/share)"
  trains "wheel" $env/bin/ddp-run $env/share/ddp_run
  $env/bin/trainer doctor >/tmp/doctor || { cat /tmp/doctor >&2; fail "trainer doctor found something"; }
  say "wheel: trainer doctor" "$(tail -1 /tmp/doctor | cut -c1-40)"
}

unzip_torch_version() {
  python3 -c 'import re, sys, zipfile
print(next(m[1] for m in (re.match(r"ddp_run/torch-([0-9.]+)/", n) for n in zipfile.ZipFile(sys.argv[1]).namelist()) if m))' "$1"
}

one_line() {
  [[ $(wc -l <<<"$1") -eq 1 && $1 = *"$2"* ]] || fail "expected one line with '$2', not: $1"
  echo "  $1"
}

# A real torch of another minor version, without what it needs: only its files are looked at.
other_torch() {
  local said
  [ -d /opt/torch210/torch ] || TMPDIR=/var/tmp $env/bin/pip install -q --no-cache-dir --disable-pip-version-check --no-deps \
    --target /opt/torch210 'torch==2.10.*' 2>/dev/null
  said=$(TORCH_ROOT=/opt/torch210/torch $env/bin/trainer --version 2>&1 || true)
  one_line "$said" "is 2.10; pip install 'torch==$needed.*'"
}

archive() {
  mkdir -p /tmp/archive
  local from=$EPOCHREALTIME archive folder
  for archive in "$packages"/*.tar.gz; do tar xf "$archive" -C /tmp/archive; done
  say "both .tar.gz: tar xf" "$(seconds_since "$from")"
  folder=$(echo /tmp/archive/*)
  say "both .tar.gz: size, unpacked" "$(megabytes "$packages"/*.tar.gz), $(megabytes "$folder")"
  one_line "$("$folder"/bin/trainer --version 2>&1 || true)" "no torch was found"
  TORCH_ROOT=$(echo $env/lib/python3*/site-packages/torch) trains "both .tar.gz" "$folder/bin/ddp-run" "$folder/share/ddp_run"
}

trainer_package() {
  local from=$EPOCHREALTIME
  apt-get -qq -y --no-install-recommends install "$packages"/ddp-trainer_*.deb >/dev/null 2>&1
  say "ddp-trainer's .deb: apt-get install" "$(seconds_since "$from")"
  say "ddp-trainer's .deb: size, installed" "$(megabytes "$packages"/ddp-trainer_*.deb), $(dpkg-query -W -f='${Installed-Size}' ddp-trainer) KB"
  $env/bin/pip uninstall -q -y ddp-run
  (
    # shellcheck disable=SC1091
    . $env/bin/activate
    trains "ddp-trainer's .deb, environment with torch active" /usr/bin/ddp-run /usr/share/ddp_run
  )
  dpkg -r ddp-trainer ddp-run >/dev/null
}

inside() {
  packages=$1
  # shellcheck disable=SC1091
  . /etc/os-release
  say "$PRETTY_NAME, glibc $(ldd --version | sed -n '1s/.* //p'), $(nproc) CPU cores, load" "$(cut -d' ' -f1 /proc/loadavg)"
  export OMP_NUM_THREADS=1
  without_compiler
  launcher_package
  system_python
  wheel
  other_torch
  archive
  trainer_package
  without_compiler
  echo "packages: all of them work"
}

# --- outside ---------------------------------------------------------------------------------------------------------

if [ "${1:-}" = --inside ]; then
  inside "$2"
  exit
fi
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --suite | --folder) options+=("$1" "$2"); shift 2 ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) break ;;
  esac
done
packages=$(realpath "${1:-build/packages}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for pattern in 'ddp-run_*.deb' 'ddp-trainer_*.deb' 'ddp-run-*.tar.gz' 'ddp-trainer-*.tar.gz' 'ddp_run-*.whl'; do
  compgen -G "$packages/$pattern" >/dev/null || { echo "error: no $pattern in $packages" >&2; exit 2; }
done
exec .ci/bare-root.sh "${options[@]}" --bind "$packages" "bash scripts/packaging/packages_in_bare_debian.sh --inside '$packages'"
