#!/usr/bin/env python3
"""The README's animated terminal: a training that loses a worker and continues, recorded and drawn.

  terminal_recording.py record         types the commands below in a pseudo-terminal, with ddp-run and a Python with torch on
                                       PATH; writes docs/crash_recording.json and the picture
  terminal_recording.py draw [--check] docs/crash_recording.svg from that file; --check: is it up to date?

Pauses of more than a second are drawn as one.
"""

import html
import json
import os
import pty
import re
import select
import struct
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import picture_file

ROOT = Path(__file__).resolve().parents[2]
DATA, PICTURE = ROOT / "docs/crash_recording.json", ROOT / "docs/crash_recording.svg"
COLUMNS, ROWS, TEXT = 100, 24, 13
STILL = 4.0  # seconds for which the last frame is shown first, as whoever stops at the first frame sees all of it
COMMANDS = ["ddp-run --nproc_per_node=2 --max_restarts=1 --log-dir=logs train.py --epochs 5 --fail_in_epoch 4",
            "ddp-run --explain logs"]


def lines_of(command, folder):
    """(seconds since the start, line) as they appear."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", TERM="xterm")
        os.execvp("bash", ["bash", "-c", command])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    began, pending, lines = time.monotonic(), b"", []
    while True:
        select.select([terminal], [], [])
        try:
            pending += os.read(terminal, 65536)
        except OSError:  # the last process has closed it
            break
        *whole, pending = pending.split(b"\n")
        lines += [(round(time.monotonic() - began, 3), line.decode().rstrip("\r")) for line in whole]
    os.waitpid(pid, 0)
    return lines


def record():
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").symlink_to(ROOT / "examples/python/train.py")
        recorded = [{"command": command, "lines": lines_of(command, folder)} for command in COMMANDS]
    DATA.write_text(json.dumps(recorded, indent=1) + "\n")


def timeline():
    """(when it appears, text, its colour), one for each row of the picture."""
    now, rows = STILL, []
    for part in json.loads(DATA.read_text()):
        rows.append((now, "$ " + part["command"], "#7ee787"))
        now, last = now + 1, 0
        for at, line in part["lines"]:
            now, last = now + min(at - last, 1), at
            line = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)
            for start in range(0, max(len(line), 1), COLUMNS):
                rows.append((now, line[start:start + COLUMNS], "#ffa657" if line.startswith("ddp-run:") else "#e6edf3"))
        now += 1.5
    return rows, now


def draw():
    rows, length = timeline()
    height = (TEXT + 4) * len(rows) + 46
    width = int(COLUMNS * TEXT * 0.602) + 32
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="monospace" '
             f'font-size="{TEXT}" aria-label="A terminal: rank 1 of a training fails, ddp-run restarts both ranks, they go on '
             'from the snapshot; ddp-run --explain says what happened">',
             "<style>text{white-space:pre}@media not (prefers-reduced-motion){text{animation:" + f"{length:.2f}s infinite both step-end" +
             "}"]
    for index, (at, _, _) in enumerate(rows):
        parts.append(f"#r{index}{{animation-name:k{index}}}@keyframes k{index}{{0%{{opacity:1}}{100 * STILL / length:.3f}%{{opacity:0}}"
                     f"{100 * at / length:.3f}%,100%{{opacity:1}}}}")
    parts.append(f'}}</style><rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>')
    for x, colour in ((20, "#ff5f57"), (38, "#febc2e"), (56, "#28c840")):
        parts.append(f'<circle cx="{x}" cy="16" r="5.5" fill="{colour}"/>')
    for index, (_, text, colour) in enumerate(rows):
        parts.append(f'<text id="r{index}" x="16" y="{46 + (TEXT + 4) * index}" fill="{colour}" xml:space="preserve">'
                     f"{html.escape(text)}</text>")
    return "\n".join(parts) + "\n</svg>\n"


def main(arguments):
    if arguments == ["record"]:
        record()
    elif arguments not in (["draw"], ["draw", "--check"]):
        sys.exit(__doc__)
    picture_file.update(PICTURE, draw(), "--check" in arguments, "terminal_recording.py draw")


if __name__ == "__main__":
    main(sys.argv[1:])
