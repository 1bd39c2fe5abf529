"""Predicts the rows of docs/gpus.md's table for an H200 and writes docs/gpu_predictions.json; needs no GPU.

  scripts/bench.sh gpu_predict

Trainer and the peer each run on the fake GPU, which counts a step's launches and each operator's bytes and FLOPs. An operator
takes the longest of bytes / bandwidth, FLOPs / rate and 2.7 us a call; the peer's step takes the longer of that sum and the
host's time for its launches, which trainer replays as CUDA graphs. Bandwidths and rates are what an H200 attained in the row
`b16` by family, 2.7 us is the mean kernel of `small` (docs/gpus.md), and the host's time per launch what the peer of `small` took:
that cell and `b16` are fitted, and the peer of `default` rests on the same time per launch ("fitted" in the JSON). torch.compile
is taken to move the bytes of trainer's own kernels with the loss in one piece. A model, not a measurement.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "scripts/bench"), str(HERE)]
import bench  # noqa: E402
from check import ROW, Lines, gpt2_124m  # noqa: E402
from gpu_account import difference, operators  # noqa: E402
from report import changed  # noqa: E402

BANDWIDTH, PEAK = 4.8e12, 989e12  # NVIDIA's data sheet: H200, dense bfloat16
# ms of b16 by family on an H200, without graphs: trainer's and eager PyTorch's.
MEASURED = {"ours": {"products": 11.8, "attention": 3.7, "own kernels": 6.1, "other": 2.6},
            "peer": {"products": 12.1, "attention": 3.7, "other": 15.0}}
PEER_OF_SMALL = 9.6  # ms, bound by the host; 13.4 on another machine
SHORTEST = 2.7e-6  # s a kernel: `small` without graphs worked 0.88 ms in 329 launches
FITTED = {"b16": ["ours", "peer"], "small": ["peer"], "default": ["peer"]}  # by MEASURED or by PEER_OF_SMALL
WITHOUT_EXIT = "import os, runpy, sys; os._exit = sys.exit; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
BY_FLOPS = ("products", "attention")  # other families are bound by bytes
Step = collections.namedtuple("Step", "rows launches peak_gb")


def work(op, row):
    return row[2] if family(op) in BY_FLOPS else row[1]


def family(name):
    if name.startswith("ddp_"):
        return "own kernels"
    if name.rsplit("::", 1)[-1] in ("mm", "bmm", "addmm", "baddbmm"):
        return "products"
    return "attention" if "attention" in name else "other"


class Runs:
    """Steps on the fake GPU."""

    def __init__(self, folder):
        self.folder, self.programs = folder, bench.Programs()
        found = subprocess.run([self.programs.python, "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True, check=True)
        torch, links = Path(found.stdout.strip()), folder / "python"
        build = Path(os.environ.get("DDP_BUILD", ROOT / "build/release"))
        # Python's torch looks next to itself first, where the wheels' real CUDA libraries are.
        for place, target in [*((f"torch/{path.name}", path) for path in torch.iterdir() if path.name != "lib"),
                              *((f"torch/lib/{path.name}", path) for path in (torch / "lib").iterdir()),
                              ("nvidia/cu13/lib", build / "tests/support/fake_cuda/lib")]:
            (links / place).parent.mkdir(parents=True, exist_ok=True)
            (links / place).symlink_to(target)
        self.python_path = links

    def ledger(self, words):
        """(the ledger, what was printed)"""
        report = self.folder / "ledger.json"
        report.unlink(missing_ok=True)
        environment = dict(os.environ, FAKECUDA_NUMERICS="0", FAKECUDA_ACCOUNT="1", PYTHONPATH=str(self.python_path))
        command = [ROOT / "scripts/fake_gpu.sh", "--memory", "141", "--report", report, *words]
        done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"gpu_predict: {words[0]} failed:\n{done.stdout[-800:]}{done.stderr[-800:]}")
        lines = Lines()
        lines.line(done.stdout + done.stderr)
        return json.loads(report.read_text().splitlines()[-1]), lines

    def step(self, words_of, steps=3):
        (more, lines), (less, _) = self.ledger(words_of(steps)), self.ledger(words_of(steps - 1))
        return Step(difference(operators(more), operators(less)), more["launches"] - less["launches"], lines.peak_bytes() / 1e9)

    def ours(self, row, extra, graphs=False):
        def words(steps):
            folder = tempfile.mkdtemp(dir=self.folder)
            return [*bench.our_command(self.programs, changed(row, steps=steps, log_every=100), folder), *extra,
                    f"trainer_config.cuda_graphs={'auto' if graphs else 'false'}"]
        return self.step(words, 9 if graphs else 3)

    def peer(self, row, options):
        def words(steps):
            command = bench.peer_command(self.programs, changed(row, steps=steps, log_every=100))
            return [command[0], "-B", "-c", WITHOUT_EXIT, *command[command.index(bench.HERE / "peer_train.py"):], *options]
        return self.step(words)


class Model:
    """Bandwidths and rates, fitted to b16, and the peer's host time per launch, fitted to small."""

    def __init__(self, b16, small):
        self.rates, self.launch = {}, PEER_OF_SMALL / small["peer"].launches / 1e3
        for who, families in MEASURED.items():
            for name, ms in families.items():
                self.rates[who, name] = rate = sum(work(op, row) for op, row in b16[who].rows.items() if family(op) == name) / ms * 1e3
                unit, sheet = ("FLOP", PEAK) if name in BY_FLOPS else ("B", BANDWIDTH)
                print(f"{who}, {name}: {rate / 1e12:.3g} T{unit}/s, {rate / sheet:.0%} of the data sheet's")
        print(f"peer: {self.launch * 1e6:.1f} us of the host per launch")

    def ms(self, who, step):
        gpu = sum(max(work(op, row) / self.rates[who, family(op)], row[0] * SHORTEST) for op, row in step.rows.items())
        return 1e3 * max(gpu, step.launches * self.launch if who == "peer" else 0)


def rounded(x):
    return float(f"{x:.4g}")


def predictions(runs):
    """{row: its prediction}"""
    gpt2, extra, options = gpt2_124m(runs.folder)
    rows = {"b16": (ROW["gpu_gpt2_b16"], [], []), "small": (ROW["gpu_small"], [], []), "default": (ROW["gpu_default"], [], []),
            "b64": (ROW["gpu_gpt2_b64"], [], []), "gpt2_124m_b64": (gpt2, extra, options)}
    steps = {name: {"ours": runs.ours(row, ours), "peer": runs.peer(row, theirs)} for name, (row, ours, theirs) in rows.items()}
    model = Model(steps["b16"], steps["small"])
    found = {}
    for name, step in steps.items():
        replayed = runs.ours(*rows[name][:2], graphs=True).launches
        times = {who: rounded(model.ms(who, step[who])) for who in ("ours", "peer")}
        found[name] = {**times, "unit": "ms/step", "launches": [replayed, step["peer"].launches],
                       "gb": [rounded(sum(row[1] for row in step[who].rows.values()) / 1e9) for who in times]}
        if name in FITTED:
            found[name]["fitted"] = FITTED[name]
    whole = runs.ours(gpt2, [*extra, "gpt_config.loss_chunk_size=0"])
    found["gpt2_124m_b64_compiled"] = {"ours": found["gpt2_124m_b64"]["ours"], "peer": rounded(model.ms("ours", whole)), "unit": "ms/step"}
    found["peak_memory"] = {who: steps["gpt2_124m_b64"][who].peak_gb for who in ("ours", "peer")} | {"unit": "GB of tensors"}
    return found


def main():
    argparse.ArgumentParser(prog="scripts/bench.sh gpu_predict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu_predict_") as folder:
        found = predictions(Runs(Path(folder)))
    for name, row in found.items():
        print(f"{name}: {row['ours']:.3g}, {row['peer']:.3g} {row['unit']}, {row['ours'] / row['peer']:.2f}"
              + (f"; launches {row['launches']}, GB [{row['gb'][0]:.3g}, {row['gb'][1]:.3g}]" if "gb" in row else ""))
    lines = (f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    (ROOT / "docs/gpu_predictions.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
