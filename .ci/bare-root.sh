#!/usr/bin/env bash
# Runs a command in a clean checkout of HEAD inside bare Debian, as on a fresh machine: no compiler, no Python, no CUDA
# toolkit, nothing from this machine except the network, its certificates and the paths given with --bind.
#   .ci/bare-root.sh [--suite bookworm|trixie] [--folder FOLDER] [--bind PATH]... 'COMMAND'
#   .ci/bare-root.sh 'time ./scripts/quickstart.sh && time ./scripts/test.sh'
# FOLDER (default build/bare-SUITE) keeps what is installed and built: the next call updates the checkout and reuses it.
# Remove FOLDER for a fresh start. Needs root and debootstrap; exits with 77 where bare Debian cannot be set up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=bookworm folder='' binds=()
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=$2; shift 2 ;;
    --folder) folder=$2; shift 2 ;;
    --bind) binds+=("$2"); shift 2 ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) break ;;
  esac
done
[ $# -eq 1 ] || { echo "error: expected exactly one COMMAND; tip: .ci/bare-root.sh --help" >&2; exit 2; }
root=$(realpath -m "${folder:-build/bare-$suite}")

cannot() { echo "bare-root: cannot set up bare Debian: $1" >&2; exit 77; }

[ "$(id -u)" -eq 0 ] || cannot "this needs root"
unshare --mount --pid --fork true 2>/dev/null || cannot "unshare is not permitted"
command -v debootstrap >/dev/null || cannot "debootstrap is not installed (apt-get install debootstrap)"

mirror_of_apt() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null |
    sed -nE 's/^URIs: //p; s/^deb (\[[^]]*\] )?([^ ]*) .*/\2/p' | grep -m1 -E '/debian/?$' || true
}

if [ ! -e "$root/.made" ]; then
  mirror=$(mirror_of_apt)
  [ -n "$mirror" ] || cannot "no Debian mirror in apt's sources"
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || cannot "debootstrap failed, see $root.log"
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
  [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/root/ca.crt"
  fi
  git clone -q . "$root/root/project"
  touch "$root/.made"
fi
git -C "$root/root/project" fetch -q "$PWD" HEAD
git -C "$root/root/project" reset -q --hard FETCH_HEAD

for path in "${binds[@]}"; do mkdir -p "$root/$path"; done
# shellcheck disable=SC2016
exec unshare --mount --pid --fork bash -c '
  set -euo pipefail
  root=$1 command=$2
  shift 2
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/tmp"
  for path; do mount --bind -o ro "$path" "$root/$path"; done
  certificates=()
  [ ! -e "$root/root/ca.crt" ] || certificates=(SSL_CERT_FILE=/root/ca.crt PIP_CERT=/root/ca.crt)
  exec chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${certificates[@]}" \
    bash -c "cd /root/project && $command"' bash "$root" "$1" "${binds[@]}"
