#!/usr/bin/env python3
"""Draws who holds what under each strategy, as docs/strategies.svg: the state of a parameter on four ranks, to scale.

  strategy_picture.py [--check]     --check: exit 1 if the picture is out of date
"""

import sys
from pathlib import Path

import picture_file

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "strategies.svg"
RANKS = 4
# Bytes of a parameter in float32 with AdamW, and the strategies that divide them among the ranks.
KINDS = (("weights", 4, ("zero3",), "#3b6ea8"), ("gradients", 4, ("zero1", "zero2", "zero3"), "#d18616"),
         ("optimizer state", 8, ("zero1", "zero2", "zero3"), "#5a8f4e"))
STRATEGIES = (("ddp", "all-reduce of the gradients"),
              ("zero1", "reduce-scatter of the gradients, all-gather of the weights"),
              ("zero2", "the same; reduced in every micro-batch, so that full gradients never pile up"),
              ("zero3", "the same, and all-gathers of each block's weights before its forward and its backward pass"))
WIDTH, LEFT, TOP, ROW, BAR, BYTE = 860, 90, 52, 82, 34, 10.5


def text(x, y, words, size=13, colour="#24292f", anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{words}</text>')


def held(strategy):
    """Bytes of a parameter on each rank, by kind."""
    return [size / RANKS if strategy in divided else size for _, size, divided, _ in KINDS]


def rank_bar(strategy, rank, x, y):
    """Draws a rank's part in colour at its place in the outlined whole."""
    parts = []
    for (_, size, divided, colour), own in zip(KINDS, held(strategy)):
        width = size * BYTE
        start = x + (width * rank / RANKS if strategy in divided else 0)
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="#f6f8fa" stroke="#d0d7de"/>')
        parts.append(f'<rect x="{start:.1f}" y="{y}" width="{own * BYTE:.1f}" height="{BAR}" fill="{colour}"/>')
        x += width
    return parts


def picture():
    height = TOP + len(STRATEGIES) * ROW + 6
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" role="img" '
             'aria-label="Who holds which part of weights, gradients and optimizer state on four ranks">',
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x = LEFT
    for name, size, _, colour in KINDS:
        words = f"{name}, {size} bytes"
        parts += [f'<rect x="{x:.1f}" y="10" width="13" height="13" fill="{colour}"/>', text(x + 19, 21, words)]
        x += 44 + 7.2 * len(words)
    parts.append(text(x, 21, "of each parameter (float32, AdamW)", colour="#57606a"))
    whole = sum(size for _, size, _, _ in KINDS) * BYTE
    for rank in range(RANKS):
        parts.append(text(LEFT + rank * (whole + 14), 46, f"rank {rank}", 12, "#57606a"))
    for row, (strategy, sent) in enumerate(STRATEGIES):
        y = TOP + row * ROW
        parts.append(text(LEFT - 14, y + 22, strategy, 14, anchor="end", weight="bold"))
        for rank in range(RANKS):
            parts += rank_bar(strategy, rank, LEFT + rank * (whole + 14), y)
        parts.append(text(LEFT, y + BAR + 17, f"{sum(held(strategy)):g} bytes of {sum(size for _, size, _, _ in KINDS)} on each "
                          f"of {RANKS} ranks; sent: {sent}", 12, "#57606a"))
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    picture_file.update(PICTURE, picture(), sys.argv[1:] == ["--check"], "docs/strategy_picture.py")
