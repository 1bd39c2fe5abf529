"""One job, never two: sequences of faults that are drawn; see ledger_job.py. DDP_FAULT_SEQUENCES (10) of them, the first with
DDP_FAULT_SEED (1); DDP_FAULT_VERBOSE=1 prints them.
"""

import os
import random
import signal
import sys
import time
import unittest

import ledger_job
import network_hosts as net
from network_hosts import address

COUNT = ledger_job.COUNT


class RandomFaults:
    def __init__(self, test, seed):
        self.random, self.told = random.Random(seed), [f"seed {seed}"]
        self.count = self.random.randint(2, COUNT)
        least = self.random.randint(1, max(1, self.count // 2))
        endpoints = ",".join(address(i) for i in range(self.random.randint(1, min(3, self.count))))
        self.say(f"{least}:{self.count} at {endpoints}")
        self.job = test.job(f"{least}:{self.count}", endpoints)

    def say(self, text):
        self.told.append(text)
        if os.environ.get("DDP_FAULT_VERBOSE") == "1":
            print(f"  {text}", flush=True)

    def run(self):
        job = self.job
        try:
            for i in range(self.count):
                job.start(i)
            job.wait_for_round(range(self.count))
            for _ in range(self.random.randint(2, 6)):
                self.fail()
                time.sleep(self.random.uniform(0, 4))
            self.settle()
            job.check()
        except AssertionError as error:
            raise AssertionError("\n".join([*self.told, str(error), str(job)])) from None
        finally:
            self.heal()
            job.end()

    def heal(self):
        for a in range(COUNT):
            net.cable(a, "up")
            for b in range(a):
                net.heal(a, b)

    def settle(self):
        """Once nothing fails any more, all nodes form one job again."""
        self.say("nothing fails any more")
        self.heal()
        for i in range(self.count):
            if i not in self.job.alive():
                self.job.start(i)
        self.job.wait_for_round(range(self.count), seconds=60)

    def fail(self):
        a = self.random.randrange(self.count)
        b = (a + self.random.randrange(1, self.count)) % self.count
        kind = self.random.choice(["cable", "blink", "cut", "reset", "pause", "kill", "return", "heal", "partition"])
        alive = self.job.alive()
        self.say(f"{kind} {a} {b}")
        if kind == "cable":
            net.cable(a, "down")
        elif kind == "blink":  # all packets are lost, for less or more than it takes to be given up
            net.cable(a, "down")
            time.sleep(self.random.uniform(0.1, 3))
            net.cable(a, "up")
        elif kind == "cut":
            net.cut(a, b)
        elif kind == "reset":
            net.reset(a)
        elif kind == "pause" and a in alive:
            for _ in self.job.pause(a, self.random.uniform(0.1, 5)):
                pass
        elif kind == "kill" and a in alive and len(alive) > 1:
            self.job.kill(a)
        elif kind == "return":
            for i in set(range(self.count)) - set(alive):
                self.job.start(i)
        elif kind == "heal":
            self.heal()
        elif kind == "partition":
            left = {i for i in range(self.count) if self.random.random() < 0.5}
            for one in left:
                for other in set(range(self.count)) - left:
                    net.cut(one, other)


class Sequences(ledger_job.LedgerTest):
    def test_random_faults(self):
        first = int(os.environ.get("DDP_FAULT_SEED", "1"))
        for seed in range(first, first + int(os.environ.get("DDP_FAULT_SEQUENCES", "10"))):
            with self.subTest(seed=seed):
                RandomFaults(self, seed).run()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
