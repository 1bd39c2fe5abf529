"""Users' Python scripts under ddp-run, as they are: torch.distributed over Gloo. What is built on it: test_clients.py."""

import os
import select
import unittest
from pathlib import Path

from support import PATIENCE, JobTest, need_torch, signal

need_torch()
# A group forms again after a restart where a store is killed, and in test_example.py.
LONG = {"ScriptsUnderDdpRun.test_a_gloo_group_forms_again_after_a_rank_was_killed"}


def descendants(pid):
    """Process ids below `pid`, with their command names."""
    parents, names = {}, {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, rest = Path(f"/proc/{process}/stat").read_text().split(" (", 1)[1].rsplit(") ", 1)
        except OSError:  # it has just ended
            continue
        parents[int(process)], names[int(process)] = int(rest.split()[1]), name

    def below(process):
        while process in parents and process != pid:
            process = parents[process]
        return process == pid

    return {process: name for process, name in names.items() if process != pid and below(process)}


def kill_and_wait(pid):
    """SIGKILL to the process; True when it has ended."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    ended = bool(select.select([handle], [], [], PATIENCE)[0])
    os.close(handle)
    return ended


class ScriptsUnderDdpRun(JobTest):
    def lines(self, job):
        return sorted(job.out.splitlines())

    def test_two_ranks_train_where_one_of_them_serves_the_store(self):
        job = self.succeed("--nproc-per-node=2", "--master-addr=localhost", "train.py", "--lr", "0.1",
                           TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)
        self.assertEqual(self.lines(job), [f"rank {rank} of 2 in attempt 0 trained, with arguments ['--lr', '0.1']"
                                           for rank in (0, 1)])
        self.assertEqual(job.err, "")

    def test_shared_memory_of_a_failed_rank_is_removed_before_the_restart(self):
        segment = f"ddp-test-{os.getpid()}"
        self.addCleanup(lambda: Path("/dev/shm", segment).unlink(missing_ok=True))
        job = self.succeed("--max-restarts=1", "leaves_memory.py", SEGMENT=segment)
        for pid in job.out.split():
            self.assertEqual(list(Path("/dev/shm").glob(f"torch_{pid}_*")), [])

    def test_a_gloo_group_forms_again_after_a_rank_was_killed(self):
        job = self.succeed("--nproc-per-node=2", "--max-restarts=1", "-m", "train", MODE="die")
        self.assertIn("rank 1 of 2 in attempt 0 trained", job.out)
        self.assertRegex(job.err, "killed by SIGKILL.*restart 1 of 1")
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2 in attempt 1 trained", job.out)

    def test_the_line_of_a_script_that_failed_is_named_afterwards(self):
        script = self.folder / "train.py"
        script.write_text("def step():\n    raise ValueError('bad batch')\n\nstep()\n")
        self.assertEqual(self.run_job("--log-dir", self.logs, script).code, 1)
        self.assertIn(f"  look at {script}, line 2, which led to ValueError: bad batch\n",
                      self.succeed("--explain", self.logs).out)

    def test_the_store_outlives_rank_0(self):
        job = self.succeed("--nproc-per-node=2", "train.py", MODE="rank 0 leaves")
        self.assertIn("the store said: served after rank 0\n", job.out)

    def test_a_store_that_is_killed_fails_the_round_and_the_restart_has_a_new_one(self):
        job = self.start("--nproc-per-node=2", "--max-restarts=1", "train.py", MODE="store is killed")
        self.wait_for_workers(2)
        stores = [pid for pid, name in descendants(job.process.pid).items() if name == "ddp-store"]
        self.assertEqual(len(stores), 1)
        self.assertTrue(kill_and_wait(stores[0]))
        self.wait_for_workers(2)  # those of the second round
        os.close(os.open(self.records / "meet", os.O_WRONLY))
        self.assertEqual(job.finish().code, 0, str(job))
        for rank in (0, 1):
            self.assertIn(f"rank {rank} of 2 in attempt 1 trained", job.out)
            self.assertIn(f"rank {rank} went on\n", job.out)
        self.assertRegex(job.err, rf"the workers' store \(pid {stores[0]}\) ended: killed by SIGKILL.*; restart 1 of 1")


if __name__ == "__main__":
    unittest.main()
