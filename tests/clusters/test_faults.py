"""One job, never two: nodes with addresses and links of their own, faults, and workers that keep a ledger.

Each worker appends a line to a common file every 50 ms: the epoch of its round, its rank, the world size, its host and the
time. A round runs while all of its ranks write. Whatever the faults, no two rounds run at a time, and epochs grow.

DDP_FAULT_SEQUENCES (10) random sequences of faults, the first with DDP_FAULT_SEED (1); DDP_FAULT_VERBOSE=1 prints them. Needs
root and ip(8); skipped by name otherwise.
"""

import collections
import os
import random
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


class Faults(unittest.TestCase):
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

    def begin(self, count, *arguments, host=None, **how):
        return self.job(*arguments, **how).begin(count, host)

    # ---- a node that returns ----

    def host_returns(self, nnodes, cut=False, host=0, **how):
        """The host dies with its machine, the others go on; it comes back, and node 3 is started again."""
        job = self.begin(4, nnodes, host=host, **how)
        job.kill(host)
        others = {0, 1, 2, 3} - {host}
        job.wait_for_round(others)
        if cut:
            net.cut(host, self.next_host(job))
        job.start(host)
        job.kill(3)
        time.sleep(3 if cut else 0)
        job.start(3)
        for i in others:
            net.heal(host, i)
        job.wait_for_round({0, 1, 2, 3})
        job.check()
        job.end()

    def next_host(self, job):
        """The node that took the place of a host that was lost."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for i in job.alive():
                if "this node hosts" in job.nodes[i].read():
                    return i
            time.sleep(0.05)
        raise AssertionError(f"no node has become the next host within {PATIENCE} s\n{job}")

    def test_a_host_that_returns_to_the_endpoint_joins_the_job_that_goes_on(self):
        for nnodes in ("2:4", "1:4"):
            self.host_returns(nnodes, files=False)

    def test_a_host_that_returns_while_the_present_one_dies_finds_the_next(self):
        job = self.begin(4, "2:4", files=False, first="trap '' TERM", more=["--shutdown-timeout=3"])
        job.kill(0)
        job.wait_for_round({1, 2, 3})
        host = self.next_host(job)
        job.start(0)
        job.nodes[0].wait("this node waits to join it")
        job.nodes[host].wait("joins; restarting the workers with it")
        job.kill(host)  # node 0 has joined it, and no round since
        job.wait_for_round({0, 1, 2, 3} - {host}, seconds=60)
        job.start(host)
        job.wait_for_round({0, 1, 2, 3}, seconds=60)
        job.check()

    def test_a_host_that_returns_and_cannot_reach_the_present_one_asks_the_last_members(self):
        self.host_returns("1:4", cut=True)

    def test_a_host_that_returns_and_cannot_reach_the_present_one_asks_the_other_endpoints(self):
        for host in (0, 2):
            self.host_returns("1:4", cut=True, host=host, files=False, endpoints=",".join(address(i) for i in range(3)))

    def test_a_pod_that_returns_under_another_address_is_found_by_its_name(self):
        names = {"pod0": address(0), "pod1": address(1), "pod2": address(2), "pod3": address(3)}
        net.name_hosts(COUNT, names)
        job = self.job("2:3", "pod0")
        for i in range(3):
            job.start(i, f"--local-addr={address(i)}")
        job.wait_for_round({0, 1, 2})
        job.kill(0)
        job.wait_for_round({1, 2})
        net.name_hosts(COUNT, {**names, "pod0": address(3)})
        job.start(3, f"--local-addr={address(3)}")  # a new node that hosts, as the name is its own
        job.wait_for_round({1, 2, 3})
        job.check()

    def test_two_nodes_one_of_which_was_restarted_go_on_after_its_silence(self):
        job = self.begin(2, "1:2")
        net.cable(0, "down")
        job.nodes[1].wait("which is no majority")
        job.kill(0)  # and its memory with it, but for the file
        net.cable(0, "up")
        job.start(0)
        job.wait_for_round({0, 1})
        job.check()

    def test_a_host_that_went_on_alone_and_was_restarted_forms_one_job_with_the_node_that_waits(self):
        job = self.begin(2, "1:2", ",".join(address(i) for i in range(2)), host=0)
        net.cut(0, 1)
        job.nodes[1].wait("which is no majority")
        job.wait_for_round_of(0)
        job.kill(0)
        job.start(0)
        job.nodes[0].wait("no answer; the job may be running there")
        net.heal(0, 1)
        job.wait_for_round({0, 1}, seconds=60)
        job.check()

    def test_a_node_that_went_on_alone_is_sent_from_the_endpoint_to_the_node_that_waits(self):
        job = self.begin(3, "1:3", host=0)
        job.kill(0)
        job.wait_for_round({1, 2})
        host = self.next_host(job)
        other = 3 - host
        net.cut(host, other)
        job.nodes[other].wait("which is no majority")
        job.wait_for_round_of(host)
        job.kill(host)
        job.start(0)
        job.nodes[0].wait("that node has lost the host of the job none and looks for the next one")
        net.heal(host, other)
        job.start(host)
        job.wait_for_round({0, 1, 2}, seconds=60)
        job.check()

    # ---- several endpoints ----

    def test_the_endpoint_that_is_there_first_hosts_and_the_others_find_it(self):
        endpoints = ",".join(address(i) for i in range(3))
        for order in ((2, 1, 0, 3), (0, 1, 2, 3), (3, 1, 2, 0)):
            job = self.job("4", endpoints, files=False)
            for i in order:
                job.start(i)
            job.wait_for_round({0, 1, 2, 3})
            self.assertEqual(len(job.epochs()), 1, str(job))
            job.end()

    def test_an_endpoint_that_is_silent_keeps_a_new_job_from_beginning(self):
        net.cut(0, 1)
        job = self.job("1:2", f"{address(0)},{address(1)}", files=False)
        job.start(0)
        job.start(1)
        for i in (0, 1):
            job.nodes[i].wait("waiting for 600 s at most: 10.213.7.[12]:29400: no answer; the job may be running there")
        self.assertEqual(job.lines(), [])
        net.heal(0, 1)
        job.wait_for_round({0, 1})
        job.check()

    # ---- connections and pauses ----

    def test_connections_that_are_reset_by_the_kernel_stop_nobody(self):
        for nnodes in ("1:4", "2:4"):
            job = self.begin(4, nnodes)
            before = job.epochs()
            for _ in range(3):
                for i in (1, 0, 3):
                    net.reset(i)
                    time.sleep(0.3)
            job.wait_for_round({0, 1, 2, 3})
            self.assertEqual(job.epochs(), before, str(job))
            job.end()

    def test_the_host_is_killed_while_its_first_successor_is_paused(self):
        job = self.begin(3, "1:3")
        successor = sorted((line.rank, line.node) for line in job.lines() if line.node != 0)[0][1]
        for _ in job.pause(successor, 9):
            job.kill(0)
        job.wait_for_round({1, 2})
        job.check()

    def test_spares_go_on_with_the_next_host(self):
        job = self.begin(2, "2:2")
        job.start(2)
        job.nodes[2].wait("this one waits as a spare")
        job.kill(0)
        job.wait_for_round({1, 2})
        job.check()

    # ---- a fixed number of nodes ----

    def test_without_restarts_a_lost_node_ends_a_job_of_a_fixed_number_of_nodes_everywhere(self):
        for lost, silently, why in ((1, False, "was lost|leaves the job"), (1, True, "was lost: it has been silent"),
                                    (0, False, "the host of the rendezvous was lost"), (0, True, "the host of the rendezvous")):
            job = self.begin(3, "3", files=False)
            if silently:
                net.cable(lost, "down")
            else:
                job.kill(lost)
            began = time.monotonic()
            for i in {0, 1, 2} - {lost}:
                self.assertEqual(job.nodes[i].wait_for_end(), 1, str(job))
                self.assertRegex(job.nodes[i].text, why)
                self.assertIn("--nnodes=3 needs every node, and --max-restarts=0 allows no restart", job.nodes[i].text)
            self.assertLess(time.monotonic() - began, 20, str(job))
            net.cable(lost, "up")
            job.end()

    def test_with_restarts_left_the_others_wait_for_a_lost_node_and_say_so(self):
        job = self.begin(2, "2", more=["--max-restarts=1"])
        job.kill(1)
        job.nodes[0].wait(r"waiting 600 s at most \(--rdzv-conf=join_timeout\) for another in its place, as --nnodes needs 2: "
                          r"node 1, \S+ \(10.213.7.2\) (was lost|leaves the job)")
        job.start(1)
        job.wait_for_round({0, 1})
        job.check()

    def test_nodes_that_wait_for_others_sleep(self):
        job = self.begin(4, "3:4", more=["--max-restarts=1"])
        for left in (0, 1):
            for right in (2, 3):
                net.cut(left, right)
        for i, why in ((0, "waiting 600 s at most"), (2, "which is no majority"), (3, "the host of the rendezvous, .* was lost")):
            job.nodes[i].wait(why)
        time.sleep(5)  # what is due soon after a loss
        before = [job.processor_time(i) for i in range(4)]
        time.sleep(3)
        for i, was in enumerate(before):
            self.assertLess(job.processor_time(i) - was, 0.5, f"node {i} is busy\n{job}")

    def test_a_flapping_node_ends_few_rounds(self):
        job = self.begin(2, "1:3")
        for _ in range(10):
            job.start(2)
            time.sleep(0.4)
            job.kill(2)
        job.wait_for_round({0, 1})
        self.assertLess(len(job.epochs()), 7, str(job))
        job.check()

    def test_nodes_with_other_rules_for_restarts_are_refused(self):
        job = self.begin(2, "2:3", more=["--restart-policy=on-crash,retry=3"])
        job.more = ["--restart-policy=on-crash,retry=4"]
        job.start(2)
        job.nodes[2].wait_for_end()
        self.assertIn("--restart-policy is on-crash,retry=4 here and on-crash,retry=3 on the host of the rendezvous",
                      job.nodes[2].text)

    # ---- random ----

    def test_random_faults(self):
        first = int(os.environ.get("DDP_FAULT_SEED", "1"))
        for seed in range(first, first + int(os.environ.get("DDP_FAULT_SEQUENCES", "10"))):
            with self.subTest(seed=seed):
                RandomFaults(self, seed).run()


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


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
