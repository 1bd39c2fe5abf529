"""torchft under ddp-run and under torchrun: two replica groups over Gloo, each a launcher of its own, and a lighthouse.

What trains undisturbed under torchrun loses a replica under ddp-run, which starts it again: it goes on from the other
replica's weights, and the end is the same.
"""

import os
import subprocess
import unittest
from pathlib import Path

from support import PEERS, PYTHON, TORCHRUN, JobTest, need_torch

need_torch()


class Replicas(JobTest):
    patience = 240

    def lighthouse(self):
        process = subprocess.Popen([PYTHON, Path(__file__).with_name("lighthouse.py")], text=True,
                                   env={**os.environ, "PYTHONPATH": PEERS}, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.communicate)  # also ends its input
        address = process.stdout.readline().strip()
        self.assertTrue(address, "no lighthouse")
        return address

    def results(self, launcher, *options, **variables):
        self.launcher = launcher
        lighthouse = self.lighthouse()
        jobs = [self.start("--standalone", "--nproc-per-node=1", *options, "torchft_replica.py", PYTHONPATH=PEERS,
                           TORCHFT_LIGHTHOUSE=lighthouse, REPLICA=replica, **variables) for replica in range(2)]
        for job in jobs:
            self.assertEqual(job.finish(self.patience).code, 0, str(job))
        return [(self.records / f"replica {replica}").read_text() for replica in range(2)]

    def test_a_killed_replica_goes_on_from_the_others_weights_and_the_end_is_that_of_an_undisturbed_run(self):
        self.need("torchft")
        undisturbed = self.results(TORCHRUN)
        self.assertRegex(undisturbed[0], r"^attempt 0, steps 0 to 5, weights \[")
        self.assertEqual(undisturbed[1], undisturbed[0])
        crashed = self.results(JobTest.launcher, "--max-restarts=1", CRASH=1)
        self.assertEqual(crashed, [undisturbed[0], undisturbed[1].replace("attempt 0, steps 0", "attempt 1, steps 3")])


if __name__ == "__main__":
    unittest.main()
