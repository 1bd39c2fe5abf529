#!/usr/bin/env python3
"""Draws what four ranks do under each pipeline schedule, as docs/pipeline_schedules.svg, to scale: a backward pass takes twice as
long as a forward pass, and messages take no time.

  pipeline_picture.py [--check]     --check: exit 1 if the picture is out of date
"""

import sys
from pathlib import Path

import picture_file

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pipeline_schedules.svg"
RANKS, MICRO_BATCHES, CHUNKS = 4, 8, 2
LEFT, UNIT, BAR, STEP, WIDTH = 62, 20, 18, 20, 732
# Kind of a pass: its colour, and that in a rank's second stage.
COLOURS = {"F": ("#4f90d9", "#1f5fa8"), "B": ("#5cae69", "#2f7a3b")}
SECONDS = {"F": 1.0, "B": 2.0}


def gpipe(rank):
    return [(kind, rank, i) for kind in "FB" for i in range(MICRO_BATCHES)]


def one_forward_one_backward(rank):
    ahead = min(MICRO_BATCHES, RANKS - rank - 1)
    order = [("F", rank, i) for i in range(ahead)]
    for i in range(MICRO_BATCHES):
        order += [("F", rank, ahead + i)] if ahead + i < MICRO_BATCHES else []
        order.append(("B", rank, i))
    return order


def interleaved(rank):
    count, group = MICRO_BATCHES * CHUNKS, RANKS * CHUNKS

    def one(kind, k):
        chunk = k % group // RANKS
        return kind, (chunk if kind == "F" else CHUNKS - 1 - chunk) * RANKS + rank, k // group * RANKS + k % RANKS

    ahead = min(count, 2 * (RANKS - rank - 1) + (CHUNKS - 1) * RANKS)
    order = [one("F", k) for k in range(ahead)]
    for k in range(count):
        order += [one("F", ahead + k)] if ahead + k < count else []
        order.append(one("B", k))
    return order


SCHEDULES = (("gpipe", gpipe, 1), ("1f1b", one_forward_one_backward, 1),
             (f"interleaved, {CHUNKS} stages on each rank", interleaved, CHUNKS))


def played(schedule, chunks):
    """The passes of each rank as (kind, stage, micro-batch, begin, end)."""
    orders = [schedule(rank) for rank in range(RANKS)]
    ended, ranks = {}, [[] for _ in range(RANKS)]
    last = RANKS * chunks - 1
    while any(orders):
        for order, done in zip(orders, ranks):
            while order:
                kind, stage, i = order[0]
                needed = ("F", stage - 1, i) if kind == "F" else ("B", stage + 1, i)
                free = stage == (0 if kind == "F" else last)
                if not free and needed not in ended:
                    break
                begin = max(done[-1][4] if done else 0.0, 0.0 if free else ended[needed])
                end = begin + SECONDS[kind] / chunks
                ended[kind, stage, i] = end
                done.append((kind, stage, i, begin, end))
                order.pop(0)
    return ranks


def rank_row(rank, passes, y):
    parts = [f'<text x="8" y="{y + 14}">rank {rank}</text><rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{BAR}" '
             'fill="#eeeeee"/>']
    for kind, stage, i, begin, end in passes:
        x, width = LEFT + UNIT * begin, UNIT * (end - begin)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width - 1:.1f}" height="{BAR}" fill="{COLOURS[kind][stage // RANKS]}"/>'
                     f'<text x="{x + width / 2:.1f}" y="{y + 13}" text-anchor="middle" fill="#ffffff" font-size="9">{i + 1}</text>')
    return parts


def picture():
    height = 26 + len(SCHEDULES) * 114 + 12
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    y = 26
    for name, schedule, chunks in SCHEDULES:
        ranks = played(schedule, chunks)
        seconds = max(passes[-1][4] for passes in ranks) - ranks[0][0][3]
        idle = 1 - MICRO_BATCHES * 3 / seconds
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{name}</text><text x="{WIDTH - 12}" y="{y}" text-anchor="end">each '
                     f'rank waits {100 * idle:.0f} % of the step</text>')
        for rank, passes in enumerate(ranks):
            parts += rank_row(rank, passes, y + 8 + STEP * rank)
        y += 114
    for x, kind, words in ((8, "F", "forward pass"), (118, "B", "backward pass")):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="14" height="12" fill="{COLOURS[kind][0]}"/>'
                     f'<text x="{x + 19}" y="{y}">{words}</text>')
    parts.append(f'<text x="240" y="{y}">dark: the rank\'s second stage; grey: it waits</text>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    picture_file.update(PICTURE, picture(), sys.argv[1:] == ["--check"], "docs/pipeline_picture.py")
