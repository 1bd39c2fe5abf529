#!/bin/sh
# The hosts of a file, through ssh: no scheduler, no daemon. Keys must let you in without a password,
# and all hosts must have this directory and the same ddp-run.
#   examples/ssh/train.sh [trainer's arguments]
set -eu
here=$(cd "$(dirname "$0")" && pwd)

exec ddp-run --hosts="@${HOSTFILE:-$here/hosts.txt}" --export='NCCL_*,GLOO_*' --max-restarts=3 \
  trainer --config "${CONFIG:-configs/quickstart.yaml}" "$@"
