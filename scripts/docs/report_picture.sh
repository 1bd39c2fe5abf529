#!/usr/bin/env bash
# The curves of `trainer report` as a picture, taken in headless Chromium.
#   scripts/docs/report_picture.sh RUN_DIR OUTPUT.png     docs/quickstart_loss.png is that of outputs/quickstart
set -euo pipefail
trainer=${DDP_TRAINER:-$(dirname "${BASH_SOURCE[0]}")/../../build/release/bin/trainer}
[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
page=$(mktemp --suffix=.html)
trap 'rm -f "$page"' EXIT
"$trainer" report "$1" --output "$page" >/dev/null
# Keeps the page's first chart and its legend.
sed -i 's#</head>#<style>header,footer,\#texts,[aria-labelledby=h-overview],\#h-curves,\#h-curves+p,\#legend button,.charts>:nth-child(n+2){display:none!important}</style></head>#' "$page"
size=900,413
options=(--headless --disable-gpu --hide-scrollbars "--window-size=$size" --virtual-time-budget=3000)
[ "$(id -u)" -ne 0 ] || options+=(--no-sandbox)  # which Chromium refuses to root
chromium "${options[@]}" --screenshot="$2" "file://$page" >/dev/null 2>&1
[ -s "$2" ] || { echo "error: chromium took no picture" >&2; exit 1; }
