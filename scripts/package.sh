#!/usr/bin/env bash
# Builds the packages for other machines: .deb and .tar.gz of ddp-run alone and of what is linked with LibTorch.
#   ./scripts/package.sh [FOLDER]             default: build/packages; SHA256SUMS lists what was made
#   ./scripts/package.sh --sums [FOLDER]      builds nothing: SHA256SUMS of all that is there now, such as a wheel
# CMAKE_ARGS: extra arguments for configuring, e.g. -DDDP_BUILD_TRAINER=OFF; TORCH_ROOT: an existing LibTorch;
# DDP_PACKAGE_TREE: the build tree, default build/package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
readonly tree=${DDP_PACKAGE_TREE:-build/package}

# The only place that writes them.
write_sums() {
  local sums
  sums=$(cd "$1" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\0' | sort -z | xargs -0r sha256sum --)
  printf '%s\n' "$sums" >"$1/SHA256SUMS"
}
if [ "${1:-}" = --sums ]; then
  write_sums "${2:-build/packages}"
  exit 0
fi
packages=$(realpath -m "${1:-build/packages}")

read -ra extra <<<"${CMAKE_ARGS:-}"
[ -z "${TORCH_ROOT:-}" ] || extra+=("-DTORCH_ROOT=$TORCH_ROOT")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake -G Ninja -S . -B "$tree" --log-level=NOTICE -DCMAKE_BUILD_TYPE=Release -DDDP_UNITY=ON -DDDP_BUILD_TESTS=OFF \
  -DDDP_STATIC_LIBS=ON "${extra[@]}" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$tree" ${CMAKE_BUILD_PARALLEL_LEVEL:+--parallel "$CMAKE_BUILD_PARALLEL_LEVEL"}

mkdir -p "$packages"
rm -f "$packages"/*.deb "$packages"/*.tar.gz "$packages/SHA256SUMS"
formats=TGZ
if command -v dpkg-deb >/dev/null; then
  formats="TGZ;DEB"
else
  echo "package: no .deb, because dpkg-deb is not installed"
fi
cpack --config "$tree/CPackConfig.cmake" -G "$formats" -B "$packages" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
rm -rf "$packages/_CPack_Packages" "$packages"/*.sha256
write_sums "$packages"
cd "$packages"
echo "package: $packages"
ls -sh --block-size=K -- *.deb *.tar.gz 2>/dev/null || true
