#!/usr/bin/env python3
"""A flame graph of training steps as SVG, from a trace that `profile.start` made: what was called by what, and for how long.

  flame.py profile_rank_0.json --steps 10 > docs/step_flame.svg       --steps: profile.steps of that run
"""

import argparse
import html
import json
import re
import sys

WIDTH, ROW, SIZE = 1200, 17, 11  # pixels; of the letters
LEAST = 0.6  # pixels: narrower calls are left out
COLOURS = {"forward": "#7fb3d5", "backward": "#e59866", "optimizer": "#82c99d"}
OTHERS = "#c9ccd1"


def short(name):
    """"aten::mm" -> "mm"; of a C++ node of autograd, its class."""
    found = re.search(r"CppNode<.*::(\w+)>", name)
    return f"{found[1]}, backward" if found else name.split("::")[-1]


class Frame:
    def __init__(self):
        self.time, self.calls, self.below = 0.0, 0, {}


def frames_of(events):
    """The calls of the thread that makes the steps, merged by name and caller."""
    marks = [e for e in events if e["name"] in COLOURS]
    thread = max({e["tid"] for e in marks}, key=lambda tid: sum(e["dur"] for e in marks if e["tid"] == tid))
    root, stack = Frame(), []
    ours = [e for e in events if e["tid"] == thread and "evaluate_function" not in e["name"]]
    for event in sorted(ours, key=lambda e: (e["ts"], -e["dur"])):
        while stack and event["ts"] + event["dur"] > stack[-1][0] + 1e-3:
            stack.pop()
        above = stack[-1][1] if stack else root
        if not stack and event["name"] not in COLOURS:
            continue  # between the parts of a step
        frame = above.below.setdefault(event["name"], Frame())
        frame.time += event["dur"]
        frame.calls += 1
        stack.append((event["ts"] + event["dur"], frame))
    root.time = sum(frame.time for frame in root.below.values())
    return root


def depth(frame):
    return 1 + max(map(depth, frame.below.values()), default=0)


def boxes(frame, x, level, scale, steps, colour, out):
    for name, below in frame.below.items():
        width = below.time * scale
        if width >= LEAST:
            own = COLOURS.get(name, colour)
            text = short(name)
            words = html.escape(f"{text}: {below.time / steps / 1e3:.2f} ms, {below.calls / steps:.0f} calls a step")
            shown = html.escape(text[:int(width / SIZE * 1.7)]) if width > 3 * SIZE else ""
            out.append(f'<g><title>{words}</title><rect x="{x:.1f}" y="{level * ROW}" width="{width:.1f}" height="{ROW - 1}" '
                       f'fill="{own}"/>' + (f'<text x="{x + 3:.1f}" y="{level * ROW + 12}">{shown}</text>' if shown else "")
                       + "</g>")
            boxes(below, x, level + 1, scale, steps, own, out)
        x += width


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"]
                  if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")]
    root = frames_of(events)
    out = []
    boxes(root, 0, 1, WIDTH / root.time, args.steps, OTHERS, out)
    title = f"one step: {root.time / args.steps / 1e3:.1f} ms (mean of {args.steps}); width is time, below is what was called"
    sys.stdout.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {(depth(root) + 1) * ROW}" '
                     f'font-family="sans-serif" font-size="{SIZE}"><rect width="100%" height="100%" fill="#fff"/>'
                     f'<text x="3" y="12">{title}</text>\n' + "\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
