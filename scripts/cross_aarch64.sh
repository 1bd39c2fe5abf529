#!/usr/bin/env bash
# Cross-compiles ddp-run and its tests for aarch64 into build/aarch64 and runs them on this machine, emulated by qemu.
#   ./scripts/cross_aarch64.sh setup             installs compiler and qemu, and puts arm64 libraries into .cache/aarch64
#   ./scripts/cross_aarch64.sh build [TARGET...] default: ddp-run
#   ./scripts/cross_aarch64.sh package           .deb, .tar.gz and wheel of ddp-run, into build/aarch64/packages
#   ./scripts/cross_aarch64.sh run COMMAND...    COMMAND, in whose processes aarch64 programs can be executed
#   ./scripts/cross_aarch64.sh check             prints what is missing for that and exits 1, or prints nothing
# An aarch64 machine needs none of this: ./scripts/setup.sh and ./scripts/build.sh build there as elsewhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly cross=$PWD/.cache/aarch64 qemu=/usr/bin/qemu-aarch64-static
readonly tools=(g++-aarch64-linux-gnu qemu-user-static)
readonly libraries=(libfmt-dev libcxxopts-dev nlohmann-json3-dev nettle-dev libboost-dev libssl-dev zlib1g-dev libzstd-dev
                    catch2 libyaml-cpp-dev libxxhash-dev libutf8proc-dev libpng-dev libturbojpeg0-dev libgloo-dev)

install_tools() {
  local as_root=() package
  for package in "${tools[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ] || continue
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" apt-get -qq -y --no-install-recommends install "${tools[@]}" >/dev/null
    return
  done
}

# apt with a state of its own: the system's libraries are neither upgraded nor joined by those of a second architecture.
make_sysroot() {
  local stamp=$cross/sysroot/.packages state=$cross/apt package apt
  [ "$(cat "$stamp" 2>/dev/null)" != "${libraries[*]}" ] || return 0
  rm -rf "$cross"
  mkdir -p "$cross/sysroot" "$state"/{lists,archives}/partial
  touch "$state/status"
  apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$state/lists"
       -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o APT::Sandbox::User=)
  "${apt[@]}" update
  "${apt[@]}" install -y --download-only --no-install-recommends "${libraries[@]}" >/dev/null
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$cross/sysroot"; done
  rm -rf "$state"
  echo "${libraries[*]}" >"$stamp"
}

# In a user namespace, binfmt_misc can be mounted anew since Linux 6.7: the rest of the machine sees nothing of it.
register_qemu() {
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
  printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$1:F" \
    >/proc/sys/fs/binfmt_misc/register
}

# In a PID namespace: emulated, tests that kill what they started have hit other processes. Its first process reaps orphans.
run_emulated() {
  export QEMU_LD_PREFIX=$cross/sysroot
  exec unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc bash -c "$(declare -f register_qemu)
    [ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || register_qemu $qemu || exit
    \"\$@\"; exit \$?" bash "$@"
}

check() {
  local lacking=
  command -v aarch64-linux-gnu-g++ >/dev/null || lacking="no aarch64-linux-gnu-g++"
  [ -x "$qemu" ] || lacking="no $qemu"
  [ -e "$cross/sysroot/.packages" ] || lacking="no libraries in .cache/aarch64"
  [ -n "$lacking" ] || (run_emulated true) 2>/dev/null || lacking="cannot register qemu with binfmt_misc"
  [ -z "$lacking" ] || { echo "$lacking"; return 1; }
}

# A wheel has the tag of the Python that builds it, unless told otherwise; auditwheel allows a static program the oldest one.
make_packages() {
  local folder=build/aarch64/packages python=python3
  rm -f "$folder"/*.whl
  local -x CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$PWD/scripts/cmake/aarch64.cmake -DDDP_BUILD_TRAINER=OFF ${CMAKE_ARGS:-}"
  [ ! -x .venv/bin/python ] || python=.venv/bin/python
  DDP_PACKAGE_TREE=build/aarch64-package ./scripts/package.sh "$folder"
  _PYTHON_HOST_PLATFORM=manylinux_2_17-aarch64 "$python" -m pip wheel . --no-deps -q --disable-pip-version-check -w "$folder" \
    --config-settings=build-dir=build/aarch64-wheel
  ./scripts/package.sh --sums "$folder"
}

case ${1:-} in
  setup) install_tools && make_sysroot ;;
  build) ./scripts/build.sh aarch64 "${@:2}" ;;
  package) make_packages ;;
  run) run_emulated "${@:2}" ;;
  check) check ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; [ "${1:-}" = --help ] || exit 2 ;;
esac
