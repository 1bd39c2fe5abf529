"""The regular benchmark: trainer against a plain PyTorch program, in alternation on the same machine.

  scripts/bench/bench.sh [--only NAME ...] [--pairs N] [--quick] [--json FILE] [--docs] [--list]

Each row is measured in pairs, ours and the peer's run one after the other, so that a machine that slows down slows both
down. A figure is the median over all laps of all runs, with the 10th and 90th percentile; a ratio is ours / peer of each
pair, and the gate is held against the median of the pairs. Timings decide nothing but the words `met` and `missed`: the exit
code is 0 unless a program fails.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import report
from parts import Parts
from rows import ROWS
from watch import Failed, watch

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TEXT = ROOT / "data/sample_corpus.txt"
PATIENCE = 1800  # seconds for one run: far above what the longest needs


class Programs:
    def __init__(self):
        def program(variable, default):
            return Path(os.environ.get(variable, ROOT / default)).absolute()  # the runs have folders of their own
        self.trainer = program("TRAINER", "build/release/bin/trainer")
        self.ddp_run = program("DDP_RUN", "build/release/bin/ddp-run")
        self.python = program("PYTHON", ".venv/bin/python")

    def check(self):
        for path, fix in ((self.trainer, "run ./scripts/build.sh, or set TRAINER"),
                          (self.ddp_run, "run ./scripts/build.sh, or set DDP_RUN"),
                          (self.python, "run ./scripts/setup.sh, or set PYTHON")):
            if not path.exists():
                sys.exit(f"error: {path} is missing; {fix}")

    def commit(self):
        """Returns the commit that the measured trainer was built from."""
        said = subprocess.run([self.trainer, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"commit ([0-9a-f]{7})[0-9a-f]*(-dirty)?", said)
        return found[1] + ("+" if found[2] else "") if found else "unknown"

    def version_of_torch(self):
        return subprocess.run([self.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                              check=True).stdout.strip()


def our_model(s):
    if s.kv_heads:
        return {"model": "llama", "llama_config.n_layer": s.layers, "llama_config.n_head": s.heads,
                "llama_config.n_kv_head": s.kv_heads, "llama_config.n_embd": s.width,
                "llama_config.intermediate": s.intermediate}
    return {"gpt_config.n_layer": s.layers, "gpt_config.n_head": s.heads, "gpt_config.n_embd": s.width,
            "gpt_config.embd_pdrop": s.dropout, "gpt_config.resid_pdrop": s.dropout, "gpt_config.attn_pdrop": s.dropout}


def our_command(programs, row, folder):
    s = row.shape
    overrides = {
        "data_config.path": TEXT, "data_config.block_size": row.shape.block, "data_config.train_split": 1,
        "data_config.stride": 1, **our_model(s),
        "trainer_config.batch_size": s.batch, "trainer_config.max_steps": row.steps, "trainer_config.max_epochs": 1000000,
        "trainer_config.log_every_steps": row.log_every, "trainer_config.save_every": 1000000,
        "trainer_config.device": row.device, "hydra.run.dir": folder}
    if row.amp:
        overrides |= {"trainer_config.use_amp": "true", "trainer_config.amp_dtype": row.amp}
    launcher = [] if row.ranks == 1 else [programs.ddp_run, "--standalone", f"--nproc_per_node={row.ranks}"]
    return [*launcher, programs.trainer, "--config", ROOT / "configs/quickstart.yaml",
            *(["~gpt_config"] if s.kv_heads else []), *(f"{key}={value}" for key, value in overrides.items())]


def peer_command(programs, row):
    s = row.shape
    words = [programs.python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={row.ranks}",
             HERE / "peer_train.py", TEXT]
    for name in ("layers", "heads", "width", "block", "batch", "dropout", "kv_heads", "intermediate"):
        words += ["--" + name, getattr(s, name)]
    words += ["--steps", row.steps, "--log_every", row.log_every, "--device", row.device]
    return words + (["--amp", row.amp] if row.amp else []) + (["--compile"] if row.compiled else [])


class Laps:
    """One run's times between reported steps, in seconds per step; the first lap is left out as warm-up."""

    def __init__(self, marks):
        self.marks = marks
        ends = marks[1:] if len(marks) > 2 else marks  # ends[0] is where measuring begins
        steps = max(1, ends[-1].step - ends[0].step)
        self.wall = [(b.wall - a.wall) / (b.step - a.step) for a, b in zip(ends, ends[1:])]
        self.processor = [(b.processor - a.processor) / (b.step - a.step) for a, b in zip(ends, ends[1:])]
        self.mean_wall = (ends[-1].wall - ends[0].wall) / steps
        self.mean_processor = (ends[-1].processor - ends[0].processor) / steps


class Bench(Parts):
    def __init__(self, programs, pairs, quick):
        self.programs, self.pairs, self.quick = programs, pairs, quick
        self.peaks = None  # memory of the ranks of cpu_step_1: (ours, peer) of each pair, bytes

    def measure(self, row):
        """The result of a row as JSON holds it."""
        lacking = lacks(row)
        if lacking:
            return {**report.head(row), "verdict": "skipped", "reason": lacking}
        try:
            return {**report.head(row), **getattr(self, row.kind)(row)}
        except (Failed, subprocess.CalledProcessError) as trouble:
            return {**report.head(row), "verdict": "failed", "reason": report.words_of(trouble)}

    def run_pairs(self, row):
        """[(ours, peer)] as Marks, and both commands."""
        if self.quick:
            row = report.changed(row, steps=min(row.steps, 4), log_every=1)
        variables = {"OMP_NUM_THREADS": str(row.threads)}
        pairs = []
        with tempfile.TemporaryDirectory(prefix="ddp_bench_") as folder:
            theirs = peer_command(self.programs, row)
            for turn in range(self.pairs):
                ours = our_command(self.programs, row, Path(folder, str(turn)))
                pairs.append((watch(ours, folder, variables, PATIENCE), watch(theirs, folder, variables, PATIENCE)))
            commands = {"ours": shlex.join(map(str, our_command(self.programs, row, "RUN_DIR"))),
                        "peer": shlex.join(map(str, theirs))}
        prefix = f"OMP_NUM_THREADS={row.threads} "
        return pairs, {who: prefix + command.replace(str(ROOT) + "/", "") for who, command in commands.items()}

    def step(self, row):
        pairs, commands = self.run_pairs(row)
        laps = [(Laps(ours), Laps(peer)) for ours, peer in pairs]
        if row.name == "cpu_step_1":
            self.peaks = [(ours[-1].memory, peer[-1].memory) for ours, peer in pairs]
        result = {"commands": commands, "losses": [[ours[-1].loss, peer[-1].loss] for ours, peer in pairs]}
        for clock in ("wall", "processor"):
            result[clock] = report.compared(
                [1e3 * lap for ours, _ in laps for lap in getattr(ours, clock)],
                [1e3 * lap for _, peer in laps for lap in getattr(peer, clock)],
                [getattr(ours, "mean_" + clock) / getattr(peer, "mean_" + clock) for ours, peer in laps])
        return {**result, **report.verdict(row, result[row.judged_by]["ratio"]["median"])}

    def memory(self, row):
        if self.peaks is None:
            self.measure(next(row for row in ROWS if row.name == "cpu_step_1"))
        if self.peaks is None:
            raise Failed("cpu_step_1 failed")
        return self.of_pairs(row, [(ours / 1e6, peer / 1e6) for ours, peer in self.peaks])

    def of_pairs(self, row, pairs, commands=None):
        figures = report.compared([a for a, _ in pairs], [b for _, b in pairs], [a / b for a, b in pairs])
        result = {row.judged_by: figures, **({"commands": commands} if commands else {})}
        return {**result, **report.verdict(row, figures["ratio"]["median"])}

    def first_step(self, row):
        pairs, commands = self.run_pairs(row)
        return self.of_pairs(row, [(ours[0].wall, peer[0].wall) for ours, peer in pairs], commands)

    def script(self, *words):
        env = {**os.environ, "TRAINER": str(self.programs.trainer), "DDP_RUN": str(self.programs.ddp_run),
               "PYTHON": str(self.programs.python)}
        done = subprocess.run([str(word) for word in words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{words[0]}: exit code {done.returncode}\n{done.stderr[-500:]}")
        return done.stdout, {"ours": shlex.join(str(word).replace(str(ROOT) + "/", "") for word in words)}

    def our_command(self, row, folder):
        return our_command(self.programs, row, folder)

    def restart(self, row):
        count = 2 if self.quick else 4 * self.pairs
        out, commands = self.script(ROOT / "scripts/checks/chaos.sh", "recovery", count, max(1, self.pairs))
        found = re.findall(r"^(ddp-run|torchrun).*p50 ([\d.]+) s, p99 ([\d.]+) s \[([\d.]+)", out, re.M)
        return report.known(row, {who: {"median": float(p50), "p10": float(low), "p90": float(p99)}
                                  for who, p50, p99, low in found}, commands)

    def stall(self, row):
        out, commands = self.script(ROOT / "scripts/checks/chaos.sh", "stall")
        mean, most = re.search(r"stalled ([\d.]+) ms per save, at most ([\d.]+) ms", out).groups()
        return report.known(row, {"ddp-run": {"median": float(mean), "p10": float(mean), "p90": float(most)}}, commands)

    def generation(self, row):
        out, commands = self.script(self.programs.python, ROOT / "scripts/bench/bench_generate.py", "--trainer", self.programs.trainer,
                                    "--rounds", 1 if self.quick else self.pairs, "--model_type", "llama" if row.shape.kv_heads else "gpt-mini")
        number = r"(\d+) \[(\d+)-(\d+)\]"
        found = re.search(rf"trainer {number}, transformers {number}", out)
        ours, peer = ([float(x) for x in found.groups()[i:i + 3]] for i in (0, 3))
        return report.known(row, {who: dict(zip(("median", "p10", "p90"), figures))
                                  for who, figures in (("ddp-run", ours), ("torchrun", peer))}, commands)


def lacks(row):
    """What a row needs that this machine has not; "" when nothing."""
    if row.needs == "gpu" and not Path("/dev/nvidiactl").exists():
        return "no GPU here"
    flags = Path("/proc/cpuinfo").read_text()
    if row.needs == "bf16" and not re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", flags):
        return "this CPU has no bfloat16 instructions"
    return ""


def measured_here(args, programs):
    """What a figure means nothing without."""
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    flags = Path("/proc/cpuinfo").read_text()
    features = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve2", "bf16") if re.search(rf"\b{name}\b", flags)]
    return {"date": date.today().isoformat(),
            "commit": programs.commit(),
            "cpu": f"{model[1] if model else 'unknown'} ({', '.join(features)})", "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1), "torch": programs.version_of_torch(),
            "command": shlex.join(["scripts/bench/bench.sh", *args])}


def chosen_rows(names, parser):
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            parser.error(f"no row '{name}'; --list names them")
    return [known[name] for name in names] or ROWS


def main():
    parser = argparse.ArgumentParser(prog="bench.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="measure this row; may be repeated")
    parser.add_argument("--pairs", metavar="N", type=int, default=6, help="runs of ours and of the peer (6)")
    parser.add_argument("--quick", action="store_true", help="one pair of a few steps: shows that it works, not how fast")
    parser.add_argument("--json", metavar="FILE", help="where the results go; default: bench.json in the current folder")
    parser.add_argument("--docs", action="store_true", help="write the rows of docs/benchmarks.md")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    args = parser.parse_args()
    rows = chosen_rows(args.only, parser)
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    if args.list:
        print("\n".join(f"{row.name:24}{row.what}" for row in rows))
        return 0
    programs = Programs()
    programs.check()
    bench = Bench(programs, 1 if args.quick else args.pairs, args.quick)
    machine = measured_here(sys.argv[1:], programs)
    results = []
    for row in rows:
        print(f"{row.name} ...", file=sys.stderr, flush=True)
        results.append({**bench.measure(row), "load": round(os.getloadavg()[0], 1)})
    Path(args.json or "bench.json").write_text(json.dumps({"machine": machine, "rows": results}, indent=1) + "\n")
    print(report.table(machine, results))
    if args.docs:
        report.write_docs(ROOT / "docs/benchmarks.md", machine, results)
    return 1 if any(result["verdict"] == "failed" for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
