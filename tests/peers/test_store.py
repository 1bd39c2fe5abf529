"""torch's TCPStore clients and process groups beside ddp-run's server of the workers' store.

Every test of StoreTest runs against torch's own server as well: both must agree. What each operation answers is compared by
torch_store_client.cc and, at random, by test_store_wire.py.
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
# That torch's own server passes the same assertions changes with torch alone.
LONG = {"TorchStoreTest"}
CPP_CLIENT = os.environ.get("DDP_STORE_CLIENT", str(ROOT / "build/dev/bin/ddp_torch_store_client"))
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class StoreTest:
    Server = None

    def setUp(self):
        self.server = self.Server()
        self.addCleanup(self.server.close)
        self.store = client_of(self.server)

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
        client = client_of(self.server)
        client.set_timeout(MOMENT)
        with self.assertRaises(dist.DistStoreError):
            client.queue_pop("q")
        client.set_timeout(PATIENCE)
        self.store.queue_push("q", "1")
        self.assertEqual(client.queue_pop("q"), b"1")

    def test_workers_that_join(self):
        """As torch's constructor lets the server wait for all."""
        dist.TCPStore("127.0.0.1", self.server.port, 2, False, PATIENCE, wait_for_workers=True)
        dist.TCPStore("127.0.0.1", self.server.port, 2, False, PATIENCE, wait_for_workers=True)
        # Without the prefix that the client's keys have.
        self.assertEqual(Raw(self.server.port).ask(request(GET, key=[b"init/"])), text(b"2"))

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

    def test_three_ranks(self):
        size = 3
        server = OurServer()
        self.addCleanup(server.close)
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": str(size),
               "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([sys.executable, "-B", "-c", GLOO], env={**env, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(size)]
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=240)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(out, f"rank {rank} of {size}\n")


if __name__ == "__main__":
    unittest.main()
