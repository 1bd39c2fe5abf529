"""Jobs of nodes with addresses and links of their own, whose workers keep a ledger.

Each worker appends a line to a common file every 50 ms: the epoch of its round, its rank, the world size, its host and the
time. A round runs while all of its ranks write. Whatever the faults, no two rounds run at a time, and epochs grow.
"""

import collections
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
import network_hosts as net  # noqa: E402
from network_hosts import PATIENCE, Node, address  # noqa: E402

COUNT = 4
LEDGER = """
while read -r up _ < /proc/uptime; do
  echo "$DDP_ROUND_EPOCH $RANK $WORLD_SIZE $LEDGER_NODE $up" >> "$LEDGER"; sleep 0.05
done"""
Line = collections.namedtuple("Line", "epoch rank world node time")


class Job:
    """The nodes of one job; a node that is started again has its log folder, and so its file of members."""

    backend, conf = "c10d", net.CONF

    def __init__(self, folder, nnodes, endpoints, files=True, more=(), first=":"):
        self.first = first  # what each worker does first
        self.folder, self.nnodes, self.endpoints, self.files, self.more = Path(folder), nnodes, endpoints, files, more
        self.ledger = self.folder / "ledger"
        self.ledger.touch()
        self.nodes, self.past = {}, []

    def start(self, i, *more):
        options = [*self.more, *more]
        if self.files:
            options.append(f"--log-dir={self.folder / f'logs{i}'}")
        worker = f"{self.first}; LEDGER={self.ledger} LEDGER_NODE={i}; {LEDGER}"
        if i in self.nodes:
            self.past.append(self.nodes[i])
        self.nodes[i] = Node(i, self.nnodes, self.endpoints, *options, program=["--no-python", "sh", "-c", worker],
                             backend=self.backend, conf=self.conf)

    def begin(self, count, host=None):
        """`host`: a node at an endpoint; without it, one of those."""
        if host is not None:  # the one that is there first
            self.start(host)
            self.nodes[host].wait("anyone who can connect to .* can join this job")
        for i in set(range(count)) - {host}:
            self.start(i)
        self.wait_for_round(range(count))
        return self

    def epochs(self):
        """Of all rounds that have begun."""
        return {line.epoch for line in self.lines()}

    def kill(self, i):
        self.nodes[i].kill()

    def alive(self):
        return [i for i, node in self.nodes.items() if node.process.poll() is None]

    def agents(self, i):
        """The guardian and its child, the agent."""
        guardian = str(self.nodes[i].process.pid)
        listed = subprocess.run(["ps", "-o", "pid=", "--pid", guardian, "--ppid", guardian], capture_output=True, text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def pause(self, i, seconds):
        pids = self.agents(i)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            if number == signal.SIGSTOP:
                yield
                time.sleep(seconds)

    def processor_time(self, i):
        """In seconds, of a node's guardian and agent, not of its workers."""
        ticks = 0
        for pid in self.agents(i):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def lines(self):
        lines = []
        for text in self.ledger.read_text().splitlines():
            fields = text.split()
            if len(fields) == 5:
                lines.append(Line(*map(int, fields[:4]), float(fields[4])))
        return lines

    def rounds(self):
        """Those that ran: epoch -> (from, to, world)."""
        spans = {}
        for line in self.lines():
            first, last = spans.get((line.epoch, line.rank, line.node, line.world), (line.time, line.time))
            spans[line.epoch, line.rank, line.node, line.world] = min(first, line.time), max(last, line.time)
        by_epoch = collections.defaultdict(dict)
        for (epoch, rank, node, world), span in spans.items():
            if rank in by_epoch[epoch] or any(world != other for _, other in by_epoch[epoch].values()):
                raise AssertionError(f"epoch {epoch:x} has two rounds: rank {rank} on node {node} of {world}")
            by_epoch[epoch][rank] = span, world
        ran = {}
        for epoch, ranks in by_epoch.items():
            world = next(iter(ranks.values()))[1]
            begin, end = max(span[0] for span, _ in ranks.values()), min(span[1] for span, _ in ranks.values())
            if len(ranks) == world and begin <= end:
                ran[epoch] = begin, end, world
        return ran

    def check(self):
        ran = sorted(self.rounds().items())
        for (epoch, (_, end, _)), (later, (begin, _, _)) in zip(ran, ran[1:]):
            if begin < end:  # the same hundredth of a second proves nothing
                raise AssertionError(f"epochs {epoch:x} and {later:x} run at the same time: {ran}")

    def at_work(self):
        """Nodes that have written just now."""
        now = float(Path("/proc/uptime").read_text().split()[0])
        return {line.node for line in self.lines() if line.time > now - 1}

    def wait_for_round_of(self, node):
        """Until it works alone, whatever the workers of an agent that is paused do."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            last = [line for line in self.lines() if line.node == node][-1]
            if last.world == 1:
                return
            time.sleep(0.05)
        raise AssertionError(f"node {node} never works alone\n{self}")

    def wait_for_round(self, nodes, seconds=PATIENCE):
        """Until these, and no others, are at work together."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and set(nodes) <= set(self.alive()):
            now = float(Path("/proc/uptime").read_text().split()[0])
            recent = [line for line in self.lines() if line.time > now - 1.5]
            newest = max((line.epoch for line in recent), default=None)
            at_work = {line.node for line in recent if line.epoch == newest and line.world == len(nodes)}
            if at_work == set(nodes) == {line.node for line in recent}:
                return newest
            time.sleep(0.05)
        raise AssertionError(f"nodes {sorted(nodes)} form no job within {seconds} s\n{self}")

    def __str__(self):
        texts = [f"--- node {i}, ended\n{node.text}" for i, node in enumerate(self.past)]
        texts += [f"--- node {i}, exit code {node.process.poll()}\n{node.read()}" for i, node in self.nodes.items()]
        return "\n".join(texts)

    def end(self):
        for node in [*self.nodes.values(), *self.past]:
            node.end()
        for i in self.nodes:
            net.wait_until_empty(i)


class LedgerTest(unittest.TestCase):
    """Needs root and ip(8); skipped by name otherwise."""

    def setUp(self):
        self.addCleanup(net.tear_down_hosts, COUNT)
        wrong = net.set_up_hosts(COUNT)
        if wrong:
            print(f"[skipped] all of it: no network namespaces here\n  {wrong}", flush=True)
            self.skipTest(wrong)
        self.folder = tempfile.mkdtemp(prefix="ddp_faults_")
        self.addCleanup(shutil.rmtree, self.folder)

    def job(self, nnodes, endpoints=address(0), **how):
        job = Job(tempfile.mkdtemp(dir=self.folder), nnodes, endpoints, **how)
        self.addCleanup(job.end)
        return job
