"""Measures trainer on this machine's GPUs; scripts/gpu_check.sh calls it. Steps run in the order of their worth. Each prints
its figures at once and adds them to OUT/gpu_check.json, so a run that is cut short keeps what it has.

  check.py --out FOLDER [--budget SECONDS] [--rounds N] [--against FOLDER] [--only STEP ...] [--dry-run]

--rounds   of what is compared, each second one in reverse order (default 2)
--budget   a step that would not end within it is left out, which is printed (default 480)
--against  a folder with bin/trainer of an older commit: batch 16 is measured with it, too
--dry-run  on the CPU with tiny models: shows that the steps work, not how fast anything is

TRAINER, DDP_RUN, PYTHON: the programs. Exit code 1 if a step failed.
"""

import argparse
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "scripts/bench"))
import bench  # noqa: E402
import families  # noqa: E402
import gpu_account  # noqa: E402
from report import changed  # noqa: E402
from rows import GPT2, ROWS, Row, Shape  # noqa: E402
from watch import Failed, watch  # noqa: E402

ROW = {row.name: row for row in ROWS}
TINY = {"device": "cpu", "amp": "", "steps": 4, "log_every": 1}
PEAK_FLOPS = 989e12  # bfloat16, dense, of an H100 and an H200 alike
OWN, TORCH = ["trainer_config.fused_gpu_kernels=true"], ["trainer_config.fused_gpu_kernels=false"]
EAGER = {"without CUDA graphs": [*OWN, "trainer_config.cuda_graphs=false"]}
TRACED = 3  # steps


def line_of_graphs(text):
    found = re.search(r"CUDA graphs: (.*)", text)
    return found[1] if found else None


def gpt2_124m(folder, tokens=1 << 18):
    """With the real vocabulary: the row, what ours and what the peer needs for it."""
    row = Row("gpt2_124m_b64", "", shape=Shape(**GPT2, batch=64), device="cuda", amp="bfloat16", log_every=5)
    vocabulary = folder / "vocabulary"
    vocabulary.mkdir(exist_ok=True)
    gpu_account.write_tokens(vocabulary / "tokens.bin", tokens + 1)
    gpu_account.write_tokenizer(vocabulary / "tokenizer.json")
    extra = [f"data_config.path={vocabulary}/tokens.bin", f"data_config.eval_path={vocabulary}/tokens.bin", "gpt_config.tie_weights=true"]
    return row, extra, ["--vocabulary", gpu_account.VOCABULARY, "--tie"]


class Lines:
    """What a watched program printed."""

    def __init__(self):
        self.text = ""

    def started(self, _):
        pass

    def line(self, text):
        self.text += text

    def graphs(self):
        return line_of_graphs(self.text)

    def peak_bytes(self):
        found = re.search(r"GPU memory: peak ([\d.]+)([kMG]?)B", self.text)
        return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]] if found else None


class Check:
    def __init__(self, args):
        self.args, self.dry, self.began = args, args.dry_run, time.monotonic()
        self.programs, self.figures, self.limit = bench.Programs(), [], 60.0
        self.folder = Path(tempfile.mkdtemp(prefix="gpu_check_"))
        args.out.mkdir(parents=True, exist_ok=True)
        self.head = {"device": self.device(), "commit": self.programs.commit(), "date": time.strftime("%Y-%m-%d"),
                     "torch": self.programs.version_of_torch()}

    def device(self):
        if self.dry:
            return "dry run on the CPU"
        return self.output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).strip().replace("\n", "; ")

    def elapsed(self):
        return time.monotonic() - self.began

    def note(self, name, **figures):
        """A figure: to stdout and into the file."""
        self.figures.append({"name": name, **figures, **self.head})
        shown = " ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items())
        print(f"{self.elapsed():5.0f} s  {name}: {shown}", flush=True)
        temporary = self.args.out / "gpu_check.json.tmp"
        temporary.write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.args.out / "gpu_check.json")

    def compared(self, name, what, ours, peer, unit, **more):
        self.note(name, what=what, ours=ours, peer=peer, ratio=ours / peer, unit=unit, **more)

    def output(self, words, variables=None, ok=(0,)):
        """A program's output; raises Failed."""
        try:
            done = subprocess.run([str(word) for word in words], env={**os.environ, **(variables or {})}, cwd=self.folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{words[0]} took longer than {self.limit:.0f} s") from late
        if done.returncode not in ok:
            raise Failed(f"{words[0]}: exit code {done.returncode}: {done.stdout[-600:]}")
        return done.stdout

    # --- training runs -------------------------------------------------------------------------------------------------

    def row(self, row, steps):
        if not self.dry:
            return changed(row, steps=steps)
        shape = dataclasses.replace(row.shape, layers=1, heads=2, width=32, block=32, batch=2, kv_heads=min(row.shape.kv_heads, 2),
                                    intermediate=min(row.shape.intermediate, 64))
        return changed(row, shape=shape, **TINY)

    def timed(self, words):
        """(ms of a step, the last loss, what was printed) of a program that trains."""
        lines = Lines()
        marks = watch(words, self.folder, {"OMP_NUM_THREADS": "1"}, self.limit, lines)
        return 1e3 * statistics.median(bench.Laps(marks).wall), marks[-1].loss, lines

    def ours(self, row, overrides, trainer=None, folder=None):
        words = bench.our_command(self.programs, row, folder or tempfile.mkdtemp(dir=self.folder))
        return self.timed([*(trainer if trainer and word == self.programs.trainer else word for word in words), *overrides])

    def theirs(self, row, options=()):
        # One rank needs no launcher.
        words = bench.peer_command(self.programs, row)
        return self.timed([words[0], *words[words.index(bench.HERE / "peer_train.py"):], *options])

    def runs(self, variants):
        """{name: (ms, loss, lines)}, each the median of some runs; every second round in reverse order."""
        found = {name: [] for name in variants}
        for turn in range(1 if self.dry else self.args.rounds):
            for name in [*variants][::-1 if turn % 2 else 1]:
                found[name].append(variants[name]())
        return {name: sorted(results, key=lambda result: result[0])[len(results) // 2] for name, results in found.items()}

    def pair(self, name, row, steps, what, extra=(), options=(), variants=None, **more):
        """Own kernels against plain PyTorch, and further variants of ours: {name: overrides} or a function."""
        row = self.row(row, steps)
        found = self.runs({"own kernels": lambda: self.ours(row, [*OWN, *extra]),
                           **{key: (lambda overrides=value: self.ours(row, [*overrides, *extra])) for key, value in (variants or {}).items()},
                           **({"before": lambda: self.ours(row, [*OWN, *extra], self.args.against / "bin/trainer")}
                              if self.args.against and name == "b16" else {}),
                           "peer": lambda: self.theirs(row, options)})
        ours, peer = found["own kernels"], found["peer"]
        for key in found.keys() - {"own kernels", "peer"}:
            self.compared(f"{name}, {key}", f"{what}; {key}", found[key][0], peer[0], "ms/step")
        self.compared(name, what, ours[0], peer[0], "ms/step", losses=[ours[1], peer[1]], graphs=ours[2].graphs(), **more)
        return row, ours, peer

    # --- steps -----------------------------------------------------------------------------------------------------------

    def doctor(self):
        ranks = 2 if self.dry else "gpu"
        text = self.output([self.programs.ddp_run, "--standalone", f"--nproc_per_node={ranks}", self.programs.trainer, "doctor"])
        self.note("doctor", verdict="All checks passed" if "All checks passed" in text else text[-300:])

    def suspects(self):
        device = ["--device", "cpu", "--repeat", "3"] if self.dry else []
        for line in self.output([self.programs.python, HERE / "suspects.py", *device]).splitlines():
            if line.startswith("{"):
                figures = json.loads(line)
                self.note("alone: " + figures.pop("name"), **figures)

    def b16(self):
        self.ours(self.row(ROW["gpu_gpt2_b16"], 12), OWN)  # compiles the kernels, reads the programs from the disk
        self.pair("b16", ROW["gpu_gpt2_b16"], 60, ROW["gpu_gpt2_b16"].what, variants={"torch's operations": TORCH, **EAGER})

    def traces(self):
        self.traced("b16", ROW["gpu_gpt2_b16"], variants={"own kernels": OWN, "torch's operations": TORCH})

    def more_traces(self):
        row, extra, options = self.gpt2_124m_row()
        self.traced("gpt2_124m_b64", row, extra, options)
        self.traced("default", ROW["gpu_default"])
        self.traced("small", ROW["gpu_small"])

    def traced(self, what, row, extra=(), options=(), variants=None):
        """Where the time of ours and of the peer's step goes, launch by launch."""
        row = self.row(row, 40)
        first = 1 if self.dry else 30
        row = changed(row, steps=max(row.steps, first + TRACED + 2))
        for name, overrides in (variants or {"own kernels": OWN}).items():
            folder = tempfile.mkdtemp(dir=self.folder)
            self.ours(row, [*overrides, *extra, "trainer_config.cuda_graphs=false", f"profile.start={first}", f"profile.steps={TRACED}"], folder=folder)
            self.trace(f"{what}, {name}", Path(folder, "profile_rank_0.json"))
        peer = self.folder / "peer_trace.json"
        self.theirs(row, [*options, "--trace", peer, "--trace_from", first, "--trace_steps", TRACED])
        self.trace(f"{what}, peer", peer)

    def trace(self, name, path):
        found = families.account(path, TRACED)
        if found is None:
            self.note(f"trace of {name}", kernels="none, no GPU")
            return
        print("\n".join(families.lines(found)), flush=True)
        self.note(f"trace of {name}", busy_ms=found["busy_ms"], idle=found["idle"], launches=found["launches"],
                  families={key: round(ms, 3) for key, ms, _ in found["families"]})

    def b64(self):
        self.pair("b64", ROW["gpu_gpt2_b64"], 40, "the same, batch 64", variants={"torch's operations": TORCH})

    def gpt2_124m_row(self):
        return gpt2_124m(self.folder, 1 << 12 if self.dry else 4 << 20)

    def gpt2_124m(self):
        """The real vocabulary; what it takes of the GPU's memory; the peer compiled."""
        row, extra, options = self.gpt2_124m_row()
        what = "a step of GPT-2 124M, vocabulary 50257, 64 x 1024 tokens, bfloat16"
        row, ours, peer = self.pair("gpt2_124m_b64", row, 30, what, extra, options)
        if not self.dry:
            self.note("gpt2_124m_b64, share of 989 TFLOP/s", ours=gpu_account.model_flops(64 * 1024, 1024) / ours[0] / 1e-3 / PEAK_FLOPS,
                      unit="share")
            self.compared("peak_memory", what, ours[2].peak_bytes() / 1e9, peer[2].peak_bytes() / 1e9, "GB of tensors")
            compiled = self.theirs(changed(row, compiled=True), options)
            self.compared("gpt2_124m_b64_compiled", what + "; the peer under torch.compile", ours[0], compiled[0], "ms/step")

    def default(self):
        self.pair("default", ROW["gpu_default"], 60, "a step of " + ROW["gpu_default"].what, variants={"torch's operations": TORCH, **EAGER})

    def small(self):
        self.pair("small", ROW["gpu_small"], 120, "a step of 4 layers of 128, block 64, batch 16", variants=EAGER)

    def kernels(self):
        library = next((folder / "libtrainer_kernels.so" for folder in (self.programs.trainer.parent, self.programs.trainer.parent.parent / "lib")
                        if (folder / "libtrainer_kernels.so").exists()), None)
        if library is None:
            raise Failed("libtrainer_kernels.so is not next to trainer")
        wrong = []
        for line in self.output([self.programs.python, HERE / "kernel_numbers.py", library], ok=(0, 1)).splitlines():
            if line.startswith("{"):
                figures = json.loads(line)
                name = figures.pop("name")
                self.note("kernel: " + name, **figures)
                wrong += [name] if figures["verdict"] == "wrong" else []
        if wrong:
            raise Failed("wrong results of " + ", ".join(wrong))

    def training(self, name, *overrides, ranks=1, restarts=0, tools=(), device=None):
        """A short training of a small model; its folder."""
        folder = self.folder / name
        device = device or ("cpu" if self.dry else "cuda")
        self.output([*([] if tools else [self.programs.ddp_run, "--standalone", f"--nproc_per_node={ranks}", f"--max-restarts={restarts}"]),
                     *tools, self.programs.trainer, "--config", ROOT / "configs/quickstart.yaml", f"trainer_config.device={device}",
                     f"data_config.path={bench.TEXT}", f"hydra.run.dir={folder}", f"trainer_config.snapshot_path={folder}/snapshot.pt",
                     "trainer_config.log_every_steps=1", "trainer_config.eval_iters=2", "trainer_config.sample_every_steps=0", *overrides])
        return folder

    def losses(self, folder):
        rows = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
        return {row["step"]: row["loss"] for row in rows if row["split"] == "train"}

    def difference(self, name, a, b, **more):
        a, b = self.losses(a), self.losses(b)
        self.note(name, steps=len(a.keys() & b.keys()), largest_difference=max(abs(a[step] - b[step]) for step in a.keys() & b.keys()), **more)

    def digits(self):
        """One seed twice, stop and resume, graphs and single launches, and the CPU's losses."""
        exact = ["trainer_config.deterministic=true"]
        first = self.training("first", *exact, "trainer_config.max_steps=12")
        self.difference("one seed twice", first, self.training("again", *exact, "trainer_config.max_steps=12"))
        self.training("resumed", *exact, "trainer_config.max_steps=6")
        self.difference("stopped and resumed", first, self.training("resumed", *exact, "trainer_config.max_steps=12"))
        graphs = "trainer_config.cuda_graphs=auto" if self.dry else "trainer_config.cuda_graphs=true"
        graphed = self.training("graphs", *exact, graphs, "trainer_config.max_steps=24")
        self.difference("graphs and eager", graphed, self.training("eager", *exact, "trainer_config.cuda_graphs=false", "trainer_config.max_steps=24"),
                        graphs=line_of_graphs((graphed / "main.log").read_text(encoding="utf-8")))
        self.difference("beside the CPU", self.training("here", "trainer_config.max_steps=4"),
                        self.training("cpu", "trainer_config.max_steps=4", device="cpu"))

    def killed(self):
        whole = self.training("whole", "trainer_config.max_steps=12", "trainer_config.deterministic=true")
        killed = self.training("killed", "trainer_config.max_steps=12", "trainer_config.deterministic=true", "trainer_config.ram_snapshots=true",
                               "trainer_config.fault_plan=['rank=0 step=8 phase=backward kind=kill']", restarts=1)
        self.difference("killed and restarted", whole, killed)

    def generation(self):
        text = self.output([self.programs.python, ROOT / "scripts/bench/bench_generate.py", "--trainer", self.programs.trainer,
                            "--device", "cpu" if self.dry else "cuda", "--rounds", "1" if self.dry else "5", "--threads", "1"])
        found = re.search(r"trainer (\d+) .*transformers (\d+) .*; texts (\w+)", text)
        if not found:
            raise Failed(text[-300:])
        # Time per token, so that less is better as in every row.
        self.compared("generation", "gpt-mini, one sequence, greedy, second text of a process, beside transformers",
                      1e3 / float(found[1]), 1e3 / float(found[2]), "ms/token", texts=found[3], graphs=line_of_graphs(text))

    def llama(self):
        shape = Shape(layers=12, heads=12, width=768, block=1024, batch=16, dropout=0.0, kv_heads=12, intermediate=2048)
        row = Row("llama", "", shape=shape, device="cuda", amp="bfloat16", log_every=10)
        self.pair("llama_b16", row, 40, "a Llama's 12 layers of 768, 16 x 1024 tokens, bfloat16, beside transformers")

    def sanitizer(self):
        tiny = ["gpt_config.n_layer=1", "data_config.block_size=32", "trainer_config.batch_size=2", "trainer_config.max_steps=2",
                "trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"]
        for tool in ("memcheck", "racecheck"):
            self.training(f"san_{tool}", *tiny, tools=("compute-sanitizer", "--tool", tool, "--kernel-name", "kns=ddp_", "--error-exitcode", "9"))
            self.note(f"compute-sanitizer {tool}", verdict="no error in trainer's kernels")

    def counts(self):
        text = self.output([self.programs.python, ROOT / "scripts/checks/gpu_counts.py"])
        self.note("counts of a step", verdict="equal to fake GPUs'", rows=text.count("\n"))


# Name, seconds on an H100, needs a GPU.
STEPS = (("doctor", 15, False), ("suspects", 25, False), ("b16", 90, False), ("traces", 45, False), ("b64", 60, False),
         ("gpt2_124m", 110, False), ("default", 55, False), ("kernels", 20, True), ("small", 50, False), ("more_traces", 60, False), ("generation", 35, False),
         ("digits", 40, False), ("killed", 20, False), ("sanitizer", 45, True), ("llama", 40, False), ("counts", 90, True))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=480)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", nargs="+", choices=[name for name, _, _ in STEPS])
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args()
    args.out, args.against = args.out.absolute(), args.against and args.against.absolute()
    return args


def main():
    args = arguments()
    check = Check(args)
    print(f"{check.head}", flush=True)
    failed, left_out = [], []
    for name, seconds, needs_gpu in STEPS:
        if args.only and name not in args.only:
            continue
        remaining = args.budget - check.elapsed()
        if needs_gpu and args.dry_run or seconds > remaining:
            left_out.append(name)
            check.note(name, left_out="needs a GPU" if needs_gpu and args.dry_run else f"needs {seconds} s, {max(remaining, 0):.0f} s left")
            continue
        check.limit = remaining if args.dry_run else min(remaining, 2.5 * seconds)
        try:
            getattr(check, name)()
        except (Failed, OSError, ValueError, KeyError, TypeError) as trouble:
            failed.append(name)
            check.note(name, failed=str(trouble).strip()[-600:])
    print(f"{check.elapsed():.0f} s; {len(check.figures)} figures in {args.out / 'gpu_check.json'}"
          + (f"; left out: {', '.join(left_out)}" if left_out else "") + (f"; failed: {', '.join(failed)}" if failed else ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
