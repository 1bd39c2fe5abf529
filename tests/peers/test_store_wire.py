"""The same bytes sent to ddp-run's server of the workers' store and to torch's: both must answer alike."""

import random
import struct
import unittest

from store_servers import (ADD, APPEND, BARRIER, CANCEL_WAIT, CHECK, COMPARE_SET, DELETE_KEY, GET, GETNUMKEYS, MAGIC,
                           MULTI_GET, MULTI_SET, QUEUE_LEN, QUEUE_POP, QUEUE_PUSH, SET, VALIDATE, WAIT, HAS_BARRIER,
                           SEED, OurServer, Raw, TorchServer, request, text)


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


LONG = {"DifferentialTest.test_many_random_requests", "DifferentialTest.test_many_random_waits"}


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
        self.check_requests(range(SEED, SEED + 2))

    def test_many_random_requests(self):
        self.check_requests(range(SEED + 2, SEED + 10))

    def check_requests(self, seeds):
        for seed in seeds:
            script = Script(seed)
            clients = [self.connect() for _ in range(4)]
            for _ in range(400):
                i = script.random.randrange(len(clients))
                if self.ask(clients[i], script.step()).endswith(b"closed"):
                    clients[i] = self.connect()  # as after adding to a text

    def test_random_waits_are_woken_alike(self):
        self.check_waits([SEED])

    def test_many_random_waits(self):
        self.check_waits(range(SEED + 1, SEED + 4))

    def check_waits(self, seeds):
        for seed in seeds:
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


if __name__ == "__main__":
    unittest.main()
