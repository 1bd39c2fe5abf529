#!/usr/bin/env python3
"""The server of the workers' store against torch's own (libuv), in alternation; each figure is a median with its range.

  scripts/bench/bench_store.py [ROUNDS [CLIENTS]]      default: 5 rounds, 500 clients

  connect    all clients connect, greet and ping: connections/s
  wake       all clients wait for one key: from its being set to the last of them being told, ms
  ping-pong  one client, set and get of 100 bytes in turns, each awaited: pairs/s
  stream     one client sends sets and gets without awaiting each: pairs/s
  memory     growth of the server's resident memory with the connected clients, with 100,000 keys, MiB

DDP_RUN names ddp-run (default: build/release/bin/ddp-run), PYTHON a Python with torch.
"""

import os
import resource
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", str(ROOT / "build/release/bin/ddp-run"))
OURS = [DDP_RUN, "sh", "-c", 'echo port $MASTER_PORT; read -r line']
PYTHON = os.environ.get("PYTHON", str(ROOT / ".venv/bin/python"))
TORCH = """
import sys, datetime, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=60), wait_for_workers=False)
print("port", store.port, flush=True)
sys.stdin.read()
"""
GREETING = struct.pack("=BI", 0, 0x3C85F7CE)
SET, GET, WAIT, MULTI_SET, PING = 1, 3, 6, 11, 13
VALUE = b"v" * 100


def text(value):
    return struct.pack("=Q", len(value)) + value


def store_of(ddp_run):
    """The process of the workers' store: a child of the agent, which is a child of ddp-run."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        name, rest = stat.read_text().split(" (", 1)[1].rsplit(") ", 1)
        parents[int(stat.parent.name)] = (name, int(rest.split()[1]))
    return next(pid for pid, (name, agent) in parents.items() if name == "ddp-store" and parents[agent][1] == ddp_run)


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.pid = self.process.pid
        if command == OURS:  # its process is there once a client has been served
            with self.connect() as first:
                first.sendall(struct.pack("=BI", PING, 7))
                receive(first, 4)
            self.pid = store_of(self.process.pid)

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(GREETING)
        return connection

    def memory(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def receive(connection, size):
    heard = 0
    while heard < size:
        piece = connection.recv(min(1 << 16, size - heard))
        if not piece:
            raise RuntimeError("the server closed a connection")
        heard += len(piece)


def receive_all(connections, size):
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        left = len(connections)
        while left:
            for key, _ in selector.select():
                receive(key.fileobj, size)
                selector.unregister(key.fileobj)
                left -= 1


def measure(server, clients):
    figures = {}
    before = server.memory()
    start = time.perf_counter()
    connections = [server.connect() for _ in range(clients)]
    for connection in connections:
        connection.sendall(struct.pack("=BI", PING, 7))
    receive_all(connections, 4)
    figures["connect"] = clients / (time.perf_counter() - start)
    figures["memory of clients"] = server.memory() - before

    one = server.connect()
    for connection in connections:
        connection.sendall(bytes([WAIT]) + struct.pack("=Q", 1) + text(b"/go") + struct.pack("=BI", PING, 7))
    receive_all(connections, 4)
    start = time.perf_counter()
    one.sendall(bytes([SET]) + text(b"/go") + text(b""))
    receive_all(connections, 1)
    figures["wake"] = (time.perf_counter() - start) * 1000

    pair = bytes([SET]) + text(b"/key") + text(VALUE) + bytes([GET]) + text(b"/key")
    start, count = time.perf_counter(), 5000
    for _ in range(count):
        one.sendall(pair)
        receive(one, 8 + len(VALUE))
    figures["ping-pong"] = count / (time.perf_counter() - start)

    start, count, burst = time.perf_counter(), 400, 250
    for _ in range(count):
        one.sendall(pair * burst)
        receive(one, burst * (8 + len(VALUE)))
    figures["stream"] = count * burst / (time.perf_counter() - start)

    before = server.memory()
    for first in range(0, 100_000, 1000):
        keys = [b"/a/rather/long/prefix/as/usual/%d" % i for i in range(first, first + 1000)]
        one.sendall(bytes([MULTI_SET]) + struct.pack("=Q", len(keys)) + b"".join(text(k) + text(VALUE) for k in keys))
    one.sendall(struct.pack("=BI", PING, 7))
    receive(one, 4)
    figures["memory of keys"] = server.memory() - before
    for connection in [one, *connections]:
        connection.close()
    return figures


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = {"ddp-run": [], "torch": []}
    for _ in range(rounds):
        for name, command in (("ddp-run", OURS), ("torch", [PYTHON, "-c", TORCH])):
            server = Server(command)
            results[name].append({"memory at the start": server.memory(), **measure(server, clients)})
            server.close()
    for figure in results["torch"][0]:
        row = []
        for name, measured in results.items():
            values = [each[figure] for each in measured]
            row.append(f"{name} {statistics.median(values):10.1f} [{min(values):.1f}-{max(values):.1f}]")
        print(f"{figure:20s} " + "   ".join(row))


if __name__ == "__main__":
    main()
