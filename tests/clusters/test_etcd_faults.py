"""One job, never two, with etcd as the authority: four nodes and an etcd cluster of three, each with an address and links of
its own (see ledger_job.py). DDP_ETCD_SEQUENCES (5) random sequences of faults from DDP_FAULT_SEED (1) on. Needs root, ip(8)
and etcd; skipped by name otherwise.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
import etcd_server  # noqa: E402
import ledger_job  # noqa: E402
import network_hosts as net  # noqa: E402
import test_random_faults  # noqa: E402
from network_hosts import address  # noqa: E402

NODES, SERVERS = range(4), range(4, 7)
HOSTS = 7


class EtcdJob(ledger_job.Job):
    backend, conf = "etcd", f"{net.CONF},lease_ttl=3"


class EtcdFaults(unittest.TestCase):
    def setUp(self):
        wrong = etcd_server.missing()
        self.addCleanup(net.tear_down_hosts, HOSTS)
        wrong = wrong or net.set_up_hosts(HOSTS)
        if wrong:
            print(f"[skipped] all of it: no network namespaces or no etcd here\n  {wrong}", flush=True)
            self.skipTest(wrong)
        self.folder = tempfile.mkdtemp(prefix="ddp_faults_")
        self.addCleanup(shutil.rmtree, self.folder)
        cluster = {f"e{i}": address(i) for i in SERVERS}
        self.servers = {}
        for i in SERVERS:
            self.servers[i] = etcd_server.Etcd(self.folder, f"e{i}", address(i), 2379, cluster, inside=["ip", "netns", "exec", net.host(i)])
            self.addCleanup(self.servers[i].kill)
        self.wait_for_servers()

    def wait_for_servers(self):
        for server in self.servers.values():
            server.wait()

    @property
    def endpoints(self):
        return ",".join(server.endpoint for server in self.servers.values())

    def job(self, nnodes, endpoints=None, **how):
        job = EtcdJob(tempfile.mkdtemp(dir=self.folder), nnodes, self.endpoints, files=False, more=["--rdzv-id=faults"], **how)
        self.addCleanup(job.end)
        return job

    def begin(self, count, nnodes):
        return self.job(nnodes).begin(count)

    def leader(self):
        for i, server in self.servers.items():
            status = json.loads(server.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
            if status["leader"] == status["header"]["member_id"]:
                return i
        raise AssertionError("etcd has no leader")

    def host_of(self, job):
        """The node that hosts the job, as etcd has it."""
        alive = next(server for server in self.servers.values() if server.process.poll() is None)
        place = alive.ctl("get", "--print-value-only", "/torchelastic/p2p/faults/host")
        found = re.search(r'"address":"10\.213\.7\.(\d+)"', place)
        self.assertTrue(found, f"{place}\n{job}")
        return int(found[1]) - 1

    def test_etcds_leader_is_killed(self):
        job = self.begin(3, "2:4")
        before = job.epochs()
        leader = self.leader()
        self.servers[leader].kill()
        time.sleep(5)
        self.assertEqual(job.epochs(), before, str(job))
        job.kill(self.host_of(job))
        job.wait_for_round(set(job.alive()))
        self.servers[leader].start()
        job.start(3)
        job.wait_for_round(set(job.alive()))
        job.check()

    def test_a_server_of_etcd_that_is_cut_off_from_the_others_is_passed_over(self):
        job = self.begin(2, "1:3")
        for other in (5, 6):
            net.cut(4, other)
        job.start(2)
        job.wait_for_round({0, 1, 2})
        job.kill(self.host_from(job, 5))
        job.wait_for_round(set(job.alive()))
        job.check()

    def host_from(self, job, server):
        place = self.servers[server].ctl("get", "--print-value-only", "/torchelastic/p2p/faults/host")
        return int(re.search(r'"address":"10\.213\.7\.(\d+)"', place)[1]) - 1

    def test_a_host_that_is_cut_off_from_everything_waits_while_the_others_go_on(self):
        job = self.begin(3, "1:3")
        host = self.host_of(job)
        net.cable(host, "down")
        deadline = time.monotonic() + net.PATIENCE
        while job.at_work() != set(range(3)) - {host} and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(4)
        job.wait_for_round(set(range(3)) - {host})
        net.cable(host, "up")
        job.wait_for_round({0, 1, 2})
        job.check()

    def test_a_host_that_is_cut_off_from_etcd_alone_keeps_its_round_until_another_one_is_needed(self):
        job = self.begin(3, "1:3")
        before = job.epochs()
        host = self.host_of(job)
        for server in SERVERS:
            net.cut(host, server)
        job.nodes[host].wait("etcd does not answer")
        time.sleep(5)
        self.assertEqual(job.epochs(), before, str(job))
        job.kill((host + 1) % 3)
        time.sleep(5)
        for server in SERVERS:
            net.heal(host, server)
        job.wait_for_round(set(job.alive()))
        job.check()

    def test_etcd_without_a_quorum_stops_no_round_and_begins_none(self):
        job = self.begin(2, "1:3")
        before = job.epochs()
        for i in (4, 5):
            self.servers[i].kill()
        job.start(2)
        job.nodes[2].wait("waiting for etcd")
        time.sleep(10)
        self.assertEqual(job.epochs(), before, str(job))
        for i in (4, 5):
            self.servers[i].start()
        job.wait_for_round({0, 1, 2})
        job.check()

    def test_random_faults(self):
        first = int(os.environ.get("DDP_FAULT_SEED", "1"))
        for seed in range(first, first + int(os.environ.get("DDP_ETCD_SEQUENCES", "5"))):
            with self.subTest(seed=seed):
                RandomEtcdFaults(self, seed).run()


class RandomEtcdFaults(test_random_faults.RandomFaults):
    """Those of nodes and their links, and of one server of etcd at a time."""

    def __init__(self, test, seed):
        self.servers = test.servers
        super().__init__(test, seed)

    def fail(self):
        if self.random.random() < 0.7:
            return super().fail()
        self.heal_servers()
        server = self.random.choice(list(SERVERS))
        kind = self.random.choice(["kill", "cable", "cut"])
        self.say(f"etcd {kind} {server}")
        if kind == "kill":
            self.servers[server].kill()
        elif kind == "cable":
            net.cable(server, "down")
        else:
            for other in set(SERVERS) - {server}:
                net.cut(server, other)

    def heal_servers(self):
        for i in SERVERS:
            net.cable(i, "up")
            for other in range(i):
                net.heal(i, other)
            if self.servers[i].process.poll() is not None:
                self.servers[i].start()

    def heal(self):
        super().heal()
        self.heal_servers()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
