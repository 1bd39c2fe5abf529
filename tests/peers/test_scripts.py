"""Users' Python scripts under ddp-run, as they are: torch.distributed over Gloo, and what is built on it."""

import os
import select
import unittest
from pathlib import Path

from support import PATIENCE, PEERS, JobTest, need_torch, signal

need_torch()
LONG = {f"ScriptsUnderDdpRun.test_{name}" for name in ("accelerate_starts_without_its_own_launcher",
                                                       "a_group_forms_again_after_each_death")}


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


def kill_and_wait(pid, others=()):
    """SIGKILL to one process; True when it and the others have ended."""
    handles = [os.pidfd_open(process) for process in (pid, *others)]
    os.kill(pid, signal.SIGKILL)
    ended = [bool(select.select([handle], [], [], PATIENCE)[0]) for handle in handles]
    for handle in handles:
        os.close(handle)
    return all(ended)


class ScriptsUnderDdpRun(JobTest):
    def lines(self, job):
        return sorted(job.out.splitlines())

    def test_two_ranks_train_wherever_their_store_is(self):
        for disabled in (0, 1):
            with self.subTest(disabled=disabled):
                job = self.succeed("--nproc-per-node=2", "--master-addr=localhost", "train.py", "--lr", "0.1",
                                   TORCH_DISABLE_SHARE_RDZV_TCP_STORE=disabled)
                self.assertEqual(self.lines(job), [f"rank {rank} of 2 in attempt 0 trained, with arguments ['--lr', '0.1']"
                                                   for rank in (0, 1)])
                self.assertEqual(job.err, "")

    def test_shared_memory_of_a_failed_rank_is_removed_before_the_restart(self):
        segment = f"ddp-test-{os.getpid()}"
        self.addCleanup(lambda: Path("/dev/shm", segment).unlink(missing_ok=True))
        job = self.succeed("--max-restarts=1", "leaves_memory.py", SEGMENT=segment)
        for pid in job.out.split():
            self.assertEqual(list(Path("/dev/shm").glob(f"torch_{pid}_*")), [])

    def test_a_group_forms_again_after_each_death(self):
        deaths = 2
        job = self.succeed("--nproc-per-node=2", f"--max-restarts={deaths}", "-m", "train", MODE="die", DEATHS=deaths)
        for attempt in range(deaths + 1):
            for rank in (0, 1):
                self.assertIn(f"rank {rank} of 2 in attempt {attempt} trained", job.out)

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

    def test_store_and_workers_end_with_a_launcher_that_is_killed(self):
        job = self.start("--nproc-per-node=2", "train.py", MODE="store is killed")
        self.wait_for_workers(2)
        processes = descendants(job.process.pid)
        self.assertIn("ddp-store", processes.values())
        self.assertEqual(len(processes), 4, processes)  # the agent, the store, two workers
        self.assertTrue(kill_and_wait(job.process.pid, processes))

    def test_accelerate_starts_without_its_own_launcher(self):
        self.need("accelerate")
        job = self.succeed("--nproc-per-node=2", "accelerated.py", PYTHONPATH=PEERS)
        self.assertEqual(self.lines(job), ["rank 0 of 2: 2 batches", "rank 1 of 2: 2 batches"])


if __name__ == "__main__":
    unittest.main()
