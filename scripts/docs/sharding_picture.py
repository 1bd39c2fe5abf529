#!/usr/bin/env python3
"""One step of two CPU ranks under zero1 and zero3, from trainer's own profiles: measured, then drawn for docs/sharding.md.

  sharding_picture.py measure           writes docs/sharding_profile.json and the picture; needs trainer and an idle machine
  sharding_picture.py draw [--check]    docs/sharding_profile.svg from that file; --check: is it up to date?

DDP_RUN and TRAINER name the programs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import picture_file

ROOT = Path(__file__).resolve().parents[2]
DATA, PICTURE = ROOT / "docs/sharding_profile.json", ROOT / "docs/sharding_profile.svg"
STRATEGIES, RANKS, STEP = ("zero1", "zero3"), 2, 9
MODEL = ["gpt_config.n_layer=4", "gpt_config.n_head=4", "gpt_config.n_embd=256"]
PASSES = ("forward", "backward", "optimizer")
# The collectives' names in docs/sharding.md.
COLLECTIVES = {"reduce_scatter": "reduce-scatter", "all_gather": "all-gather", "gather_pieces": "all-gather", "all_reduce": "all-reduce"}
COLOURS = {"forward": "#4f90d9", "backward": "#5cae69", "optimizer": "#8a8f98", "reduce-scatter": "#d9822b", "all-gather": "#8f5fc2",
           "all-reduce": "#c9a13b"}
LEFT, WIDTH, BAR, TOP = 62, 900, 16, 44


def bars_of(path):
    """The passes and collectives of a rank's profile as (name, begin, end) in microseconds of the machine's clock."""
    trace = json.loads(path.read_text())
    bars = []
    for event in trace["traceEvents"]:
        name = event.get("name", "").removeprefix("shared_memory:")
        if event.get("cat") == "user_annotation" and name in (*PASSES, *COLLECTIVES):
            bars.append((COLLECTIVES.get(name, name), event["ts"], event["ts"] + event["dur"]))
    return sorted(bars, key=lambda bar: bar[1])


def profiled(strategy, folder):
    """The bars of each rank, in milliseconds from the first one's begin."""
    words = [os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run"), "--standalone", f"--nproc_per_node={RANKS}",
             os.environ.get("TRAINER", ROOT / "build/release/bin/trainer"), "--config", "configs/quickstart.yaml", *MODEL,
             "trainer_config.device=cpu", f"trainer_config.max_steps={STEP + 1}", f"trainer_config.snapshot_path={folder}/snapshot.pt",
             f"profile.start={STEP}", "profile.steps=1", f"hydra.run.dir={folder}", f"distributed_config.strategy={strategy}"]
    subprocess.run(list(map(str, words)), cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS="1"), check=True, stdout=subprocess.DEVNULL)
    ranks = [bars_of(Path(folder) / f"profile_rank_{rank}.json") for rank in range(RANKS)]
    first = min(bars[0][1] for bars in ranks)
    return [[(name, round((begin - first) / 1000, 2), round((end - first) / 1000, 2)) for name, begin, end in bars] for bars in ranks]


def measure():
    data = {}
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as folder:
            data[strategy] = profiled(strategy, folder)
    rows = [f'  "{strategy}": [\n    ' + ",\n    ".join(json.dumps(bars) for bars in ranks) + "\n  ]" for strategy, ranks in data.items()]
    DATA.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def rank_rows(rank, bars, y, scale):
    parts = [f'<text x="8" y="{y + 13}">rank {rank}</text>']
    for name, begin, end in bars:
        lane = y if name in PASSES else y + BAR + 2
        parts.append(f'<rect x="{LEFT + begin * scale:.1f}" y="{lane}" width="{max(1.0, (end - begin) * scale):.1f}" height="{BAR}" '
                     f'fill="{COLOURS[name]}"/>')
    return parts


def draw():
    data = json.loads(DATA.read_text(encoding="utf-8"))
    longest = max(bar[2] for ranks in data.values() for bars in ranks for bar in bars)
    scale = (WIDTH - LEFT - 20) / longest
    row = 2 * BAR + 12
    height = TOP + len(data) * (RANKS * row + 34)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img" '
             'aria-label="One step of two ranks under zero1 and under zero3, from profiles">',
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
    x = LEFT
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="14" width="13" height="13" fill="{colour}"/><text x="{x + 19}" y="25">{name}</text>')
        x += 40 + 7 * len(name)
    y = TOP
    for strategy, ranks in data.items():
        milliseconds = max(bar[2] for bars in ranks for bar in bars)
        parts.append(f'<text x="8" y="{y + 14}" font-weight="bold">{strategy}</text>'
                     f'<text x="{LEFT}" y="{y + 14}">{milliseconds:.0f} ms; above: passes of the training thread, below: collectives</text>')
        for rank, bars in enumerate(ranks):
            parts += rank_rows(rank, bars, y + 22 + rank * row, scale)
        y += RANKS * row + 34
    return "\n".join(parts) + "\n</svg>\n"


def main(arguments):
    if arguments == ["measure"]:
        measure()
    elif arguments not in (["draw"], ["draw", "--check"]):
        sys.exit(__doc__)
    picture_file.update(PICTURE, draw(), "--check" in arguments, "docs/sharding_picture.py draw")


if __name__ == "__main__":
    main(sys.argv[1:])
