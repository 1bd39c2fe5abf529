"""Anonymous memory of rank 0, observed from outside: before its model is built, at rest between steps, and its peak in them.

The kernel's peak (VmHWM) includes file pages, of which LibTorch has hundreds of MiB, and shared memory. It is therefore
cleared after the first steps (5 written to /proc/PID/clear_refs), and the file and shared pages, constant by then, are
subtracted. Even the briefest peak counts, which polling might miss. At rest is the minimum of RssAnon, polled each
millisecond. Both are given over RssAnon at the line that precedes the model.
"""

import os
import re
import threading
import time
from pathlib import Path

from watch import STEP, descendants

# glibc keeps freed memory, as much of it as the history of its heaps demands. So: one heap for all threads, and blocks from
# 64 KiB are mapped one by one and unmapped when freed.
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
POLL = 0.001  # seconds
BEFORE_MODEL = re.compile("Training model from scratch|Model next")
COUNT = re.compile(r"number of parameters: .*?(\d{4,})")


def mebibytes(pid, *names):
    text = Path("/proc", str(pid), "status").read_text()
    return [int(re.search(rf"^{name}:\s*(\d+) kB", text, re.M)[1]) / 1024 for name in names]


def process_of_rank(root, rank):
    """The descendant of `root` with this RANK in its environment; None before it has started."""
    for pid in descendants(root):
        try:
            if f"RANK={rank}".encode() in Path("/proc", str(pid), "environ").read_bytes().split(b"\0"):
                return pid
        except OSError:  # it has just ended
            continue
    return None


class RankMemory:
    """Observer of a run, for watch(). The steps from `first` to `last` are measured."""

    def __init__(self, first, last):
        self.first, self.last = first, last
        self.root = self.pid = self.before = self.cleared = self.peak = self.rest = self.parameters = None
        self.samples = []  # (time, MiB)
        self.closing = threading.Event()
        self.thread = None

    def started(self, root):
        self.root = root
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def find(self):
        self.pid = self.pid or process_of_rank(self.root, 0)

    def poll(self):
        while self.pid is None and not self.closing.wait(10 * POLL):
            self.find()
        while not self.closing.wait(POLL):
            try:
                self.samples.append((time.monotonic(), *mebibytes(self.pid, "RssAnon")))
            except (OSError, TypeError):  # it has ended
                return

    def line(self, text):
        step, count = STEP.search(text), COUNT.search(text)
        if BEFORE_MODEL.search(text):
            self.find()
            [self.before] = mebibytes(self.pid, "RssAnon")
        elif count:
            self.parameters = int(count[1])
        elif step and int(step[1]) == self.first - 1:
            self.cleared = time.monotonic()
            Path("/proc", str(self.pid), "clear_refs").write_text("5")
        elif step and int(step[1]) == self.last:
            self.read()

    def read(self):
        peak, files, shared = mebibytes(self.pid, "VmHWM", "RssFile", "RssShmem")
        self.peak = peak - files - shared - self.before
        self.rest = min(value for when, value in self.samples if when >= self.cleared) - self.before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        if self.thread:
            self.thread.join()
