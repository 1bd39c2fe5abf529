#!/usr/bin/env python3
"""Draws the include graph of the rooms (directories), from the sources, as docs/rooms.svg.

  include_graph.py [--check]     --check: exit 1 if docs/rooms.svg is out of date

Each room is drawn below everything that includes it. Transitive arrows (a -> c if a -> b -> c) are omitted.
"""

import re
import sys
from html import escape
from pathlib import Path

import picture_file

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "rooms.svg"
INCLUDE = re.compile(r'^\s*#\s*include\s*"((?:launcher|trainer)/[^"]+)"', re.MULTILINE)
BOX, HIGH, GAP_X, GAP_Y, MARGIN, TITLE = 128, 44, 26, 52, 24, 30


def room_of(path):
    parts = Path(path).parts
    return parts[1] if len(parts) > 2 else "main"


def edges_of(program):
    """{room: the rooms it includes}."""
    edges = {}
    for path in sorted((ROOT / program).rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        room = room_of(path.relative_to(ROOT))
        seen = edges.setdefault(room, set())
        for header in INCLUDE.findall(path.read_text(encoding="utf-8")):
            # The worker contract belongs to no room: both programs include it.
            if header.startswith(program) and header != "launcher/worker_contract.h":
                seen.add(room_of(header))
        seen.discard(room)
    return edges


def below(edges, room, path=()):
    """All rooms that `room` includes, directly or indirectly."""
    if room in path:
        sys.exit(f"error: rooms include each other: {' -> '.join(path[path.index(room):] + (room,))}")
    found = set()
    for other in edges[room]:
        found |= {other} | below(edges, other, path + (room,))
    return found


def depths(edges):
    """The length of the longest path from main to each room."""
    depth = dict.fromkeys(edges, 0)
    for _ in edges:
        for room, others in edges.items():
            for other in others:
                depth[other] = max(depth[other], depth[room] + 1)
    return depth


def reduced(edges):
    reach = {room: below(edges, room) for room in edges}
    return {room: {o for o in others if not any(o in reach[p] for p in others if p != o)}
            for room, others in edges.items()}


def draw_program(program, left):
    """One program's half of the picture: SVG lines, width and height."""
    edges = edges_of(program)
    arrows = reduced(edges)  # first: it rejects cycles
    level = depths(edges)
    rows = {}
    for room in sorted(edges):
        rows.setdefault(level[room], []).append(room)
    width = max(len(rooms) for rooms in rows.values()) * (BOX + GAP_X) - GAP_X
    place = {}
    for row, rooms in rows.items():
        start = left + (width - (len(rooms) * (BOX + GAP_X) - GAP_X)) / 2
        for index, room in enumerate(rooms):
            place[room] = (start + index * (BOX + GAP_X), MARGIN + TITLE + row * (HIGH + GAP_Y))
    lines = [f'<text class="title" x="{left + width / 2:g}" y="{MARGIN + 8}">{escape(program)}/</text>']
    for room, others in sorted(arrows.items()):
        x, y = place[room]
        for other in sorted(others):
            to_x, to_y = place[other]
            lines.append(f'<path class="arrow" d="M{x + BOX / 2:g} {y + HIGH:g} C{x + BOX / 2:g} {y + HIGH + 34:g} '
                         f'{to_x + BOX / 2:g} {to_y - 38:g} {to_x + BOX / 2:g} {to_y - 5:g}"/>')
    for room, (x, y) in sorted(place.items()):
        label = "main, launch" if (program, room) == ("launcher", "main") else room
        lines.append(f'<rect class="room" x="{x:g}" y="{y:g}" width="{BOX}" height="{HIGH}" rx="6"/>'
                     f'<text class="name" x="{x + BOX / 2:g}" y="{y + HIGH / 2 + 5:g}">{escape(label)}</text>')
    return lines, width, (max(rows) + 1) * (HIGH + GAP_Y) - GAP_Y + TITLE


def picture():
    launcher, width, height = draw_program("launcher", MARGIN)
    second = MARGIN + width + 3 * GAP_X
    trainer, width_2, height_2 = draw_program("trainer", second)
    wide, high = second + width_2 + MARGIN, max(height, height_2) + 2 * MARGIN
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}">\n'
            "<title>Rooms of ddp-run and trainer; an arrow means: includes headers of</title>\n"
            "<style>.room{fill:#eef3fb;stroke:#3b6ea8}.name{font:14px sans-serif;text-anchor:middle;fill:#1b2733}"
            ".title{font:bold 16px sans-serif;text-anchor:middle;fill:#1b2733}"
            ".arrow{fill:none;stroke:#7a8ca3;stroke-width:1.3;marker-end:url(#tip)}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#7a8ca3"/></marker></defs>\n'
            f'<rect width="{wide:g}" height="{high:g}" fill="#fff"/>\n')
    return head + "\n".join(launcher + trainer) + "\n</svg>\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    picture_file.update(PICTURE, picture(), bool(arguments), "include_graph.py")


if __name__ == "__main__":
    main(sys.argv[1:])
