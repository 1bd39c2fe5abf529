#!/usr/bin/env python3
"""Times jobs of two nodes on this machine, under ddp-run and, with --torchrun, in turns under torchrun.

  ./scripts/bench/bench_nodes.py [--runs=5] [--torchrun=.venv/bin/torchrun] [--ddp-run=build/release/bin/ddp-run]

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

# The last number is the shell's own, which $$ would be if torchrun did not change it.
WORKER = """echo "up $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $PPID $(cut -d' ' -f4 /proc/self/stat)"; exec sleep 1000"""
PATIENCE = 60


class Node:
    """One launcher; its lines come with the time at which they were read."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.text, self.pids = "", []

    def wait(self, pattern, start=0):
        """(seconds on the clock, match) of the first match after `start`."""
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

    def node(self, nnodes, port, is_host, *more):
        # torchrun's agents take seconds to start; its default last call is 30 s.
        conf = "last_call_timeout=5" + ("" if self.is_torchrun else ",keep_alive_interval=1")
        conf += "" if is_host is None else f",is_host={int(is_host)}"
        return Node([*self.launcher, f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                     "--rdzv-id=bench", f"--rdzv-conf={conf}", *more, "--no-python", "sh", "-c", WORKER])

    def pair(self, nnodes, *more, hosts=(None, None)):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return [self.node(nnodes, port, is_host, *more) for is_host in hosts], port

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
        nodes, worker = [], None
        try:
            nodes, _ = self.pair("1:2", hosts=(True, False))
            for node in nodes:
                node.wait(r"up \d+ 2 ")  # both in one round
            end = nodes[0].worker()[2]
            worker = nodes[1].worker()[1]
            began = time.monotonic()
            os.kill(worker["agent"], how)
            return nodes[0].worker(end)[0] - began
        finally:
            if how == signal.SIGSTOP and worker:
                os.kill(worker["agent"], signal.SIGCONT)
            [node.kill() for node in nodes]

    def join(self):
        nodes = []
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            nodes.append(self.node("1:2", port, True))
            _, _, end = nodes[0].worker()
            began = time.monotonic()
            nodes.append(self.node("1:2", port, False))
            return max(nodes[0].worker(end)[0], nodes[1].worker()[0]) - began
        finally:
            [node.kill() for node in nodes]


MEASURES = {
    "start of two nodes until both workers' first lines": Bench.start,
    "a worker is killed until both run again": Bench.restart,
    "SIGTERM at a node's agent until the other node runs alone": lambda bench: bench.gone(signal.SIGTERM),
    "SIGKILL of an agent until the other node runs alone": lambda bench: bench.gone(signal.SIGKILL),
    "SIGSTOP of an agent (ddp-run: heartbeat 1 s, 2 missed)": lambda bench: bench.gone(signal.SIGSTOP),
    "a second node joins until both run": Bench.join,
}


def measure_in_turns(measure, benches, runs):
    """Seconds of each launcher; who has not answered once is not asked again."""
    times = {name: [] for name in benches}
    silent = {}
    for _ in range(runs):
        for name, bench in benches.items():
            if name in silent:
                continue
            try:
                times[name].append(measure(bench))
            except (TimeoutError, EOFError) as error:
                silent[name] = "ended" if isinstance(error, EOFError) else f"not within {PATIENCE} s"
    return {name: silent.get(name) or f"{statistics.median(of):.3f} [{min(of):.3f}-{max(of):.3f}]"
            for name, of in times.items()}


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ddp-run", default="build/release/bin/ddp-run")
    parser.add_argument("--torchrun", default="", help="empty: ddp-run alone")
    args = parser.parse_args()
    if not os.access(args.ddp_run, os.X_OK):
        sys.exit(f"{args.ddp_run}: not there; build it with ./scripts/build.sh release ddp-run")
    benches = {"ddp-run": Bench([args.ddp_run], False)}
    if args.torchrun:
        benches["torchrun"] = Bench([args.torchrun], True)
    print(f"two nodes on this machine ({cpu_model()}, {os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f}); "
          f"seconds, median of {args.runs} [range], in turns\n")
    print("| what | " + " | ".join(benches) + " |\n|---" + "|---" * len(benches) + "|")
    for name, measure in MEASURES.items():
        row = measure_in_turns(measure, benches, args.runs)
        print(f"| {name} | " + " | ".join(row[launcher] for launcher in benches) + " |", flush=True)


if __name__ == "__main__":
    main()
