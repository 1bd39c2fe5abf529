"""Watches a training program from outside, ours and the peer's alike: when it reports a step, and what it has used by then.

The programs take no part in their own measurement, so both are held to the same clock.
"""

import os
import re
import subprocess
import threading
import time
from pathlib import Path

STEP = re.compile(r"Step (\d+) \| Train Loss ([\d.]+|nan)")


class Failed(Exception):
    """A program that did not train; the text has its last lines."""


class Mark:
    """The moment at which a step was reported."""

    def __init__(self, step, loss, began, processes):
        self.step, self.loss = step, loss
        self.wall = time.monotonic() - began
        self.processor = sum(processor_seconds(pid) for pid in processes)
        self.memory = max(map(peak_memory, processes), default=0)


def descendants(root):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = int(Path("/proc", name, "stat").read_text().rsplit(") ", 1)[1].split()[1])
            except OSError:  # it has just ended
                continue
    found, new = [root], [root]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found


def processor_seconds(pid):
    """User and system time of all threads."""
    total = 0
    for thread in Path("/proc", str(pid), "task").glob("*/schedstat"):
        try:
            total += int(thread.read_text().split()[0])
        except (OSError, IndexError):
            continue
    return total / 1e9


def peak_memory(pid):
    """Largest resident size so far, bytes."""
    try:
        text = Path("/proc", str(pid), "status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s*(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def watch(command, folder, variables, patience, observer=None):
    """Runs a program to its end; its Marks. Raises Failed. `observer`: its started(pid) and line(text) are called."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "TORCH", "RANK", "WORLD_SIZE", "DDP_"))}
    env.update(variables)
    began, marks, tail = time.monotonic(), [], []
    with subprocess.Popen([str(word) for word in command], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace") as process:
        limit = threading.Timer(patience, process.terminate)
        limit.start()
        try:
            if observer:
                observer.started(process.pid)
            for line in process.stdout:
                if observer:
                    observer.line(line)
                found = STEP.search(line)
                if found:
                    marks.append(Mark(int(found[1]), float(found[2]), began, descendants(process.pid)))
                tail = [*tail[-9:], line]
        except BaseException:
            process.terminate()
            raise
        finally:
            limit.cancel()
    if process.returncode != 0 or not marks:
        raise Failed(f"exit code {process.returncode}\n" + "".join(tail))
    return marks
