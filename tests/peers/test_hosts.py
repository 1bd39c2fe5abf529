"""Jobs of several nodes that are hosts of their own: network namespaces with addresses and links of their own.

Needs root and ip(8); skipped by name otherwise. DDP_RUN and TRAINER name the programs (default: build/release/bin).
"""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run")
TRAINER = os.environ.get("TRAINER", ROOT / "build/release/bin/trainer")
PATIENCE = 180
NAME = f"d{os.getpid() % 100000}"
WORKER = 'echo "up $RANK of $WORLD_SIZE round $TORCHELASTIC_RESTART_COUNT at $MASTER_ADDR $PPID $$"; exec sleep 1000'
SHELL = ["--no-python", "sh", "-c", WORKER]
os.environ["OMP_NUM_THREADS"] = "1"  # ddp-run sets it for several ranks of a node alone, and sums depend on it
CONF = "keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=2"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


def host(i):
    return f"{NAME}h{i}"


def address(i):
    return f"10.213.7.{i + 1}"


def tear_down_hosts():
    for i in range(4):
        ip("netns", "del", host(i))
    ip("netns", "del", f"{NAME}s")


def set_up_hosts():
    """One switch, in a namespace of its own, and four hosts; what is wrong, or None."""
    if not shutil.which("ip"):
        return "no ip(8)"
    commands = [["netns", "add", f"{NAME}s"], ["-n", f"{NAME}s", "link", "add", "br0", "type", "bridge"],
                ["-n", f"{NAME}s", "link", "set", "br0", "up"]]
    for i in range(4):
        at_host, at_switch = ["-n", host(i)], ["-n", f"{NAME}s"]
        commands += [["netns", "add", host(i)],
                     [*at_host, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{i}", "netns", f"{NAME}s"],
                     [*at_switch, "link", "set", f"p{i}", "master", "br0", "up"],
                     [*at_host, "addr", "add", f"{address(i)}/24", "dev", "eth0"],
                     [*at_host, "link", "set", "eth0", "up"], [*at_host, "link", "set", "lo", "up"]]
    for command in commands:
        done = ip(*command)
        if done.returncode != 0:
            return f"ip {' '.join(command)}: {done.stderr.strip()}"
    return None


class Node:
    def __init__(self, i, nnodes, endpoint, *more, program=SHELL, folder=None):
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host(i), str(DDP_RUN), f"--nnodes={nnodes}", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={endpoint}:29400", f"--rdzv-conf={CONF}", *more, *program], cwd=folder,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text, self.read_to = "", 0

    def wait(self, pattern):
        """The next match, behind the last one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern).search(self.text, self.read_to)
            if found:
                self.read_to = found.end()
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"no '{pattern}' in:\n{self.text}")
            data = self.process.stdout.read()
            if data == b"":
                raise AssertionError(f"ended without '{pattern}':\n{self.text}")
            self.text += data.decode(errors="replace")

    def up(self, world, round_):
        return self.wait(rf"up (\d+) of {world} round {round_} at (\S+) (\d+) (\d+)\n")

    def wait_for_end(self):
        deadline = time.monotonic() + PATIENCE
        os.set_blocking(self.process.stdout.fileno(), False)
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                self.text += (self.process.stdout.read() or b"").decode(errors="replace")
        self.text += (self.process.stdout.read() or b"").decode(errors="replace")
        if self.process.poll() is None:
            raise AssertionError(f"did not end:\n{self.text}")

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


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
        self.nodes.append(Node(i, nnodes, address(0), *more, **how))
        return self.nodes[-1]

    def begin(self, count, nnodes, *more):
        for i in range(count):
            self.add(i, nnodes, *more)
        found = [node.up(count, 0) for node in self.nodes]
        self.assertEqual(sorted(int(one[1]) for one in found), list(range(count)))
        return [{"rank": int(one[1]), "master": one[2], "agent": int(one[3]), "worker": int(one[4])} for one in found]

    def link(self, i, state):
        self.assertEqual(ip("-n", host(i), "link", "set", "eth0", state).returncode, 0)

    def test_a_worker_is_killed_and_all_start_again(self):
        seen = self.begin(2, "2", "--max-restarts=1")
        self.assertRegex(seen[0]["master"], r"^10\.213\.7\.[12]$")
        os.kill(seen[1]["worker"], signal.SIGKILL)
        for node in self.nodes:
            node.wait("restart 1 of 1")
            node.up(2, 1)

    def test_an_agent_is_killed_and_a_third_node_joins(self):
        seen = self.begin(2, "1:2")
        os.kill(seen[1]["agent"], signal.SIGKILL)
        self.nodes[0].up(1, 1)
        self.add(2, "1:2").up(2, 2)
        self.nodes[0].up(2, 2)

    def test_the_host_of_the_rendezvous_is_killed(self):
        seen = self.begin(3, "2:3")
        os.kill(seen[0]["agent"], signal.SIGKILL)
        for node in self.nodes[1:]:
            found = node.up(2, 1)
            self.assertIn(found[2], (address(1), address(2)))

    def test_the_link_of_a_node_is_cut_and_comes_back(self):
        self.begin(3, "1:3")
        self.link(2, "down")
        for node in self.nodes[:2]:
            node.up(2, 1)
        self.nodes[2].wait("was lost: it has been silent|gave up on this one|no majority|no other node")
        self.assertNotIn("of 1 round", self.nodes[2].text)

    def test_the_link_of_the_host_is_cut(self):
        self.begin(3, "1:3")
        self.link(0, "down")
        for node in self.nodes[1:]:
            node.up(2, 1)
        self.nodes[0].wait("which is no majority")
        self.assertNotIn("of 1 round", self.nodes[0].text)

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
        self.link(cut, "down")
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
                node.text += (node.process.stdout.read() or b"").decode(errors="replace")
                if re.search(pattern, node.text):
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
