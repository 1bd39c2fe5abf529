#!/usr/bin/env python3
"""One crash and one killed launcher, under torchrun and ddp-run in turns: measured, then drawn for the README.

  crash_timeline.py measure [ROUNDS]    writes docs/crash_timeline.json (medians) and the picture; needs both launchers
  crash_timeline.py draw [--check]      docs/crash_timeline.svg from that file; --check: is it up to date?

A round: two workers start (a line from each), work for half a second, one of them gets SIGKILL, the restarted group
works for half a second, the launcher gets SIGKILL, and the workers are watched for two seconds.
DDP_RUN and TORCHRUN name the programs.
"""

import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import picture_file

ROOT = Path(__file__).resolve().parents[2]
DATA, PICTURE = ROOT / "docs/crash_timeline.json", ROOT / "docs/crash_timeline.svg"
WORK, WATCH = 0.5, 2.0  # seconds
WORKER = '#!/bin/bash\necho "$RANK $$"\nexec sleep 100\n'


def programs():
    return {"torchrun": os.environ.get("TORCHRUN", ROOT / ".venv/bin/torchrun"),
            "ddp-run": os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run")}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def first_lines(job):
    """When both workers have written their line, and their pids by rank."""
    pids = dict(job.stdout.readline().split() for _ in range(2))
    return time.monotonic(), {int(rank): int(pid) for rank, pid in pids.items()}


def last_seen_alive(pids, since):
    while any(map(alive, pids)):
        if time.monotonic() - since > WATCH:
            return None
        time.sleep(0.001)
    return time.monotonic() - since


def one_round(program, worker):
    began = time.monotonic()
    job = subprocess.Popen([program, "--nproc_per_node=2", "--max_restarts=1", "--no-python", worker], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    started, pids = first_lines(job)
    time.sleep(WORK)
    killed = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    restarted, pids = first_lines(job)
    time.sleep(WORK)
    job.kill()
    left = last_seen_alive(pids.values(), time.monotonic())
    for pid in filter(alive, pids.values()):
        os.kill(pid, signal.SIGKILL)
    job.wait()
    job.stdout.close()
    return {"start": started - began, "restart": restarted - killed, "left": left}


def measure(rounds):
    load = os.getloadavg()[0]
    runs = {name: [] for name in programs()}
    with tempfile.TemporaryDirectory() as folder:
        worker = Path(folder) / "worker"
        worker.write_text(WORKER)
        worker.chmod(0o755)
        os.environ.update(OMP_NUM_THREADS="1", TMPDIR=folder)
        for _ in range(rounds):
            for name, program in programs().items():
                runs[name].append(one_round(program, worker))
    result = {"rounds": rounds, "cpus": os.cpu_count(), "date": datetime.date.today().isoformat(),
              "load": [round(load, 1), round(os.getloadavg()[0], 1)]}
    for name, of_launcher in runs.items():
        left = [run["left"] for run in of_launcher]
        result[name] = {key: round(statistics.median(run[key] for run in of_launcher), 4) for key in ("start", "restart")}
        result[name]["orphaned_rounds"] = left.count(None)
        result[name]["left"] = None if None in left else round(statistics.median(left), 4)
    DATA.write_text(json.dumps(result, indent=2) + "\n")


LEFT, TOP, ROW, BAR, WIDTH = 96, 64, 84, 26, 900
COLOURS = {"start": "#9aa5b1", "work": "#3a8f5c", "restart": "#d9822b", "left": "#b3261e"}


def shown(seconds):
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def text(x, y, words, size=13, anchor="start", colour="#24292f", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{words}</text>')


def row(name, figures, y, scale):
    """The bars of one launcher, and its figures below them."""
    left = WATCH if figures["left"] is None else figures["left"]
    parts, x = [], float(LEFT)
    for kind, seconds in (("start", figures["start"]), ("work", WORK), ("restart", figures["restart"]), ("work", WORK),
                          ("left", left)):
        width = max(seconds * scale, 1.5)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[kind]}"/>')
        if kind in ("restart", "left"):
            parts.append(f'<path d="M{x:.1f} {y - 3} l-4 -7 h8 z" fill="#24292f"/>')
        x += width
    end = f"its workers still ran {WATCH:g} s later" if figures["left"] is None else f"nothing left after {shown(left)}"
    parts.append(text(LEFT - 10, y + 18, name, 14, "end", weight="bold"))
    parts.append(text(LEFT, y + BAR + 17, f'first lines after {shown(figures["start"])}; workers back '
                      f'{shown(figures["restart"])} after the crash; launcher killed: {end}', 12, colour="#57606a"))
    return parts


def draw():
    data = json.loads(DATA.read_text())
    longest = max(sum(data[name][key] for key in ("start", "restart")) + 2 * WORK +
                  (WATCH if data[name]["left"] is None else data[name]["left"]) for name in programs())
    scale = (WIDTH - LEFT - 20) / longest
    height = TOP + 2 * ROW + 34
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img" '
             'aria-label="Timeline of a job under torchrun and ddp-run: start, crash of a worker, death of the launcher">',
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x = LEFT
    for kind, words in (("start", "starting"), ("work", "workers run"), ("restart", "crashed, restarting"),
                        ("left", "launcher dead, workers alive")):
        parts += [f'<rect x="{x}" y="16" width="13" height="13" fill="{COLOURS[kind]}"/>', text(x + 19, 27, words)]
        x += 44 + 7.2 * len(words)
    parts.append(text(x, 27, "&#9660; SIGKILL"))
    for index, name in enumerate(programs()):
        parts += row(name, data[name], TOP + index * ROW, scale)
    y = TOP + 2 * ROW - 8
    parts.append(f'<path d="M{LEFT} {y} H{LEFT + longest * scale:.1f}" stroke="#57606a"/>')
    for second in range(int(longest) + 1):
        parts.append(f'<path d="M{LEFT + second * scale:.1f} {y} v5" stroke="#57606a"/>')
        parts.append(text(LEFT + second * scale, y + 18, f"{second} s", 11, "middle", "#57606a"))
    return "\n".join(parts) + "\n</svg>\n"


def main(arguments):
    if arguments[:1] == ["measure"] and len(arguments) <= 2:
        measure(int(arguments[1]) if len(arguments) == 2 else 7)
    elif arguments not in (["draw"], ["draw", "--check"]):
        sys.exit(__doc__)
    picture_file.update(PICTURE, draw(), "--check" in arguments, "crash_timeline.py draw")


if __name__ == "__main__":
    main(sys.argv[1:])
