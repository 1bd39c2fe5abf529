"""The rendezvous protocol as docs/wire-protocol.md describes it, and connections that break it."""

import hashlib
import hmac
import json
import os
import select
import socket
import time

MAGIC, VERSION = b"DDP-RUN/", 3


def number(value, size):
    return value.to_bytes(size, "big")


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def greeting(version=VERSION, nonce=None):
    return MAGIC + number(version, 2) + (nonce or os.urandom(16))


class Closed(Exception):
    pass


class End:
    """One end of a connection, after the handshake."""

    def open(self, token, agent, host, ways):
        self.keys = [mac(token, way + b" frames\0", agent, host) for way in ways]
        self.counts = [0, 0]

    def read(self, size):
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed("the other end closed the connection")
            data += part
        return data

    def tag(self, way, body):
        self.counts[way] += 1
        return mac(self.keys[way], number(self.counts[way] - 1, 8), number(len(body), 4), body)

    def frame(self, message):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return number(len(body), 4) + body + self.tag(0, body)

    def send(self, message):
        self.socket.sendall(self.frame(message))

    def receive(self):
        body = self.read(int.from_bytes(self.read(4), "big"))
        if self.read(32) != self.tag(1, body):
            raise Closed("the frame's MAC is wrong")
        return json.loads(body)

    def expect(self, *kinds):
        """The next message of one of these types; others are skipped."""
        while True:
            message = self.receive()
            if message["type"] in kinds:
                return message

    def close(self):
        self.socket.close()


class Agent(End):
    """Connects to a host."""

    template = {}  # a hello of a real agent, which has what the nodes of a job must agree on

    def __init__(self, port, token=b"", host="127.0.0.1", timeout=20):
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        own = greeting()
        self.socket.sendall(own)
        peer = self.read(26)
        if self.read(32) != mac(token, b"host proof\0", own, peer):
            raise Closed("the host does not know the token")
        self.socket.sendall(mac(token, b"agent proof\0", own, peer))
        self.open(token, own, peer, (b"agent", b"host"))

    def hello(self, **changed):
        own = os.urandom(8).hex()
        self.send({**self.template, "id": own, "member": own, "host": "python", "pid": os.getpid(), "port": 0, **changed})


class Host(End):
    """Takes one connection of an agent."""

    def __init__(self, server, token=b""):
        self.socket = server.accept()[0]
        self.socket.settimeout(20)
        own, peer = greeting(), self.read(26)
        self.socket.sendall(own + mac(token, b"host proof\0", peer, own))
        if self.read(32) != mac(token, b"agent proof\0", peer, own):
            raise Closed("the agent does not know the token")
        self.open(token, peer, own, (b"host", b"agent"))


def raw(port, data=b"", host="127.0.0.1"):
    """A connection that has sent `data`, or what of it was taken."""
    one = socket.create_connection((host, int(port)), timeout=20)
    try:
        one.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return one


def is_closed(one, patience):
    """Whether the other end closes the connection in time."""
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0:
        if not select.select([one], [], [], left)[0]:
            return False
        try:
            if not one.recv(1 << 16):
                return True
        except ConnectionResetError:
            return True
    return False


def flood(one, data, seconds):
    """Sends `data` again and again, for so long or until the connection is closed; returns the bytes taken."""
    one.setblocking(False)
    sent, end = 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            sent += one.send(data)
        except BlockingIOError:
            select.select([], [one], [], min(left, 0.1))
        except OSError:
            break
    return sent
