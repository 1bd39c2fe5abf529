#!/usr/bin/env bash
# Collects what scripts/gpu_check.sh needs on a machine with GPUs but without compilers, packages or network: stripped programs,
# scripts, configurations and the sample text, below 60 MB. There, with a Python that has torch 2.11 or newer with CUDA 13:
#   BUNDLE/scripts/gpu_check.sh --bundle BUNDLE
# Usage: ./scripts/gpu_bundle.sh [--against COMMIT] [--build FOLDER] BUNDLE
#   --against COMMIT   adds the programs of an older commit, which the check then measures as well
#   --build FOLDER     takes the programs of this build folder instead of building (about 18 minutes on 2 cores, in build/bundle)
# Environment: TORCH_VERSION, the LibTorch to build against (2.11.0, the oldest supported); CMAKE_ARGS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() { echo "error: $1" >&2; exit "${2:-2}"; }

readonly most_megabytes=60
against='' build='' bundle=''
while [ $# -gt 0 ]; do
  case $1 in
    --against) [ -n "${2:-}" ] || die "--against needs a commit"; against=$2; shift ;;
    --build) [ -n "${2:-}" ] || die "--build needs a folder"; build=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) die "unknown argument '$1'; tip: --help" ;;
    *) [ -z "$bundle" ] || die "one BUNDLE folder, not '$bundle' and '$1'"; bundle=$1 ;;
  esac
  shift
done
[ -n "$bundle" ] || { usage >&2; exit 2; }
[ ! -e "$bundle" ] || [ -e "$bundle/bin/trainer" ] || [ -z "$(ls -A "$bundle")" ] || die "$bundle exists and is no bundle; name a new folder"
[ -z "$against" ] || command -v git >/dev/null || die "--against needs git"
[ -z "$against" ] || git rev-parse -q --verify "$against^{commit}" >/dev/null || die "no such commit: $against"

readonly version=${TORCH_VERSION:-2.11.0}
torch_root() { echo "$PWD/.venv-$version"/lib/python3*/site-packages/torch; }

# build_in SOURCE FOLDER: the programs against that LibTorch.
build_in() {
  local log=$2/configure.log
  mkdir -p "$2"
  # shellcheck disable=SC2086  # CMAKE_ARGS are several words
  (cd "$1" && cmake --preset release -B "$2" -DDDP_CUDA=ON -DDDP_BUILD_TESTS=OFF \
    -DTORCH_ROOT="$(torch_root)" ${CMAKE_ARGS:-} >"$log" 2>&1) || { tail -n 20 "$log" >&2; exit 1; }
  cmake --build "$2" --parallel "$(nproc)"
}

# What every Linux has; LibTorch and CUDA are the other machine's own.
readonly everywhere=(libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libstdc++.so.6 libgcc_s.so.1)

# collect FOLDER TARGET: programs and modules of a build, stripped, and the small libraries that they are linked with.
collect() {
  local file library path
  mkdir -p "$2"
  for file in "$1"/bin/{trainer,ddp-run} "$1"/lib/lib{trainer_cuda,trainer_kernels,cuda_ledger}.so; do
    case $file in */libcuda_ledger.so) [ -e "$file" ] || continue ;; esac
    [ -e "$file" ] || die "$file is missing: was this built with CUDA?" 1
    strip -o "$2/${file##*/}" "$file"
  done
  while read -r library _ path _; do
    case " ${everywhere[*]} " in *" $library "*) continue ;; esac
    case $path in /lib/* | /usr/lib/*) cp -L "$path" "$2/" ;; esac
  done < <(LD_LIBRARY_PATH=$libraries ldd "$2/trainer" "$2"/*.so | grep '=> /')
}

if [ -z "$build" ]; then
  TORCH_VERSION=$version DDP_VENV=.venv-$version ./scripts/setup.sh --gpu
  build=$PWD/build/bundle
  build_in "$PWD" "$build"
fi
torch=$(sed -n 's/^TORCH_ROOT:PATH=//p' "$build/CMakeCache.txt")
[ -n "$torch" ] || torch=$(echo "$PWD"/.venv/lib/python3*/site-packages/torch)
libraries=$torch/lib:$(dirname "$torch")/nvidia/cu13/lib
rm -rf "$bundle"
collect "$build" "$bundle/bin"
if [ -n "$against" ]; then
  source=$PWD/build/against-source
  rm -rf "$source"
  git worktree prune
  git worktree add -q --detach "$source" "$against"
  build_in "$source" "$PWD/build/against"
  git worktree remove --force "$source"
  collect "$PWD/build/against" "$bundle/against/bin"
fi
cp -r --parents -t "$bundle" scripts/gpu scripts/gpu_check.sh scripts/bench scripts/checks/gpu_counts.py tests/gpu/expected_counts.json \
  configs data/sample_corpus.txt docs/gpus.md docs/gpu_{figures,predictions}.json
find "$bundle" -name __pycache__ -prune -exec rm -r {} +

# In a root with LibTorch and what every Linux has, both programs start.
starts_alone() {
  local root status=0 library
  root=$(mktemp -d)
  mkdir -p "$root"/{bundle,torch,proc,lib64,lib/x86_64-linux-gnu}
  for library in "${everywhere[@]}"; do
    cp -L "$(gcc -print-file-name="$library")" "$root/lib/x86_64-linux-gnu/"
  done
  cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
  # shellcheck disable=SC2016  # expanded by the inner shell
  unshare --mount --map-root-user bash -c '
    mount --bind "$1" "$2/bundle" && mount --rbind "$3" "$2/torch" &&
      LD_LIBRARY_PATH=/bundle/bin:/torch/torch/lib:/torch/nvidia/cu13/lib:/lib/x86_64-linux-gnu chroot "$2" /bundle/bin/trainer --version &&
      chroot "$2" /bundle/bin/ddp-run --version' bash "$PWD/$bundle" "$root" "$(dirname "$torch")" || status=$?
  rm -rf "$root"
  return "$status"
}
case $bundle in /*) bundle=$(realpath --relative-to="$PWD" "$bundle") ;; esac
starts_alone || die "the bundle's programs need a library that a GPU machine may lack (above)" 1
size=$(du -sm "$bundle" | cut -f1)
[ "$size" -le "$most_megabytes" ] || die "$bundle has $size MB; at most $most_megabytes can be sent" 1
echo "bundle: $bundle, $size MB, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)${against:+, against $against}; there: $bundle/scripts/gpu_check.sh --bundle $bundle"
