"""Jobs of several nodes that are hosts of their own: network namespaces with addresses and links of their own.

Needs root and ip(8); skipped by name otherwise. DDP_RUN and TRAINER name the programs (default: build/release/bin).
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from network_hosts import DDP_RUN, PATIENCE, Node, address, link, set_up_hosts, tear_down_hosts  # noqa: E402

TRAINER = os.environ.get("TRAINER", ROOT / "build/release/bin/trainer")
WORKER = 'echo "up $RANK of $WORLD_SIZE round $TORCHELASTIC_RESTART_COUNT at $MASTER_ADDR $PPID $$"; exec sleep 1000'
SHELL = ["--no-python", "sh", "-c", WORKER]
os.environ["OMP_NUM_THREADS"] = "1"  # ddp-run sets it for several ranks of a node alone, and sums depend on it


class Hosts(unittest.TestCase):
    def setUp(self):
        self.nodes = []
        self.addCleanup(tear_down_hosts)
        wrong = set_up_hosts()
        if wrong:
            print(f"[skipped] all of it: no network namespaces here\n  {wrong}", flush=True)
            self.skipTest(wrong)
        self.addCleanup(lambda: [node.end() for node in self.nodes])

    def add(self, i, nnodes, *more, **how):
        self.nodes.append(Node(i, nnodes, address(0), *more, **{"program": SHELL, **how}))
        return self.nodes[-1]

    def begin(self, count, nnodes, *more):
        for i in range(count):
            self.add(i, nnodes, *more)
        # Nodes that come late make a round of their own.
        found = [node.up(count, r"\d+") for node in self.nodes]
        self.assertEqual(sorted(int(one[1]) for one in found), list(range(count)))
        for one in found:
            self.assertRegex(one[2], r"^10\.213\.7\.[1-4]$")

    def test_the_link_of_a_node_is_cut_and_comes_back(self):
        self.begin(3, "1:3")
        link(2, "down")
        for node in self.nodes[:2]:
            node.up(2, r"\d+")
        begun = self.nodes[2].read_to
        self.nodes[2].wait("was lost: it has been silent|gave up on this one|no majority|no other node")
        self.assertNotIn("of 1 round", self.nodes[2].text[begun:])

    def test_the_link_of_the_host_is_cut(self):
        self.begin(3, "1:3")
        link(0, "down")
        for node in self.nodes[1:]:
            node.up(2, r"\d+")
        begun = self.nodes[0].read_to
        self.nodes[0].wait("which is no majority")
        self.assertNotIn("of 1 round", self.nodes[0].text[begun:])

    def test_a_training_whose_node_is_cut_off_ends_as_on_one_machine(self):
        if not Path(TRAINER).exists():
            self.skipTest("trainer is not built")
        folders = [Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ddp_hosts_"))) for _ in range(2)]
        training = [TRAINER, "--config", ROOT / "configs/quickstart.yaml",
                    f"data_config.path={ROOT / 'data/sample_corpus.txt'}", "gpt_config.n_layer=1", "gpt_config.n_embd=32",
                    "trainer_config.max_steps=40", "trainer_config.save_every_steps=5", "trainer_config.snapshot_every=null",
                    "trainer_config.log_every_steps=1", "trainer_config.snapshot_path=snapshot.pt", "hydra.run.dir=."]
        training = [str(word) for word in training]
        subprocess.run([DDP_RUN, "--standalone", "--nproc_per_node=2", *training], cwd=folders[0], check=True,
                       capture_output=True, timeout=PATIENCE)

        # Rank 0 is slow at one step, in which the other node's link goes down for good.
        training.append("trainer_config.fault_plan=['rank=0 step=13 phase=data kind=slow value=3000']")
        for i in range(2):
            self.add(i, "2:2", program=training, folder=folders[1])
        first = self.leader(r"Step 12 ")
        cut = 1 - self.nodes.index(first)
        link(cut, "down")
        self.nodes[cut].wait("was lost: it has been silent|gave up on this one|no majority|no other node|most nodes are silent")
        self.add(2, "2:2", program=training, folder=folders[1])
        for node in (first, self.nodes[2]):
            node.wait_for_end()
            self.assertEqual(node.process.returncode, 0, node.text)
        self.nodes[cut].process.terminate()  # it waits for join_timeout, as it may be the others that are cut off
        self.nodes[cut].wait_for_end()
        for node in self.nodes[:2]:  # by the ranks themselves, long before the grace period is over
            self.assertIn("has been silent", node.text)
            self.assertNotIn("did not stop within", node.text)
        self.assertEqual(*[self.sum_of(folder / "snapshot.pt") for folder in folders])

    def leader(self, pattern):
        """The node that prints this first: rank 0's."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for node in self.nodes:
                if re.search(pattern, node.read()):
                    return node
            select.select([node.process.stdout for node in self.nodes], [], [], 1)
        raise AssertionError("\n".join(node.text for node in self.nodes))

    @staticmethod
    def sum_of(snapshot):
        told = subprocess.run([TRAINER, "inspect", snapshot, "--json"], capture_output=True, text=True, check=True).stdout
        return json.loads(told)["content_sha256"]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
