"""Rows of the regular benchmark that are not steps of training: loader, all-reduce, evaluation, restarts with spares."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import report
from watch import Failed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TEXT = ROOT / "data/sample_corpus.txt"
PATIENCE = 1800  # seconds


class Ended:
    """A program that has ended: its output, and the seconds that it and all its children took."""

    def __init__(self, command, threads):
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
        before, began = os.times(), time.monotonic()
        done = subprocess.run([str(word) for word in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=PATIENCE)
        after = os.times()
        if done.returncode != 0:
            raise Failed(f"{command[0]}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-500:]}")
        self.out, self.wall = done.stdout, time.monotonic() - began
        self.processor = sum(after[2:4]) - sum(before[2:4])

    def find(self, pattern):
        found = re.search(pattern, self.out)
        if not found:
            raise Failed(f"no '{pattern}' in: {self.out[-500:]}")
        return found


def shown(command):
    return shlex.join(map(str, command)).replace(str(ROOT) + "/", "")


class Parts:
    """The benchmarks themselves; a base of the class Bench, which has programs, pairs and quick."""

    # (ours, peer) of each pair, once for all rows that they are for
    reduced = None
    restarts = None

    def turns(self, ours, peer, threads):
        return [(Ended(ours, threads), Ended(peer, threads)) for _ in range(self.pairs)]

    def rates(self, row, pairs, commands):
        """`pairs`: two dictionaries each, units a second by each clock."""
        result = {"commands": commands}
        for clock in pairs[0][0]:
            result[clock] = report.compared([a[clock] for a, _ in pairs], [b[clock] for _, b in pairs],
                                            [a[clock] / b[clock] for a, b in pairs])
        return {**result, **report.verdict(row, result[row.judged_by]["ratio"]["median"])}

    def loader(self, row):
        s, short = row.shape, 50 if self.quick else 1
        program = self.programs.trainer.parent / "ddp_loader_bench"
        if not program.exists():
            raise Failed(f"{program} is missing; run ./scripts/build.sh release ddp_loader_bench")
        ours = [program, TEXT, s.block, s.batch, 50000 // short]
        peer = [self.programs.python, HERE / "peer_loader.py", TEXT, s.block, s.batch, 5000 // short]

        def rate(ended):
            tokens, wall, processor = map(float, ended.find(r"(\d+) tokens, ([\d.]+) s, ([\d.]+) s").groups())
            return {"wall": tokens / wall, "processor": tokens / processor}
        pairs = [(rate(a), rate(b)) for a, b in self.turns(ours, peer, 1)]
        return self.rates(row, pairs, {"ours": shown(ours), "peer": shown(peer)})

    def all_reduce(self, row):
        sizes = (4 << 10, 256 << 10, 16 << 20)  # doctor's
        ours = [self.programs.ddp_run, "--standalone", "--nproc_per_node=2", self.programs.trainer, "doctor", "--json"]
        peer = [self.programs.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
                HERE / "peer_all_reduce.py", *sizes]
        if Parts.reduced is None:
            def theirs(ended):
                return {int(size): float(us) for size, us in re.findall(r"all_reduce (\d+) ([\d.]+)", ended.out)}

            def own(ended):
                runs = json.loads(ended.out)["Collectives"]["runs"]
                return {run["bytes"]: run["median_us"] for run in runs if run["name"] == "all_reduce"}
            Parts.reduced = [(own(a), theirs(b)) for a, b in self.turns(ours, peer, 1)]
        pairs = [tuple({"wall": row.bytes / us[row.bytes] / 1e3} for us in pair) for pair in Parts.reduced]
        return self.rates(row, pairs, {"ours": shown(ours), "peer": shown(peer)})

    def evaluation(self, row):
        """Two lengths of text: what the programs need to start is in both."""
        s, blocks = row.shape, (20, 620) if self.quick else (1000, 7000)
        with tempfile.TemporaryDirectory(prefix="ddp_bench_") as folder:
            snapshot, corpus = Path(folder, "snapshot.pt"), TEXT.read_text(encoding="utf-8")
            Ended([*self.our_command(report.changed(row, steps=1), folder), f"trainer_config.snapshot_path={snapshot}"], 1)
            texts = [Path(folder, f"{count}.txt") for count in blocks]
            for text, count in zip(texts, blocks):
                length = count * s.block + 1
                text.write_text((corpus * (length // len(corpus) + 1))[:length], encoding="utf-8")
            ours = [self.programs.trainer, "eval", "--snapshot", snapshot, "--json", "--device", "cpu", "--data"]
            peer = [self.programs.python, HERE / "peer_eval.py", snapshot, TEXT, "--layers", s.layers, "--heads", s.heads,
                    "--width", s.width, "--block", s.block, "--batch", s.batch]
            turns = [self.turns([*ours, text], [*peer, text], row.threads) for text in texts]
        tokens = (blocks[1] - blocks[0]) * s.block

        def rate(short, long):
            return {"wall": tokens / (long.wall - short.wall), "processor": tokens / (long.processor - short.processor)}
        pairs = [(rate(a, c), rate(b, d)) for (a, b), (c, d) in zip(*turns)]
        losses = [[json.loads(a.out)["loss"], float(b.find(r"loss ([\d.]+)")[1])] for a, b in turns[1]]
        names = {str(folder) + "/": ""}
        commands = {"ours": shown([*ours, texts[1]]), "peer": shown([*peer, texts[1]])}
        for name, short in names.items():
            commands = {who: command.replace(name, short) for who, command in commands.items()}
        return {"losses": losses, **self.rates(row, pairs, commands)}

    def spares(self, row):
        """Ours: with warm spares; the peer: the same job without."""
        count = 2 if self.quick else 4 * self.pairs
        out, commands = self.script(self.programs.python, ROOT / "scripts/bench/bench_spares.py", count)
        figures = {name: {"median": float(p50), "p10": float(p10), "p90": float(p90)} for name, p10, p50, p90 in re.findall(
            r"^(with|without) +p10 ([\d.]+) s, p50 ([\d.]+) s, p90 ([\d.]+) s", out, re.M)}
        ratio = dict(zip(("p10", "median", "p90"), map(float, re.search(
            r"^ratio +p10 ([\d.]+), p50 ([\d.]+), p90 ([\d.]+)", out, re.M).groups())))
        found = {"ours": figures["with"], "peer": figures["without"], "ratio": ratio}
        return {"commands": commands, "text": out, row.judged_by: found,
                **report.verdict(row, figures["with"]["median"])}
