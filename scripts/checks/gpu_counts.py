#!/usr/bin/env python3
"""Compares what a training step asks of a GPU with what it asked of the fake ones: copies, waits of the host, allocations,
collectives, peak memory; on fake GPUs launches, too. tests/gpu/expected_counts.json has the runs and their figures: those of a
step, or of another unit where a row names the override that gives their number ("per").

  gpu_counts.py [--fake] [--gpus N] [--only NAME ...] [--write]

--fake: on fake GPUs (tests/support/fake_cuda); the preloaded ledger (tests/support/cuda_ledger), which real GPUs are counted
        with, has to agree with the fake's own.
--gpus: rows that need more are left out (1).
--write: with --fake, write the figures found into the file instead.

Environment: TRAINER, DDP_RUN, DDP_BUILD (default: build/release). Exits with 1 if a figure differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = ROOT / "tests/gpu/expected_counts.json"
BUILD = Path(os.environ.get("DDP_BUILD", ROOT / "build/release")).resolve()
TRAINER = Path(os.environ.get("TRAINER", BUILD / "bin/trainer")).resolve()
DDP_RUN = Path(os.environ.get("DDP_RUN", BUILD / "bin/ddp-run")).resolve()
STEPS = ["trainer_config.max_steps", 4, 9]  # the two runs whose difference is counted
PEAK_SHARE = 1.25
PEAK_BYTES = {True: 4 << 20, False: 192 << 20}  # cuBLAS and attention want other workspaces on each kind of real GPU


class Failed(Exception):
    pass


def run(row, common, units, fake, folder):
    """The ledger of rank 0, and on fake GPUs the fake's own."""
    ledger, fakes_own = folder / f"ledger-{units}.json", folder / f"fake-{units}.json"
    preload = BUILD / "lib/libcuda_ledger.so"
    if not preload.exists():
        raise Failed(f"{preload} is missing: build the target cuda_ledger")
    words = [DDP_RUN, "--standalone", f"--nproc_per_node={row['ranks']}", TRAINER, "--config",
             ROOT / "configs/quickstart.yaml", f"hydra.run.dir={folder}/run-{units}",
             f"trainer_config.snapshot_path={folder}/run-{units}/snapshot.pt", *common, *row["overrides"],
             f"{row.get('per', STEPS)[0]}={units}"]
    environment = dict(os.environ, CUDA_LEDGER=str(ledger), LD_PRELOAD=str(preload))
    if fake:
        words = [ROOT / "scripts/fake_gpu.sh", "--devices", row["ranks"], "--report", fakes_own, "--", *words]
    result = subprocess.run([str(word) for word in words], env=environment, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        raise Failed(f"trainer ended with {result.returncode}:\n{result.stdout[-1000:]}{result.stderr[-1000:]}")
    return first_rank(ledger), first_rank(fakes_own) if fake else None


def first_rank(path):
    """Returns rank 0's ledger, among the processes that used CUDA."""
    ledgers = [json.loads(line) for line in path.read_text().splitlines()]
    used = [ledger for ledger in ledgers if ledger["rank"] == 0 and ledger["alloc_calls"] > 0]
    if not used:
        raise Failed("rank 0 did not use CUDA")
    return used[-1]


def of_each(name, more, less, units):
    """The difference must be the same for each step."""
    if (more - less) % units != 0:
        raise Failed(f"{name}: {more - less} in {units} steps, so not the same in each")
    return (more - less) // units


def of_unit(few, many, units):
    """{figure: count of a step}"""
    def difference(name, more, less):
        return of_each(name, more, less, units)

    # How far the host is ahead decides whether the last of a few allocations is made.
    figures = {"host_syncs": difference("host_syncs", many["host_syncs"], few["host_syncs"]),
               "alloc_calls": max(0, many["alloc_calls"] - few["alloc_calls"]) // units}
    copies = {way: (many[way], few[way]) for way in ("h2d", "d2h", "pageable")}
    collectives = {kind: (many["nccl"][kind], few["nccl"][kind]) for kind in many["nccl"]}
    for name, (more, less) in {**copies, **collectives}.items():
        calls, size = (difference(name, more[key], less[key]) for key in ("calls", "bytes"))
        if calls:
            figures[name] = [calls, size]
    return figures


def check(name, row, common, fake):
    """Figures found, and what is wrong with them."""
    _, fewest, most = row.get("per", STEPS)
    with tempfile.TemporaryDirectory() as folder:
        few, fakes_few = run(row, common, fewest, fake, Path(folder))
        many, fakes_many = run(row, common, most, fake, Path(folder))
    found = {**of_unit(few, many, most - fewest), "peak_bytes": many["peak_bytes"]}
    wrong = []
    expected = {key: value for key, value in row["expected"].items() if fake or key != "launches"}
    if fake:
        theirs = of_unit(fakes_few, fakes_many, most - fewest)
        wrong += [f"{key}: the preloaded ledger counts {found.get(key)}, the fake {theirs.get(key)}"
                  for key in sorted((theirs.keys() | found.keys()) - {"peak_bytes"}) if theirs.get(key) != found.get(key)]
        found["launches"] = of_each("launches", fakes_many["launches"], fakes_few["launches"], most - fewest)
    wrong += [f"{key}: {found.get(key)}, expected {expected.get(key)}"
              for key in sorted((found.keys() | expected.keys()) - {"peak_bytes"}) if found.get(key) != expected.get(key)]
    peak = expected.get("peak_bytes", 0)
    if found["peak_bytes"] > max(peak * PEAK_SHARE, peak + PEAK_BYTES[fake]):
        wrong.append(f"peak_bytes: {found['peak_bytes']}, expected {peak}")
    if found["host_syncs"] != expected.get("host_syncs"):
        wrong += [f"waits at {site}" for site, count in many["sync_sites"].items()
                  if count != few["sync_sites"].get(site, 0)]
    print(f"{name}: {found['host_syncs']} waits, {found.get('d2h', [0, 0])} to the host, {found.get('h2d', [0, 0])} to the "
          f"device, peak {found['peak_bytes'] / 2**20:.0f} MiB: {'differs' if wrong else 'as expected'}")
    return found, wrong


def layout(table):
    """A row per line."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table["rows"].items())
    return f'{{\n "common": {json.dumps(table["common"])},\n "rows": {{\n{rows}\n }}\n}}\n'


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", action="store_true")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    table = json.loads(EXPECTED.read_text())
    failures = 0
    for name, row in table["rows"].items():
        if row["ranks"] > args.gpus or args.only and name not in args.only:
            continue
        try:
            found, wrong = check(name, row, table["common"], args.fake)
        except Failed as failure:
            print(f"{name}: {failure}")
            failures += 1
            continue
        if args.write:
            row["expected"] = found
        else:
            failures += len(wrong)
            print("".join(f"  {line}\n" for line in wrong), end="")
    if args.write:
        EXPECTED.write_text(layout(table))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
