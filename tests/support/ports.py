"""Ports of 127.0.0.1 for servers that a test starts, stops and starts again."""

import contextlib
import random
import socket
from pathlib import Path


def free_port():
    """Unused, and none of those that the kernel gives to connections, which may be those of other tests."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(first_given // 2, first_given)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
