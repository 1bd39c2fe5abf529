"""torch's TCPStore clients and process groups beside ddp-run's server of the workers' store.

DDP_STORE_HOST names the program that runs that server alone. Every test of StoreTest runs against torch's own
server as well: both must agree.
"""

import os
import random
import socket
import struct
import subprocess
import sys
import threading
import unittest
from datetime import timedelta
from pathlib import Path

try:
    import torch.distributed as dist
except ImportError:
    print("[skipped] all of it: this Python has no torch")
    sys.exit(0)

ROOT = Path(__file__).resolve().parents[2]
HOST = os.environ.get("DDP_STORE_HOST", str(ROOT / "build/dev/bin/store_host"))
PATIENCE = timedelta(seconds=180)
MOMENT = timedelta(milliseconds=50)
HAS_BARRIER = hasattr(dist.TCPStore, "barrier")  # 2.15 has it, 2.11 does not
SEED = int(os.environ.get("DDP_SEED", "1"))


class OurServer:
    def __init__(self):
        self.process = subprocess.Popen([HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class TorchServer:
    def __init__(self):
        self.store = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
        self.port = self.store.port

    def close(self):
        self.store = None


def client_of(server, timeout=PATIENCE):
    return dist.TCPStore("127.0.0.1", server.port, None, False, timeout, wait_for_workers=False)


def in_background(action):
    """Its result, or its exception, when called."""
    result = []

    def act():
        try:
            result.append(action())
        except BaseException as error:  # for the test to see
            result.append(error)

    thread = threading.Thread(target=act)
    thread.start()

    def finish():
        thread.join(PATIENCE.total_seconds())
        if thread.is_alive():
            raise AssertionError("still waiting")
        return result[0]

    return finish


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
        waiting = [in_background(lambda c=client_of(self.server): c.queue_pop("q")) for _ in range(4)]
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

    def test_many_clients_at_once(self):
        clients = [client_of(self.server) for _ in range(64)]
        done = [in_background(lambda c=c: [c.add("sum", 1) for _ in range(50)] and c.wait(["all"], PATIENCE))
                for c in clients]
        while self.store.add("sum", 0) < 64 * 50:
            pass
        self.store.set("all", "")
        self.assertEqual([finish() for finish in done], [None] * 64)


class OurStoreTest(StoreTest, unittest.TestCase):
    Server = OurServer

    def test_a_new_round_starts_with_nothing(self):
        self.store.set("k", "v")
        self.assertEqual(self.server.tell("clear"), ["connections", "0", "bytes", "0"])
        self.assertEqual(client_of(self.server).num_keys(), 0)
        with self.assertRaises(dist.DistNetworkError):
            self.store.get("k")


class TorchStoreTest(StoreTest, unittest.TestCase):
    Server = TorchServer


# The same bytes for both servers.
(VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, GETNUMKEYS, DELETE_KEY, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT,
 PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER) = range(19)
MAGIC = 0x3C85F7CE


def text(value):
    return struct.pack("=Q", len(value)) + value


def request(kind, key=(), value=(), number=None, count=False):
    body = struct.pack("=Q", len(key)) if count else b""
    if kind == MULTI_SET:
        body += b"".join(text(k) + text(v) for k, v in zip(key, value))
    else:
        body += b"".join(map(text, [*key, *value]))
    return bytes([kind]) + body + (b"" if number is None else struct.pack("=q", number))


class Raw:
    """A connection; each ask ends with a ping, whose answer tells that nothing else is to come."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(PATIENCE.total_seconds())
        self.socket.sendall(bytes([VALIDATE]) + struct.pack("=I", MAGIC))
        self.nonce = 0x7E57_0000

    def __del__(self):
        self.socket.close()

    def ask(self, message):
        self.nonce += 1
        mark = struct.pack("=I", self.nonce)
        heard = b""
        try:
            self.socket.sendall(message + bytes([PING]) + mark)
            while not heard.endswith(mark):
                piece = self.socket.recv(1 << 16)
                if not piece:
                    return heard + b"closed"
                heard += piece
        except (ConnectionResetError, BrokenPipeError):
            return heard + b"closed"
        return heard[:-len(mark)]


class Script:
    """A random sequence of requests from some clients."""

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.keys = [f"/key{i}".encode() for i in range(6)]
        self.queues = [f"/queue{i}".encode() for i in range(2)]
        self.waiting = set()
        self.fresh = 0

    def some(self, most=4):
        return [self.random.choice(self.keys) for _ in range(self.random.randint(0, most))]

    def value(self):
        kind = self.random.random()
        if kind < 0.5:
            return str(self.random.randint(-1000, 1000)).encode()
        if kind < 0.6:
            return b""
        return self.random.randbytes(self.random.choice([1, 7, 8, 300, 5000]))

    def wait(self):
        """A key that nothing has touched yet."""
        self.fresh += 1
        return f"/wait{self.seed}.{self.fresh}".encode()

    def step(self):
        r = self.random
        key, queue = [r.choice(self.keys)], [r.choice(self.queues)]
        several = self.some()
        return r.choice([
            lambda: request(SET, key, [self.value()]),
            lambda: request(GET, key),
            lambda: request(ADD, key, number=r.choice([0, 1, -5, 1 << 40])),
            lambda: request(CHECK, several, count=True),
            lambda: request(COMPARE_SET, key, [self.value() if r.random() < 0.5 else b"", self.value()]),
            lambda: request(DELETE_KEY, key),
            lambda: request(APPEND, key, [self.value()]),
            lambda: request(MULTI_GET, several, count=True),
            lambda: request(MULTI_SET, several, [self.value() for _ in several], count=True),
            lambda: request(GETNUMKEYS),
            lambda: request(QUEUE_PUSH, queue, [self.value()]),
            lambda: request(QUEUE_POP, queue),
            lambda: request(QUEUE_LEN, queue),
            lambda: request(BARRIER, [self.wait()], number=1) if HAS_BARRIER else request(CANCEL_WAIT),
            lambda: request(CANCEL_WAIT),
        ])()


class DifferentialTest(unittest.TestCase):
    def setUp(self):
        self.servers = [OurServer(), TorchServer()]
        for server in self.servers:
            self.addCleanup(server.close)

    def connect(self):
        return [Raw(server.port) for server in self.servers]

    def ask(self, pair, message):
        ours, torchs = (connection.ask(message) for connection in pair)
        self.assertEqual(ours, torchs, f"to {message!r}")
        return ours

    def test_random_requests_get_the_same_answers(self):
        for seed in range(SEED, SEED + 10):
            script = Script(seed)
            clients = [self.connect() for _ in range(4)]
            for _ in range(400):
                i = script.random.randrange(len(clients))
                if self.ask(clients[i], script.step()).endswith(b"closed"):
                    clients[i] = self.connect()  # as after adding to a text

    def test_random_waits_are_woken_alike(self):
        for seed in range(SEED, SEED + 4):
            script = Script(seed)
            clients = [self.connect() for _ in range(5)]
            free, pending = list(range(5)), []
            for step in range(150):
                r = script.random
                if free and r.random() < 0.4:
                    keys = [script.wait() for _ in range(r.randint(1, 4))]
                    i = free.pop(r.randrange(len(free)))
                    pending.append((i, keys))
                    self.assertEqual(self.ask(clients[i], request(WAIT, keys + keys[:1], count=True)), b"")
                elif pending:
                    at = r.randrange(len(pending))
                    i, keys = pending[at]
                    kind, key = r.random(), keys.pop(r.randrange(len(keys)))
                    by = self.connect()
                    if kind < 0.1:
                        self.ask(clients[i], request(CANCEL_WAIT))
                        keys.clear()
                    elif kind < 0.2:
                        for connection in clients[i]:
                            connection.socket.close()
                        clients[i] = self.connect()
                        keys.clear()
                    else:
                        self.ask(by, r.choice([request(SET, [key], [b"x"]), request(ADD, [key], number=1),
                                               request(APPEND, [key], [b"x"]),
                                               request(COMPARE_SET, [key], [b"", b"x"]),
                                               request(BARRIER if HAS_BARRIER else ADD, [key], number=1)]))
                        if not keys:
                            self.assertEqual(self.ask(clients[i], b""), b"\0")
                    if not keys:
                        pending.pop(at)
                        free.append(i)
                for i, _ in pending if step % 10 == 0 else ():
                    self.assertEqual(self.ask(clients[i], b""), b"")

    def test_what_is_malformed_ends_the_connection_on_both(self):
        huge = struct.pack("=Q", 1 << 62)
        for message in (bytes([19]), bytes([255]), bytes([GET]) + huge, bytes([WAIT]) + huge,
                        bytes([SET]) + text(b"k") + huge, bytes([VALIDATE]) + struct.pack("=I", MAGIC)):
            self.assertEqual(self.ask(self.connect(), message), b"closed")


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
print("rank", rank, "of", size)
"""


class GlooTest(unittest.TestCase):
    """Process groups whose store the launcher serves, as TORCHELASTIC_USE_AGENT_STORE says."""

    def run_group(self, size):
        server = OurServer()
        self.addCleanup(server.close)
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.port), "WORLD_SIZE": str(size),
               "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        for _ in range(2):  # two rounds
            ranks = [subprocess.Popen([sys.executable, "-B", "-c", GLOO], env={**env, "RANK": str(rank)}, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(size)]
            for rank, process in enumerate(ranks):
                out, err = process.communicate(timeout=240)
                self.assertEqual(process.returncode, 0, err)
                self.assertEqual(out, f"rank {rank} of {size}\n")
            self.assertEqual(server.tell("clear"), ["connections", "0", "bytes", "0"])

    def test_two_ranks(self):
        self.run_group(2)

    def test_four_ranks(self):
        self.run_group(4)


if __name__ == "__main__":
    unittest.main()
