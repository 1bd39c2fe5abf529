"""Writes what a GPU run measured into docs/gpu_figures.json, and the table of docs/gpus.md from that and from
docs/gpu_predictions.json (predict.py).

  record.py [GPU_CHECK.JSON]      without a file: only the table
"""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- table of gpu_figures.json -->\n", "<!-- end of the table -->\n"
# Ratio to the peer: name: (row, gate, aim, predicted before any measurement, or None: by predict.py).
ROWS = {
    "b16": ("GPT-2's 12 layers of 768, 16 x 1024, against eager PyTorch", 0.85, 0.75, "0.75 to 0.84"),
    "b64": ("the same, 64 x 1024", 0.85, 0.75, None),
    "gpt2_124m_b64": ("GPT-2 124M, vocabulary 50257, 64 x 1024, against eager PyTorch", 0.85, 0.75, None),
    "gpt2_124m_b64_compiled": ("the same against torch.compile", 1.05, 0.95, None),
    "default": ("default model (8 x 512, block 128, batch 216) against eager", 0.80, 0.6, None),
    "small": ("4 layers of 128, block 64, batch 16, against eager", 0.5, 0.3, None),
    "peak_memory": ("peak GPU memory of gpt2_124m_b64 against eager", 0.8, 0.6, None),
    "generation": ("generation, one sequence, against transformers", 0.4, 0.25, "0.06 to 0.15"),
}
FIELDS = ("name", "what", "device", "ours", "peer", "ratio", "unit", "commit", "date", "torch")


def merged(old, new):
    figures = {figure["name"]: figure for figure in old}
    figures |= {figure["name"]: {field: figure[field] for field in FIELDS} for figure in new
                if figure["name"] in ROWS and "ratio" in figure and not figure["device"].startswith("dry run")}
    return [figures[name] for name in ROWS if name in figures]


def prediction(name):
    row = json.loads((DOCS / "gpu_predictions.json").read_text(encoding="utf-8"))[name]
    ours, peer = (f"{row[who]:.3g}" + (" (fitted)" if who in row.get("fitted", ()) else "") for who in ("ours", "peer"))
    return f"{ours}, {peer}, {row['ours'] / row['peer']:.2f}"


def table(figures):
    known = {figure["name"]: figure for figure in figures}
    lines = ["| name | what | gate | aim | predicted: ours, peer, ratio | measured: ours, peer, ratio | on |", "|---|---|---|---|---|---|---|"]
    for name, (what, gate, aim, predicted) in ROWS.items():
        figure = known.get(name)
        measured, where = "not yet", ""
        if figure:
            measured = f"{figure['ours']:.3g}, {figure['peer']:.3g} {figure['unit']}, **{figure['ratio']:.2f}**"
            where = f"{figure['device']}, torch {figure['torch']}, {figure['commit']}, {figure['date']}"
        lines.append(f"| `{name}` | {what} | {gate} | {aim} | {predicted or prediction(name)} | {measured} | {where} |")
    return "\n".join(lines) + "\n"


def with_table(page, figures):
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:begin] + table(figures) + page[end:]


def main():
    path, page = DOCS / "gpu_figures.json", DOCS / "gpus.md"
    figures = json.loads(path.read_text(encoding="utf-8"))
    if len(sys.argv) > 1:
        figures = merged(figures, json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    page.write_text(with_table(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(f"{len(figures)} of {len(ROWS)} figures measured; the table is in {page}")


if __name__ == "__main__":
    main()
