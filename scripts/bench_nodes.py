#!/usr/bin/env python3
"""Times jobs of two nodes on this machine, under ddp-run and, where it can do it, under torchrun.

  ./scripts/bench_nodes.py [--runs=5] [--torchrun=.venv/bin/torchrun] [--ddp-run=build/release/bin/ddp-run]

Prints the median and the range in seconds of: start until the first line of the last worker; a worker that fails until
all run again; a node that goes until the other one has noticed; a node that comes until both run.
"""

import argparse
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import time

WORKER = """echo "up $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $PPID $$"; exec sleep 1000"""
PATIENCE = 60


class Node:
    """One launcher; its lines come with the time at which they were read."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text, self.pids = "", []

    def wait(self, pattern, start=0):
        """(seconds on the clock, match) of the first match behind `start`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern).search(self.text, start)
            if found:
                return time.monotonic(), found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise TimeoutError(f"no '{pattern}' in:\n{self.text}")
            data = self.process.stdout.read()
            if data == b"":
                raise EOFError(f"no '{pattern}' in:\n{self.text}")
            self.text += data.decode(errors="replace")

    def worker(self, start=0):
        when, found = self.wait(r"up (\d+) (\d+) (\d+) (\d+) (\d+)\n", start)
        return when, dict(zip(("rank", "world", "round", "agent", "pid"), map(int, found.groups()))), found.end()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()


class Bench:
    def __init__(self, launcher, is_torchrun):
        self.launcher, self.is_torchrun = launcher, is_torchrun

    def node(self, nnodes, port, *more):
        conf = "last_call_timeout=1" + ("" if self.is_torchrun else ",keep_alive_interval=1")
        return Node([*self.launcher, f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                     "--rdzv-id=bench", f"--rdzv-conf={conf}", *more, "--no-python", "sh", "-c", WORKER])

    def pair(self, nnodes, *more):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return [self.node(nnodes, port, *more) for _ in range(2)], port

    def start(self):
        began = time.monotonic()
        nodes, _ = self.pair("2")
        try:
            return max(node.worker()[0] for node in nodes) - began
        finally:
            [node.kill() for node in nodes]

    def restart(self):
        nodes, _ = self.pair("2", "--max-restarts=2")
        try:
            seen = [node.worker() for node in nodes]
            began = time.monotonic()
            os.kill(seen[1][1]["pid"], signal.SIGKILL)
            return max(node.worker(end)[0] for node, (_, _, end) in zip(nodes, seen)) - began
        finally:
            [node.kill() for node in nodes]

    def gone(self, how):
        """Until the other node runs again alone. The one that goes does not host the rendezvous."""
        nodes, port = [], 0
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            nodes.append(self.node("1:2", port))
            _, _, end = nodes[0].worker()
            nodes.append(self.node("1:2", port))
            _, worker, _ = nodes[1].worker()
            _, _, end = nodes[0].worker(end)
            began = time.monotonic()
            os.kill(worker["agent"], how)
            return nodes[0].worker(end)[0] - began
        finally:
            if how == signal.SIGSTOP and nodes[1:]:
                os.kill(worker["agent"], signal.SIGCONT)
            [node.kill() for node in nodes]

    def join(self):
        nodes, port = [], 0
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            nodes.append(self.node("1:2", port))
            _, _, end = nodes[0].worker()
            began = time.monotonic()
            nodes.append(self.node("1:2", port))
            return max(nodes[0].worker(end)[0], nodes[1].worker()[0]) - began
        finally:
            [node.kill() for node in nodes]


def line(name, measure, runs):
    try:
        times = [measure() for _ in range(runs)]
        print(f"{name:<58} {statistics.median(times):7.3f}  [{min(times):.3f} - {max(times):.3f}]", flush=True)
    except (TimeoutError, EOFError) as error:
        print(f"{name:<58} no answer within {PATIENCE} s ({str(error).splitlines()[0]})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ddp-run", default="build/release/bin/ddp-run")
    parser.add_argument("--torchrun", default="", help="empty: ddp-run alone")
    args = parser.parse_args()
    if not os.access(args.ddp_run, os.X_OK):
        sys.exit(f"{args.ddp_run}: not there; build it with ./scripts/build.sh release ddp-run")
    ddp = Bench([args.ddp_run], False)
    print(f"two nodes on this machine, {args.runs} runs, seconds; load {os.getloadavg()[0]:.1f}")
    line("ddp-run   start until both workers' first lines", ddp.start, args.runs)
    line("ddp-run   a worker is killed until both run again", ddp.restart, args.runs)
    line("ddp-run   SIGTERM at a node until the other runs alone", lambda: ddp.gone(signal.SIGTERM), args.runs)
    line("ddp-run   SIGKILL of an agent until the other runs alone", lambda: ddp.gone(signal.SIGKILL), args.runs)
    line("ddp-run   SIGSTOP of an agent (heartbeat 1 s, 2 missed)", lambda: ddp.gone(signal.SIGSTOP), args.runs)
    line("ddp-run   a second node joins until both run", ddp.join, args.runs)
    if args.torchrun:
        torch = Bench([args.torchrun], True)
        line("torchrun  start until both workers' first lines", torch.start, args.runs)
        line("torchrun  a worker is killed until both run again", torch.restart, args.runs)


if __name__ == "__main__":
    main()
