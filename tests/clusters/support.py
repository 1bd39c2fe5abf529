"""The examples as their users start them, with programs that pretend."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DDP_RUN = Path(os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run"))
PATIENCE = 90

# Stands in for the trainer: notes its rank, and ends as the file `outcome` says.
TRAINER = """#!/bin/sh
echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE id=$TORCHELASTIC_RUN_ID args=$*" >> "$NOTES"
[ -e "$NOTES.outcome" ] || exit 0
exit "$(cat "$NOTES.outcome")"
"""

# Starts its command once a node, as srun with one task for each does; fails as the first that fails.
SRUN = """#!/bin/bash
echo "srun $*" >> "$NOTES.srun"
while [[ $1 == --* ]]; do shift; done
pids=()
for node in 0 1; do
  SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST='127.0.0.[1,1]' \\
    SLURM_NODEID=$node "$@" &
  pids+=($!)
done
trap 'kill -TERM "${pids[@]}"' TERM
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit $code
"""
JOB = {"SLURM_JOB_ID": "{}", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "127.0.0.[1,1]"}
SCONTROL = '#!/bin/sh\necho "$*" >> "$NOTES.scontrol"\n[ "$1" = show ] && echo 127.0.0.1\nexit 0\n'


class ExampleTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        (self.bin / "ddp-run").symlink_to(DDP_RUN)
        self.notes = self.folder / "notes"
        self.notes.write_text("")
        self.fake("trainer", TRAINER)

    def fake(self, name, text):
        """A command found before any real one."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "OMPI_"))}
        return {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "NOTES": str(self.notes),
                "TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1", **more}

    def run_example(self, *command, cwd=ROOT, **environment):
        return subprocess.run([str(word) for word in command], cwd=cwd, env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)

    def noted(self):
        """One dictionary for each worker, by rank."""
        lines = self.notes.read_text().splitlines()
        workers = [dict(word.split("=", 1) for word in line.split(" ", 4)) for line in lines]
        return sorted(workers, key=lambda worker: int(worker["rank"]))
