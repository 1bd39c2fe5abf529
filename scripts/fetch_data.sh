#!/usr/bin/env bash
# Downloads public texts into data/: verified by sha256, resumable, and never a partial file under its final name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
Usage: ./scripts/fetch_data.sh [tinyshakespeare|wikitext-2|all] [--from PATH]

  tinyshakespeare   data/input.txt, 1.1 MB (the default)
  wikitext-2        data/wikitext-2/{train,valid,test}.txt, 13 MB, with <unk> tokens
  all               both

  --from PATH       use an existing copy: a file for tinyshakespeare,
                    a directory with {train,valid,test}.txt or wiki.*.tokens for wikitext-2

An interrupted download resumes where it stopped. None of this is needed to build, test or try the
project: data/sample_corpus.txt is included.
USAGE
}

die() { echo "error: $1" >&2; exit "${2:-1}"; }

readonly shakespeare=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
readonly wikitext=https://raw.githubusercontent.com/pytorch/examples/d5678bc8ac0cdd79dbd5e44d4130271018bcec4e/word_language_model/data/wikitext-2

matches() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

download() {  # URL PART
  command -v curl >/dev/null || die "curl is not installed; tip: apt-get install curl, or use a copy with --from PATH"
  local status=0
  curl --fail --location --silent --show-error --connect-timeout 20 --speed-limit 1 --speed-time 60 \
    --retry 3 --continue-at - --output "$2" "$1" 2>"$2.log" || status=$?
  if [ "$status" -eq 33 ]; then  # the server cannot resume: start over
    rm -f "$2" "$2.log"
    download "$1" "$2"
    return
  fi
  # 22: an HTTP error; 416 means that nothing is left to download, and the checksum decides.
  if [ "$status" -ne 0 ] && ! { [ "$status" -eq 22 ] && grep -q 416 "$2.log"; }; then
    local reason
    reason=$(tail -n 1 "$2.log")
    rm -f "$2.log"
    die "cannot download $1 (${reason#curl: }); tip: run again to resume, or use a copy with --from PATH"
  fi
  rm -f "$2.log"
}

fetch() {  # SHA256 SIZE DESTINATION URL [COPY]
  local sha=$1 size=$2 file=$3 url=$4 copy=${5:-}
  if [ -f "$file" ] && matches "$file" "$sha"; then
    echo "$file: present, checksum OK"
    return
  fi
  mkdir -p "$(dirname "$file")"
  if [ -n "$copy" ]; then
    echo "$file: copying $copy ($size)"
    matches "$copy" "$sha" || die "$copy is not the expected text (sha256 differs from $sha)"
    install -m 644 "$copy" "$file.part"
  else
    echo "$file: downloading $url ($size)"
    download "$url" "$file.part"
    if ! matches "$file.part" "$sha"; then
      rm -f "$file.part"
      die "$url: the download is not the expected text (sha256 differs from $sha); it was removed"
    fi
  fi
  mv -f "$file.part" "$file"
  echo "$file: done"
}

fetch_tinyshakespeare() {
  [ -z "$from" ] || [ -f "$from" ] || die "--from: no such file: $from" 2
  fetch 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed "1.1 MB" data/input.txt "$shakespeare" "$from"
}

fetch_wikitext() {
  [ -z "$from" ] || [ -d "$from" ] || die "--from: no such directory: $from" 2
  local part sha size copy
  while read -r part sha size; do
    copy=""
    if [ -n "$from" ]; then
      for copy in "$from/$part.txt" "$from/wiki.$part.tokens" ""; do
        [ ! -f "$copy" ] || break
      done
      [ -n "$copy" ] || die "--from: neither $part.txt nor wiki.$part.tokens in $from" 2
    fi
    fetch "$sha" "$size MB" "data/wikitext-2/$part.txt" "$wikitext/$part.txt" "$copy"
  done <<'PARTS'
train 9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f 10.8
valid f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8 1.1
test d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0 1.3
PARTS
}

what=tinyshakespeare
from=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --from) [ $# -ge 2 ] || die "--from needs a path" 2; from=$2; shift ;;
    --from=*) from=${1#--from=} ;;
    tinyshakespeare | wikitext-2 | all) what=$1 ;;
    *) die "unknown argument '$1'; tip: tinyshakespeare, wikitext-2, all, --from PATH" 2 ;;
  esac
  shift
done
[ "$what" != all ] || [ -z "$from" ] || die "--from works with one dataset at a time" 2

case $what in
  tinyshakespeare) fetch_tinyshakespeare ;;
  wikitext-2) fetch_wikitext ;;
  all) fetch_tinyshakespeare; fetch_wikitext ;;
esac
