"""The examples under a real Slurm with several virtual nodes: Debian's slurm-wlm, started for this test."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

import local_slurm
from support import EXAMPLES, PATIENCE, ExampleTest

if local_slurm.missing_programs():
    print(f"not installed: {', '.join(local_slurm.missing_programs())}; apt-get install slurm-wlm munge")
    print("[skipped] all of it: no Slurm here")
    sys.exit(0)

# Saves and exits as the trainer does when it is asked to.
SAVES = """#!/bin/sh
trap 'echo saved >> "$NOTES.saved"; exit 75' USR1 TERM
echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE id=$TORCHELASTIC_RUN_ID args=" >> "$NOTES"
[ -e "$NOTES.saved" ] && exit 0
while :; do sleep 0.1; done
"""


class Slurm(ExampleTest):
    @classmethod
    def setUpClass(cls):
        cls.slurm = local_slurm.LocalSlurm(3)
        cls.addClassCleanup(cls.slurm.stop)

    def slurm_environment(self):
        return {"NOTES": str(self.notes), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder),
                "PATH": f"{self.bin}:{self.slurm.environment['PATH']}"}

    def srun(self, *words):
        return self.slurm.command("srun", *words, **self.slurm_environment())

    def submit(self, name, *options):
        """An example without the lines that ask for GPUs, which no node has here."""
        text = re.sub(r"#SBATCH --(gpus|cpus|time|signal).*\n", "", (EXAMPLES / "slurm" / name).read_text())
        script = self.folder / name
        # Its stand-in for trainer is a script, whose 75 means nothing to ddp-run by itself.
        script.write_text(text.replace("--scheduler=slurm", "--scheduler=slurm --restart-policy=final=75"))
        run = self.slurm.command("sbatch", "--parsable", f"--output={self.folder}/out", *options, str(script),
                                 **self.slurm_environment())
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout.strip()

    def state(self, job):
        text = self.slurm.command("scontrol", "show", "job", job).stdout
        return re.search(r"JobState=(\S+)", text)[1], int(re.search(r"Restarts=(\d+)", text)[1])

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what}\n{self.notes.read_text()}\n{self.output()}\n{self.slurm.logs()}")
            time.sleep(0.05)

    def output(self):
        file = self.folder / "out"
        return file.read_text() if file.exists() else ""

    def test_srun_starts_one_job_over_all_nodes(self):
        run = self.srun("-N3", "--ntasks-per-node=1", "ddp-run", "--scheduler=slurm", "--nproc-per-node=2", "trainer")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual([worker["rank"] for worker in self.noted()], list("012345"))
        self.assertEqual(run.stderr.count("from Slurm:"), 1)

    def test_a_step_on_some_nodes_of_an_allocation(self):
        run = self.slurm.command("salloc", "-N3", "srun", "-N2", "--ntasks-per-node=1", "ddp-run", "--scheduler=auto",
                                 "trainer", **self.slurm_environment())
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual({worker["world"] for worker in self.noted()}, {"2"})

    def test_too_many_tasks_are_refused_with_the_fix(self):
        run = self.srun("-N2", "--ntasks-per-node=2", "ddp-run", "--scheduler=slurm", "trainer")
        self.assertEqual(run.returncode, 2)
        self.assertIn("write srun --ntasks-per-node=1", run.stderr)

    def test_a_heterogeneous_job_is_refused_with_the_fix(self):
        run = self.srun("-N1", "ddp-run", "--scheduler=slurm", "trainer", ":", "-N1", "ddp-run", "--scheduler=slurm", "trainer")
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("SLURM_HET_SIZE=2: the components of a heterogeneous job do not form one job", run.stderr)
        self.assertEqual(self.noted(), [])

    def test_a_forgotten_option_is_hinted_at(self):
        run = self.srun("-N2", "--ntasks-per-node=1", "ddp-run", "trainer")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("add --scheduler=slurm", run.stderr)
        self.assertEqual({worker["world"] for worker in self.noted()}, {"1"})

    def test_a_worker_that_fails_ends_the_step_with_its_code(self):
        self.fake("trainer", '#!/bin/sh\n[ "$RANK" = 1 ] && exit 9\nexec sleep 1000\n')
        run = self.srun("-N2", "--ntasks-per-node=1", "ddp-run", "--scheduler=slurm", "trainer")
        self.assertEqual(run.returncode, 9, run.stderr)
        self.assertIn("exitcode  : 9", run.stderr)

    def test_usr1_before_the_limit_saves_requeues_and_the_job_goes_on(self):
        self.fake("trainer", SAVES)
        job = self.submit("train.sbatch")
        self.until("both ranks run", lambda: len(self.noted()) == 2)
        sent = self.slurm.command("scontrol", "show", "job", job)
        self.assertIn("JobState=RUNNING", sent.stdout)
        subprocess.run(["scancel", "--signal=USR1", job], env=self.slurm.environment, check=True)
        self.until("requeued", lambda: self.state(job)[1] == 1)
        self.assertEqual((self.folder / "notes.saved").read_text(), "saved\n" * 2)
        # It may begin again only after two minutes, unless it is told to; slurmd takes a launch within the second of the
        # end for one of the job that has ended.
        self.until("told to begin", lambda: self.slurm.command(
            "scontrol", "update", f"JobId={job}", "StartTime=now+2seconds").returncode == 0)
        self.until("completed", lambda: self.state(job)[0] == "COMPLETED")
        self.assertEqual({worker["id"] for worker in self.noted()}, {f"{job}.0", f"{job}.0-r1"})
        self.assertIn("preempted, state saved", self.output())

    def test_the_elastic_job_loses_a_node_and_goes_on(self):
        self.fake("trainer", """#!/bin/sh
echo "rank=$RANK local=$LOCAL_RANK world=$WORLD_SIZE id=$TORCHELASTIC_RUN_ID args=$(ps -o ppid= $PPID)" >> "$NOTES"
[ "$WORLD_SIZE" = 2 ] && exit 0
exec sleep 1000
""")
        job = self.submit("elastic.sbatch", "--nodes=3")
        # The fourth node never comes: the group is complete after the last call.
        self.until("three ranks run", lambda: len(self.noted()) == 3)
        guardian = next(int(worker["args"]) for worker in self.noted() if worker["rank"] == "2")
        os.kill(guardian, signal.SIGKILL)
        self.until("completed", lambda: self.state(job)[0] not in ("RUNNING", "PENDING", "COMPLETING"))
        self.assertEqual({worker["world"] for worker in self.noted()[-2:]} | {self.noted()[0]["world"]}, {"2", "3"})


if __name__ == "__main__":
    unittest.main()
