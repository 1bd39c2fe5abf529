"""Leaves a file with its rank's name, once it has found what a worker is given."""

import argparse
import os
import sys
from pathlib import Path

GIVEN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE",
         "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID",
         "OMP_NUM_THREADS", "FROM_OUTSIDE")

parser = argparse.ArgumentParser()
parser.add_argument("--into", type=Path)
options = parser.parse_args()

missing = [name for name in GIVEN if name not in os.environ]
if missing:
    raise KeyError(", ".join(missing))
if int(os.environ["RANK"]) >= int(os.environ["WORLD_SIZE"]):
    raise ValueError("rank and world size")
(options.into / os.environ["RANK"]).touch()
sys.stdout.write(f"left {os.environ['RANK']}\n")  # one write: ranks share the pipe
