#!/usr/bin/env bash
# Installs missing build dependencies: system packages with apt, LibTorch as pinned wheels in .venv.
# A second run finds everything in place, needs no network and takes well under a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
Usage: ./scripts/setup.sh [--launcher | --cpu | --gpu | --test] [--object-stores] [--check] [--no-packages]

  (nothing)      --gpu if an NVIDIA driver is found, else --cpu
  --launcher     what ddp-run alone needs: compiler, CMake, small libraries: 95 MB to download, 370 MB on disk
  --cpu          torch, two small wheels needed to link it: 556 MB to download, 1.3 GB on disk
  --gpu          torch with all its dependencies (CUDA, NCCL): 3.0 GB to download, 5.4 GB on disk
  --test         --gpu --object-stores, plus Python packages that some tests compare against or use as servers
  --object-stores  pyarrow as well, for Parquet, Arrow, S3 and Google Cloud Storage: 53 MB to download, 170 MB on disk
  --check        install nothing; list what is missing and exit 1 if anything is
  --no-packages  skip system packages (already installed, or provided some other way)

Environment:
  TORCH_ROOT     an existing LibTorch (directory with include/ and lib/): nothing is installed with pip
  TORCH_VERSION  2.11.0 to 2.15.0 (default 2.15.0)
  DDP_VENV       location of the virtual environment (default .venv)
USAGE
}

readonly launcher_packages=(g++ cmake ninja-build libfmt-dev libcxxopts-dev nlohmann-json3-dev nettle-dev libboost-dev libssl-dev
                             zlib1g-dev libzstd-dev)
readonly trainer_packages=(python3-venv ccache libgloo-dev libyaml-cpp-dev catch2 libxxhash-dev libutf8proc-dev
                           libpng-dev libturbojpeg0-dev)
readonly arrow=pyarrow==26.0.1  # for snapshots in S3 and Google Cloud Storage
readonly peers=(numpy==2.4.6 safetensors==0.8.0 transformers==5.23.0 tokenizers==0.23.3 tiktoken==0.14.0 omegaconf==2.3.1 hydra-core==1.3.8
                moto==5.2.5 py-partiql-parser==0.6.3 flask==3.1.3 flask-cors==6.0.5 gcp-storage-emulator==2026.7.19
                tensorboard==2.21.0 scikit-learn==1.9.1)
readonly without_wheel=antlr4-python3-runtime  # hydra-core needs it; pure Python
# What `torch` pulls in besides Python packages; tells the full set from the small one.
readonly cuda_parts=(nvidia-cublas nvidia-cuda-nvrtc nvidia-cudnn-cu13 nvidia-cufft nvidia-cusolver nvidia-cusparse
                     nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13)

say() { echo "setup: $*"; }
die() {
  echo "error: $1" >&2
  [ -z "${2:-}" ] || echo "  tip: $2" >&2
  exit "${3:-1}"
}

order=auto
given=''
object_stores=no
check=no
with_packages=yes
while [ $# -gt 0 ]; do
  case $1 in
    --launcher | --cpu | --gpu | --test) given+=${given:+ }$1 order=${1#--} ;;
    --object-stores) object_stores=yes given+=${given:+ }$1 ;;
    --check) check=yes ;;
    --no-packages) with_packages=no ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument '$1'" "./scripts/setup.sh --help lists the options" 2 ;;
  esac
  shift
done
if [ "$order" = auto ]; then
  order=cpu
  if [ -e /proc/driver/nvidia/version ] || { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; then
    order=gpu
  fi
fi

[ "$order" != test ] || object_stores=yes
[ "$order $object_stores" != "launcher yes" ] || die "--object-stores is for trainer, --launcher for ddp-run alone" "leave one out" 2

packages=("${launcher_packages[@]}")
size_of_packages="95 MB to download, 370 MB on disk"
if [ "$order" != launcher ]; then
  packages+=("${trainer_packages[@]}")
  size_of_packages="150 MB to download, 650 MB on disk"
fi
readonly packages size_of_packages torch_version=${TORCH_VERSION:-2.15.0}
readonly venv=${DDP_VENV:-.venv}
# The CUDA runtime and CUPTI that the wheel was linked with (its cuda-toolkit requirement), and the crt/ headers that the
# runtime's headers include, which torch itself does not need.
case $torch_version in
  2.15.*) cuda_runtime=13.2.86 cuda_cupti=13.2.86 cuda_crt=13.2.86 cuda_cccl=13.3.5.0.6 oldest_python=11 ;;
  2.11.* | 2.12.* | 2.13.* | 2.14.*) cuda_runtime=13.0.96 cuda_cupti=13.0.85 cuda_crt=13.0.88 cuda_cccl=13.0.85 oldest_python=10 ;;
  *) die "TORCH_VERSION=$torch_version is not supported" "2.11.0 to 2.15.0 are" 2 ;;
esac

mkdir -p .cache
readonly log=.cache/setup.log
missing=()

# --- system packages -----------------------------------------------------------------------------------------------

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [ "$package" != python3-venv ] || [ -z "${TORCH_ROOT:-}" ] || continue
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

install_packages() {
  local wanted=("$@") as_root=()
  local command="apt-get install -y --no-install-recommends ${wanted[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "these packages are missing and installing them needs root: ${wanted[*]}" "as root: $command"
    as_root=(sudo)
    sudo -n true 2>/dev/null || [ -t 0 ] || die "these packages are missing and sudo needs a password: ${wanted[*]}" "sudo $command"
  fi
  require_space / 1000 "the system packages"
  say "apt: installing ${wanted[*]} (on a bare system about $size_of_packages)"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  if ! { update_lists "${apt[@]}" && "${apt[@]}" install -y --no-install-recommends "${wanted[@]}" >"$log" 2>&1; }; then
    explain_failure "apt could not install ${wanted[*]}"
  fi
}

# apt-get waits for dpkg's lock but not for that of the package lists, which a machine's own upgrades hold after its start.
update_lists() {  # apt-get with its options
  local waited=0 wait=300
  until LC_ALL=C "$@" update >"$log" 2>&1; do
    grep -q 'lists/lock' "$log" && [ "$waited" -lt "$wait" ] || return 1
    [ "$waited" -gt 0 ] || say "apt: another program is updating the package lists, waiting up to $wait s for it"
    sleep 5
    waited=$((waited + 5))
  done
}

has_header() { echo "#include <$1>" | ${CXX:-c++} ${CONDA_PREFIX:+-I"$CONDA_PREFIX/include"} -E -x c++ - >/dev/null 2>&1; }

lack() {
  lacking+="
  $1"
}

require_for_trainer() {
  [ -n "${TORCH_ROOT:-}" ] || find_python >/dev/null || lack "Python 3.$oldest_python or newer with its venv module (or set TORCH_ROOT)"
  has_header yaml-cpp/yaml.h || lack "yaml-cpp: configuration files"
  has_header gloo/config.h || lack "gloo headers: CPU collectives"
  has_header openssl/evp.h || lack "OpenSSL: SHA-256"
  has_header xxhash.h || lack "xxHash: checksums of snapshots"
  has_header utf8proc.h || lack "utf8proc: Unicode for tokenizers"
  has_header png.h || lack "libpng: PNG images"
  has_header turbojpeg.h || lack "libjpeg-turbo: JPEG images"
  has_header zlib.h || lack "zlib: compressed images"
  { has_header catch2/catch.hpp || has_header catch2/catch_all.hpp; } || lack "Catch2: tests"
}

require_without_apt() {
  local lacking=""
  command -v "${CXX:-c++}" >/dev/null || lack "C++20 compiler with its standard library (g++ 12 or newer)"
  command -v cmake >/dev/null || lack "CMake 3.22 or newer"
  command -v ninja >/dev/null || lack "Ninja"
  has_header fmt/core.h || lack "fmt: text formatting"
  has_header cxxopts.hpp || lack "cxxopts: command line"
  has_header nlohmann/json.hpp || lack "nlohmann-json: JSON"
  has_header nettle/hmac.h || lack "nettle: authentication between nodes"
  has_header boost/beast.hpp || lack "Boost's headers: HTTP to etcd"
  has_header openssl/ssl.h || lack "OpenSSL: TLS to etcd"
  [ "$order" = launcher ] || require_for_trainer
  [ -z "$lacking" ] || die "this system has no apt-get, and these were not found:$lacking" \
    "install them with your package manager; if CMake finds them elsewhere, use --no-packages"
}

# --- LibTorch --------------------------------------------------------------------------------------------------------

find_python() {
  local python
  for python in /usr/bin/python3 python3 python3.11 python3.12 python3.13 python3.14; do
    if "$python" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $oldest_python))" 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

# pip writes RECORD last: a distribution that has one was installed completely.
installed() {  # NAME or NAME==VERSION
  local name=${1%%==*} version='*'
  [ "$name" = "$1" ] || version=${1#*==}
  compgen -G "$venv/lib/python3*/site-packages/${name//-/_}-$version.dist-info/RECORD" >/dev/null ||
    compgen -G "$venv/lib/python3*/site-packages/${name//-/_}-$version+*.dist-info/RECORD" >/dev/null
}

wanted_wheels() {
  echo "torch==$torch_version"
  [ "$object_stores" = no ] || echo "$arrow"
  if [ "$order" = cpu ]; then
    echo "nvidia-cuda-runtime==$cuda_runtime"
    echo "nvidia-cuda-cupti==$cuda_cupti"
    return
  fi
  printf '%s\n' "nvidia-cuda-crt==$cuda_crt" "nvidia-cuda-cccl==$cuda_cccl" "${cuda_parts[@]}"
  [ "$order" != test ] || printf '%s\n' "${peers[@]}"
}

missing_wheels() {
  local wheel
  for wheel in $(wanted_wheels); do
    installed "$wheel" || echo "$wheel"
  done
  # An interrupted pip run may have left out a Python package.
  [ ! -e "$venv/.incomplete" ] || echo "(an installation was interrupted)"
}

install_wheels() {
  local python what megabytes
  case $(uname -s)-$(uname -m) in
    Linux-x86_64 | Linux-aarch64) ;;
    *) die "there is no supported torch wheel for $(uname -s) on $(uname -m)" "build LibTorch yourself and set TORCH_ROOT" ;;
  esac
  if [ ! -x "$venv/bin/pip" ]; then
    python=$(find_python) || die "no Python 3.$oldest_python or newer with its venv module was found" \
      "apt-get install python3-venv, or set TORCH_ROOT to an existing LibTorch"
    "$python" -m venv "$venv" >"$log" 2>&1 || explain_failure "cannot create the virtual environment $venv"
  fi
  if [ "$order" = cpu ]; then
    what="torch $torch_version for CPUs: 556 MB to download, 1.3 GB on disk"
    megabytes=2600
  else
    what="torch $torch_version with CUDA and NCCL: 3.0 GB to download, 5.4 GB on disk"
    megabytes=9500
  fi
  [ "$object_stores" = no ] || what="$what; and pyarrow"
  if installed "torch==$torch_version" && [ ! -e "$venv/.incomplete" ]; then
    what="${wheels[*]}"
    megabytes=1000
  fi
  require_space . "$megabytes" "torch and its download"
  say "pip: installing $what"
  local wheels=("torch==$torch_version")
  [ "$object_stores" = no ] || wheels+=("$arrow")
  # A single call: pip does not always merge a second one into the nvidia/ directory.
  if [ "$order" = cpu ]; then
    wheels+=("nvidia-cuda-runtime==$cuda_runtime" "nvidia-cuda-cupti==$cuda_cupti" --no-deps)
  else
    wheels+=("nvidia-cuda-crt==$cuda_crt" "nvidia-cuda-cccl==$cuda_cccl")  # headers that torch's own include
    [ "$order" != test ] || wheels+=("${peers[@]}")
  fi
  local progress=(--quiet --progress-bar off)
  [ ! -t 1 ] || progress=(--progress-bar on)
  : >"$log"
  touch "$venv/.incomplete"
  "$venv/bin/python" -m pip install "${progress[@]}" --disable-pip-version-check --no-input --retries 3 \
    --only-binary :all: --no-binary "$without_wheel" --log "$log" "${wheels[@]}" 2>/dev/null || explain_failure "pip could not install torch $torch_version"
  rm -f "$venv/.incomplete"
  local left
  left=$(missing_wheels)
  [ -z "$left" ] || die "pip succeeded, but these are missing from $venv: ${left//$'\n'/ }" "rm -rf $venv and run again"
}

# --- shared ------------------------------------------------------------------------------------------------------------

require_space() {  # FOLDER MEGABYTES WHAT
  local free
  free=$(df -Pm "$1" | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] || die "$3 need $2 MB on the disk of $(realpath "$1"), which has $free MB free"
}

explain_failure() {  # WHAT
  local tip="see the last lines of $log"
  if grep -qiE 'no space left|not have enough free space' "$log"; then
    tip="the disk is full"
  elif grep -qE 'lists/lock|dpkg/lock' "$log"; then
    tip="another program holds apt's lock: $(grep -m1 -oE '/var/[^ ]*lock.*' "$log"); run again when it has ended"
  elif grep -qiE 'CERTIFICATE_VERIFY_FAILED|certificate verif' "$log"; then
    tip="the index's certificate is not trusted here (a proxy?): apt-get install ca-certificates, or set PIP_CERT to the right bundle"
  elif grep -qiE 'name resolution|could not resolve|NewConnectionError|network is unreachable|failed to fetch|timed out|ProxyError|ConnectionError' "$log"; then
    tip="the network cannot be reached; run again once it can, finished downloads are kept"
  elif grep -qi 'unable to locate package' "$log"; then
    tip="this release has no package of that name: $(grep -i 'unable to locate' "$log" | awk '{print $NF}' | paste -sd ' ')"
  elif grep -qi 'No matching distribution' "$log"; then
    tip="the package index has no such wheel for this Python and machine: $(grep -i 'No matching distribution' "$log" | tail -1 | sed 's/.*found for //')"
  elif grep -qi 'ensurepip is not available' "$log"; then
    tip="apt-get install python3-venv"
  fi
  die "$1" "$tip"
}

# Concurrent setups would install over each other.
if [ "$check" = no ] && command -v flock >/dev/null; then
  exec 9>.cache/setup.lock
  flock -n 9 || { say "waiting for another setup to finish"; flock 9; }
fi

if [ "$with_packages" = yes ]; then
  if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" -gt 0 ] && [ "$check" = no ]; then
      install_packages "${missing[@]}"
      missing=()
    fi
  else
    require_without_apt
  fi
fi

if [ "$order" = launcher ]; then
  ready="what ddp-run needs; ./scripts/build.sh launcher builds it"
elif [ -n "${TORCH_ROOT:-}" ]; then
  [ -e "$TORCH_ROOT/lib/libtorch_cpu.so" ] || [ -e "$TORCH_ROOT/torch/lib/libtorch_cpu.so" ] ||
    die "TORCH_ROOT=$TORCH_ROOT holds no lib/libtorch_cpu.so" "set it to the directory with include/ and lib/"
  ready="LibTorch in $TORCH_ROOT"
else
  mapfile -t wheels < <(missing_wheels)
  if [ "${#wheels[@]}" -gt 0 ]; then
    if [ "$check" = no ]; then install_wheels; else missing+=("${wheels[@]}"); fi
  fi
  ready="torch $torch_version ($order set) in $venv"
fi

if [ "${#missing[@]}" -gt 0 ]; then
  die "missing: ${missing[*]}" "./scripts/setup.sh${given:+ $given} installs them"
fi
say "ready: $ready"
