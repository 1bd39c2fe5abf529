"""The two servers that the tests of the workers' store compare, ddp-run's and torch's, and their protocol."""

import os
import socket
import struct
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

try:
    import torch.distributed as dist
except ImportError:
    print("[skipped] all of it: this Python has no torch")
    sys.exit(0)

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", str(ROOT / "build/dev/bin/ddp-run"))
PATIENCE = timedelta(seconds=180)
HAS_BARRIER = hasattr(dist.TCPStore, "barrier")  # 2.15 has it, 2.11 does not
SEED = int(os.environ.get("DDP_SEED", "1"))


class OurServer:
    """That of a job whose worker has others use the store; a line on its standard input makes it fail."""

    WORKER = 'echo "$MASTER_PORT"; if read -r line; then exit 3; fi'

    def __init__(self):
        self.process = subprocess.Popen([DDP_RUN, "--max-restarts=100", "--healthy-after=0.001", "sh", "-c", self.WORKER], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.port = int(self.process.stdout.readline())

    def next_round(self):
        self.process.stdin.write("fail\n")
        self.process.stdin.flush()
        self.port = int(self.process.stdout.readline())

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


# The protocol of torch's TCPStore.
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
