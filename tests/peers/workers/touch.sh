#!/bin/sh
# Leaves a file with its rank's name, once it has found what a worker is given.
set -eu
: "$WORLD_SIZE" "$LOCAL_RANK" "$MASTER_ADDR" "$MASTER_PORT" "$FROM_OUTSIDE"
echo "creating $1/$RANK"
: >"$1/$RANK"
