#!/usr/bin/env python3
"""What many nodes cost the host of a rendezvous: simulated nodes against a real host, on this machine.

  ./scripts/bench/bench_scaling.py [--nodes=10,100,1000] [--workers=8] [--runs=3] [--json=FILE] [--program=PATH]

Prints a table: for each number of nodes and each phase the median of the wall time, of the host's CPU time, of the
bytes to and from the host, and the host's largest resident memory. The nodes share the machine with the host, so that
the wall time is theirs as well. --json keeps all figures of all runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")


def run(program, nodes, workers):
    command = [program, f"--nodes={nodes}", f"--workers={workers}", "--idle=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def summary(runs):
    """One row for each phase: medians over the runs. A phase that comes again counts as its first."""
    rows = {}
    for one in runs:
        seen = set()
        for phase in one:
            if phase["phase"] not in seen:
                seen.add(phase["phase"])
                rows.setdefault(phase["phase"], []).append(phase)
    keys = ("seconds", "host_cpu_seconds", "control_bytes", "store_bytes", "host_kib")
    return {name: {key: statistics.median(phase[key] for phase in phases) for key in keys}
            for name, phases in rows.items()}


def print_table(nodes, rows):
    for name, row in rows.items():
        traffic = (row["control_bytes"] + row["store_bytes"]) / 1e6
        print(f"| {nodes} | {name} | {row['seconds']:.3f} | {row['host_cpu_seconds']:.3f} | {traffic:.2f} | "
              f"{row['host_kib'] / 1024:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,100,1000")
    parser.add_argument("--workers", type=int, default=8, help="of each node")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--program", default="build/release/bin/simulate_nodes")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        sys.exit(f"{args.program}: not there; build it with ./scripts/build.sh release simulate_nodes")
    print(f"{cpu_model()}, {os.cpu_count()} CPU cores, load {os.getloadavg()[0]:.1f}, {args.workers} workers per node, "
          f"median of {args.runs}\n")
    print("| nodes | phase | seconds | host's CPU seconds | MB | host's memory, MiB |\n|---|---|---|---|---|---|")
    results = {}
    for nodes in map(int, args.nodes.split(",")):
        results[nodes] = [run(args.program, nodes, args.workers) for _ in range(args.runs)]
        print_table(nodes, summary(results[nodes]))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"cpu": cpu_model(), "load": os.getloadavg()[0], "workers": args.workers, "runs": results}, file)


if __name__ == "__main__":
    main()
