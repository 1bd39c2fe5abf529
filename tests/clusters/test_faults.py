"""One job, never two: what has once made two of one job, or kept one from forming; see ledger_job.py. test_random_faults.py has
sequences that are drawn.
"""

import signal
import sys
import time
import unittest

import ledger_job
import network_hosts as net
from network_hosts import PATIENCE, Node, address

COUNT = ledger_job.COUNT


class Faults(ledger_job.LedgerTest):
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

    def test_a_host_is_found_by_the_name_of_the_endpoint_once_it_leads_there(self):
        net.name_hosts(COUNT, {"first": address(0)})
        job = self.job("2:3", "first")
        for i in range(3):
            job.start(i)
        job.wait_for_round({0, 1, 2})
        job.kill(0)
        job.wait_for_round({1, 2})
        net.name_hosts(COUNT, {"first": address(self.next_host(job))})
        job.start(3)
        job.wait_for_round({1, 2, 3}, seconds=60)
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

    def test_a_node_whose_host_was_started_again_without_memory_says_what_to_do(self):
        job = self.begin(2, "1:2", files=False)
        net.cable(0, "down")
        job.nodes[1].wait("which is no majority")
        job.kill(0)
        net.cable(0, "up")
        job.start(0)
        job.nodes[1].wait("has forgotten the job .*: start all nodes again")

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

    def test_spares_go_on_with_the_next_host(self):
        job = self.begin(2, "2:2")
        job.start(2)
        job.nodes[2].wait("this one waits as a spare")
        job.kill(0)
        job.wait_for_round({1, 2})
        job.check()

    def static_nodes(self, program, *options):
        """Two of them, each with a name of its own for the first one's address."""
        for i in range(2):
            net.name_host(i, {f"first{i}": address(0)})
        return [Node(i, "2", f"first{i}:29500", f"--node-rank={i}", *options, program=["--no-python", "sh", "-c", program],
                     conf="timeout=60", backend="static") for i in range(2)]

    def test_each_static_node_s_workers_get_its_own_name_of_the_first_node(self):
        nodes = self.static_nodes('echo "first is $MASTER_ADDR"')
        for i, node in enumerate(nodes):
            self.addCleanup(node.end)
            self.assertEqual(node.wait_for_end(), 0, node.text)
            self.assertIn(f"first is first{i}\n", node.text)

    def test_a_link_that_is_away_for_two_seconds_again_and_again_ends_no_static_job(self):
        nodes = self.static_nodes("echo works; sleep 25")
        for node in nodes:
            self.addCleanup(node.end)
            node.wait("works\n")
        for pause in (1.5, 2.5, 5, 0):
            net.cable(1, "down")
            time.sleep(2)
            net.cable(1, "up")
            time.sleep(pause)
        for node in nodes:
            self.assertEqual(node.wait_for_end(), 0, node.text)

    def test_a_name_with_the_addresses_of_all_pods_gives_one_job(self):
        names = {"pods": " ".join(address(k) for k in range(3))}
        net.name_hosts(3, names)
        job = self.job("1:3", "pods", files=False)
        for i in range(3):
            job.start(i)
        job.wait_for_round({0, 1, 2})
        job.check()
        job.end()
        for i in range(3):  # a name server that knows each pod, but not yet the others
            net.name_host(i, {"pods": address(i)})
        job = self.job("2:3", "pods", files=False)
        for i in range(3):
            job.start(i)
        for i in range(3):
            job.nodes[i].wait("waiting for nodes: 1 of at least 2")
        net.name_hosts(3, names)
        job.wait_for_round({0, 1, 2})
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
        self.assertIn("its --restart-policy is on-crash,retry=4, this job's is on-crash,retry=3;", job.nodes[2].text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up as well
    unittest.main(verbosity=2)
