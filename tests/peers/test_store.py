"""torch's TCPStore clients and process groups beside ddp-run's server of the workers' store.

Every test of StoreTest runs against torch's own server as well: both must agree.
"""

import os
import random
import resource
import subprocess
import sys
import unittest
from datetime import timedelta

from store_servers import (GET, HAS_BARRIER, PATIENCE, ROOT, SEED, OurServer, Raw, TorchServer, client_of, dist,
                           in_background, request, text)

MOMENT = timedelta(milliseconds=50)
# That torch's own server passes the same assertions changes with torch alone; test_store_wire.py compares both.
LONG = {"TorchStoreTest", "GlooTest.test_four_ranks"}
CPP_CLIENT = os.environ.get("DDP_STORE_CLIENT", str(ROOT / "build/dev/bin/ddp_torch_store_client"))
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class StoreTest:
    Server = None

    def setUp(self):
        self.server = self.Server()
        self.addCleanup(self.server.close)
        self.store = client_of(self.server)

    def test_set_get_delete_and_count(self):
        self.store.set("a", "1")
        self.store.set("b", bytes(range(256)))
        self.store.set("", "")
        self.assertEqual(self.store.get("a"), b"1")
        self.assertEqual(self.store.get("b"), bytes(range(256)))
        self.assertEqual(self.store.get(""), b"")
        self.assertEqual(self.store.num_keys(), 3)
        self.assertTrue(self.store.delete_key("a"))
        self.assertFalse(self.store.delete_key("a"))
        self.assertEqual(self.store.num_keys(), 2)
        self.assertTrue(self.store.check(["b", ""]))
        self.assertFalse(self.store.check(["b", "a"]))

    def test_large_values(self):
        value = random.Random(SEED).randbytes(8 << 20)
        self.store.set("large", value)
        self.assertEqual(client_of(self.server).get("large"), value)

    def test_tens_of_megabytes(self):
        value = random.Random(SEED).randbytes(8 << 20)
        other = client_of(self.server)
        for _ in range(5):
            self.store.append("long", value)
        self.store.num_keys()  # writes are not acknowledged: now they are done
        self.assertEqual(other.get("long"), 5 * value)
        keys = [f"large{i}" for i in range(4)]
        for key in keys:  # torch's server takes a minute for as much in one multi_set
            self.store.set(key, value)
        self.assertEqual(other.multi_get(keys), [value] * 4)

    def test_a_value_beyond_the_limit_ends_the_connection(self):
        with self.assertRaises(dist.DistNetworkError):
            self.store.set("larger", bytes((8 << 20) + 1))
            self.store.get("larger")
        client_of(self.server).set("another", "still here")

    def test_add(self):
        self.assertEqual(self.store.add("n", 5), 5)
        self.assertEqual(self.store.add("n", -7), -2)
        self.assertEqual(self.store.get("n"), b"-2")
        self.store.set("m", "40")
        self.assertEqual(self.store.add("m", 2), 42)
        self.assertEqual(self.store.add("big", (1 << 62)), 1 << 62)

    def test_adding_to_a_text_ends_the_connection(self):
        self.store.set("text", "abc")
        with self.assertRaises(dist.DistNetworkError):
            self.store.add("text", 1)
        self.assertEqual(client_of(self.server).get("text"), b"abc")

    def test_compare_set(self):
        self.assertEqual(self.store.compare_set("k", "old", "new"), b"old")
        self.assertFalse(self.store.check(["k"]))
        self.assertEqual(self.store.compare_set("k", "", "1"), b"1")
        self.assertEqual(self.store.compare_set("k", "0", "2"), b"1")
        self.assertEqual(self.store.compare_set("k", "1", "2"), b"2")

    def test_append_multi_get_and_multi_set(self):
        self.assertTrue(self.store.has_extended_api())
        self.store.append("log", "one ")
        self.store.append("log", "two")
        self.store.multi_set(["a", "b"], ["A", "B"])
        self.assertEqual(self.store.multi_get(["b", "log", "a"]), [b"B", b"one two", b"A"])

    def test_list_keys(self):
        self.store.multi_set(["x/1", "x/2", "y"], ["", "", ""])
        self.assertEqual(sorted(self.store.list_keys()), ["x/1", "x/2", "y"])

    def test_get_waits_for_the_key(self):
        other = client_of(self.server)
        value = in_background(lambda: other.get("late"))
        several = client_of(self.server)
        done = in_background(lambda: several.wait(["late", "later"], PATIENCE))
        while client_of(self.server).num_keys() < 1:
            self.store.set("late", "here")
        self.assertEqual(value(), b"here")
        self.store.set("later", "")
        self.assertIsNone(done())

    def test_a_wait_that_times_out_can_be_followed_by_others(self):
        for _ in range(3):
            with self.assertRaises(dist.DistStoreError):
                self.store.wait(["never"], MOMENT)
        client_of(self.server).set("never", "now")
        self.assertEqual(self.store.get("never"), b"now")

    def test_queues(self):
        with self.assertRaises(dist.QueueEmptyError):
            self.store.queue_pop("q", block=False)
        self.store.queue_push("q", "1")
        self.store.queue_push("q", "2")
        self.assertEqual(self.store.queue_len("q"), 2)
        self.assertEqual(self.store.queue_pop("q"), b"1")
        self.assertEqual(self.store.queue_pop("q", block=False), b"2")
        self.assertEqual(self.store.queue_len("q"), 0)
        self.assertEqual(self.store.num_keys(), 0)

    def test_each_who_waits_for_a_queue_gets_one(self):
        def pop(client):
            while True:  # torch's client waits, then pops: one that comes in between takes the element of the one that waited
                try:
                    return client.queue_pop("q")
                except dist.QueueEmptyError:
                    pass

        waiting = [in_background(lambda c=client_of(self.server): pop(c)) for _ in range(4)]
        for i in range(4):
            self.store.queue_push("q", str(i))
        self.assertEqual(sorted(finish() for finish in waiting), [b"0", b"1", b"2", b"3"])

    def test_a_pop_that_times_out(self):
        impatient = client_of(self.server, MOMENT)
        with self.assertRaises(dist.DistStoreError):
            impatient.queue_pop("q")
        self.store.queue_push("q", "1")
        self.assertEqual(impatient.queue_pop("q"), b"1")

    @unittest.skipUnless(HAS_BARRIER, "this torch has no barrier")
    def test_barrier(self):
        others = [in_background(lambda c=client_of(self.server): c.barrier("b", 3, PATIENCE)) for _ in range(2)]
        self.store.barrier("b", 3, PATIENCE)
        self.assertEqual([finish() for finish in others], [None, None])
        with self.assertRaises(dist.DistStoreError):
            self.store.barrier("lonely", 2, MOMENT)
        self.store.set("still", "works")
        self.assertEqual(self.store.get("still"), b"works")

    def test_workers_that_join(self):
        """As torch's constructor lets the server wait for all."""
        dist.TCPStore("127.0.0.1", self.server.port, 2, False, PATIENCE, wait_for_workers=True)
        dist.TCPStore("127.0.0.1", self.server.port, 2, False, PATIENCE, wait_for_workers=True)
        # Without the prefix that the client's keys have.
        self.assertEqual(Raw(self.server.port).ask(request(GET, key=[b"init/"])), text(b"2"))

    def test_prefixes_and_clones(self):
        inner = dist.PrefixStore("outer", dist.PrefixStore("inner", self.store))
        inner.set("k", "v")
        self.assertEqual(self.store.clone().get("inner/outer/k"), b"v")

    def test_clients_that_come_back_with_a_new_prefix_after_a_restart(self):
        """As workers do whose agent keeps its store: each attempt has keys of its own, the old ones are still there."""
        for attempt in range(3):
            attempts = [dist.PrefixStore(f"/worker/attempt_{attempt}", client_of(self.server)) for _ in range(2)]
            self.assertFalse(attempts[0].check(["rank"]))
            self.assertEqual([store.add("rank", 1) for store in attempts], [1, 2])
            attempts[1].set("address", str(attempt))
            self.assertEqual(attempts[0].get("address"), str(attempt).encode())
            del attempts
        self.assertEqual(self.store.get("/worker/attempt_0/address"), b"0")
        self.assertEqual(self.store.num_keys(), 6)

    def test_many_clients_at_once(self):
        connecting = [in_background(lambda: client_of(self.server)) for _ in range(500)]  # one by one it takes 0.2 s each
        clients = [finish() for finish in connecting]
        done = [in_background(lambda c=c: [c.add("sum", 1) for _ in range(5)] and c.wait(["all"], PATIENCE))
                for c in clients]
        while self.store.add("sum", 0) < 500 * 5:
            pass
        self.store.set("all", "")
        self.assertEqual([finish() for finish in done], [None] * 500)


class OurStoreTest(StoreTest, unittest.TestCase):
    Server = OurServer

    def test_a_new_round_starts_with_nothing(self):
        self.store.set("k", "v")
        self.server.next_round()
        self.assertEqual(client_of(self.server).num_keys(), 0)
        with self.assertRaises(dist.DistNetworkError):
            self.store.get("k")


class TorchStoreTest(StoreTest, unittest.TestCase):
    Server = TorchServer


class CppClientTest(unittest.TestCase):
    """The same operations by torch's client in C++: torch_store_client.cc."""

    def test_operations_get_the_same_answers(self):
        answers = []
        for server in (OurServer(), TorchServer()):
            self.addCleanup(server.close)
            done = subprocess.run([CPP_CLIENT, str(server.port)], text=True, timeout=PATIENCE.total_seconds(),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            answers.append(done.stdout.splitlines())
        self.assertEqual(*answers)
        self.assertGreater(len(answers[0]), 30)


GLOO = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for _ in range(3):
    x = torch.full((1000,), float(rank + 1))
    dist.all_reduce(x)
    assert x.eq(size * (size + 1) / 2).all(), x
dist.barrier()
even = dist.new_group(list(range(0, size, 2)))
if rank % 2 == 0:
    x = torch.ones(1)
    dist.all_reduce(x, group=even)
    assert x.item() == (size + 1) // 2, x
things = [None] * size
dist.all_gather_object(things, {"rank": rank})
assert [thing["rank"] for thing in things] == list(range(size))
dist.monitored_barrier()
dist.destroy_process_group()
print("rank", rank, "of", size, flush=True)
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
os._exit(0)
"""


class GlooTest(unittest.TestCase):
    """Process groups whose store the launcher serves, as TORCHELASTIC_USE_AGENT_STORE says."""

    def run_group(self, size):
        server = OurServer()
        self.addCleanup(server.close)
        for _ in range(2):
            self.run_round(server.port, size)
            server.next_round()

    def run_round(self, port, size):
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size),
               "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([sys.executable, "-B", "-c", GLOO], env={**env, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(size)]
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=240)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(out, f"rank {rank} of {size}\n")

    def test_two_ranks(self):
        self.run_group(2)

    def test_four_ranks(self):
        self.run_group(4)


if __name__ == "__main__":
    unittest.main()
