#!/bin/sh
# mpirun starts one ddp-run on each host of a hostfile, and ddp-run the workers there.
#   examples/mpi/train.sh HOSTFILE [trainer's arguments]
# WORKERS: per host (default: one for each GPU); CONFIG: the trainer's configuration.
set -eu
hostfile=$1
shift

# MPI processes cannot query which host is the first.
first=$(sed -e 's/#.*//' -e 's/^[[:space:]]*//' -e 's/[[:space:]:].*//' -e '/^$/d' "$hostfile" | head -n1)

case $(mpirun --version 2>/dev/null) in
  *"Open MPI"* | *OpenRTE* | *PRRTE*)
    set -- --hostfile "$hostfile" --map-by ppr:1:node -x "MASTER_ADDR=$first" -x PATH \
      ddp-run --scheduler=mpi --nproc-per-node="${WORKERS:-auto}" \
      trainer --config "${CONFIG:-configs/quickstart.yaml}" "$@"
    ;;
  *) # MPICH, Intel MPI
    hosts=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$hostfile" | wc -l)
    set -- -f "$hostfile" -ppn 1 -n "$hosts" -genv MASTER_ADDR "$first" \
      ddp-run --scheduler=mpi --nproc-per-node="${WORKERS:-auto}" \
      trainer --config "${CONFIG:-configs/quickstart.yaml}" "$@"
    ;;
esac
exec mpirun "$@"
