"""What `trainer plan` predicts against what runs need: peak memory of the largest rank and seconds a step, over plans of every
kind on CPU ranks.

  scripts/bench.sh plan [--part memory|time] [--steps N] [--rounds N] [--only WORD ...]

Each plan is a division on 2 or 4 ranks with one thread each. The peak is the kernel's VmHWM of the rank that has most, with the
program and a snapshot at the end; the step is the run's median. Both are read from run_summary.json. Links are
measured by `trainer doctor --json` on as many ranks. The rate of computation is that of as many
separate processes as the plan has ranks, which train the same model at the same time. Rounds repeat all of it in turn, medians count.
Memory does not depend on the machine's load: --part memory leaves out the links, the rate and the columns of time.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench import PATIENCE, Programs, measured_here
from bench_zero import write_text

ROOT = Path(__file__).resolve().parents[2]
CHOICES_WITHIN = 1.10  # the planner's first choice may be this much slower than the best measured


@dataclass(frozen=True)
class Case:
    """A model and batch; every strategy and number of ranks of it is a plan."""
    name: str
    layers: int
    width: int
    vocabulary: int
    block: int
    batch: int
    accumulation: int
    ema: bool
    model: str = "gpt"

    def overrides(self, tokens, steps, run):
        return {
            "data_config.path": tokens, "data_config.block_size": self.block, "data_config.train_split": 1,
            f"{self.model}_config.n_layer": self.layers, f"{self.model}_config.n_head": 8,
            f"{self.model}_config.n_embd": self.width, f"{self.model}_config.tie_weights": "true",
            "trainer_config.batch_size": self.batch,
            "trainer_config.grad_accumulation_steps": self.accumulation, "trainer_config.ema_decay": 0.99 if self.ema else 0,
            "trainer_config.max_steps": steps, "trainer_config.max_epochs": 1000000, "trainer_config.save_every": 1000000,
            "optimizer_config.warmup_steps": 0, "trainer_config.device": "cpu", "hydra.run.dir": run}

    def flops(self):
        """Returns the operations per sample, as trainer counts them."""
        parameters = self.layers * 12 * self.width ** 2 + self.vocabulary * self.width
        return (6 * parameters + 12 * self.layers * self.width * self.block) * self.block


CASES = [
    Case("small", 6, 512, 8192, 128, 2, 1, ema=False),
    Case("accumulating", 6, 512, 8192, 128, 2, 4, ema=False),
    Case("wide", 4, 768, 8192, 128, 1, 2, ema=True),
    Case("long", 4, 512, 8192, 512, 2, 2, ema=False),
    Case("llama", 6, 512, 8192, 128, 2, 2, ema=False, model="llama"),
]


@dataclass(frozen=True)
class Division:
    """The fields of distributed_config that divide the work."""
    strategy: str = "ddp"
    tensor: int = 1
    pipeline: int = 1
    sequence_parallel: bool = False
    pipeline_schedule: str = "1f1b"
    pipeline_chunks: int = 1

    def name(self):
        shared = f"-tensor{self.tensor}{'sp' if self.sequence_parallel else ''}" if self.tensor > 1 else ""
        return self.strategy + shared + (f"-pipeline{self.pipeline}-{self.pipeline_schedule}" if self.pipeline > 1 else "")

    def overrides(self, accumulation):
        keys = {f"distributed_config.{key}": str(value).lower() for key, value in vars(self).items()}
        return {**keys, "trainer_config.grad_accumulation_steps": accumulation * self.tensor * self.pipeline}


ON_TWO = [Division(), Division("zero1"), Division("zero3"), Division(tensor=2), Division(tensor=2, sequence_parallel=True),
          Division(pipeline=2), Division(pipeline=2, pipeline_schedule="gpipe"),
          Division(pipeline=2, pipeline_schedule="interleaved", pipeline_chunks=2)]
ON_FOUR = [Division("zero2"), Division(tensor=2), Division(tensor=4), Division("zero1", tensor=2), Division("zero3", tensor=2),
           Division(pipeline=2), Division("zero1", pipeline=2), Division(tensor=2, pipeline=2)]
LLAMA, TWO_MORE = CASES[-1], [Division(tensor=2), Division(pipeline=2)]
PLANS = [(case, division, 2) for case in CASES if case != LLAMA for division in ON_TWO]
PLANS += [(CASES[0], Division(pipeline=3), 3)]
PLANS += [(CASES[1], division, 4) for division in ON_FOUR]
PLANS += [(LLAMA, division, 2) for division in TWO_MORE] + [(LLAMA, Division(tensor=2, pipeline=2), 4)]


def name_of(plan):
    case, division, ranks = plan
    return f"{case.name}-{ranks}-{division.name()}"


class PlanBench:
    def __init__(self, programs, folder, args):
        self.programs, self.folder, self.args, self.links, self.runs = programs, folder, args, {}, 0
        write_text(folder / "text.txt")
        self.run([programs.trainer, "tokenize", "--tokenizer", "bpe", "--train", "--vocab_size", CASES[0].vocabulary, "--input",
                  folder / "text.txt", "--output", folder / "tokens"])

    def run(self, command):
        done = subprocess.run(list(map(str, command)), cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True,
                              capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            sys.exit(f"error: {shlex.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def launched(self, ranks, words):
        return self.run([self.programs.ddp_run, "--standalone", f"--nproc_per_node={ranks}", self.programs.trainer, *words])

    def link(self, ranks):
        """GB/s between two ranks: a ring's all-reduce sends 2 (N - 1) / N of its bytes."""
        if ranks not in self.links:
            report = json.loads(self.launched(ranks, ["doctor", "--json"]))["Collectives"]
            largest = max((run for run in report["runs"] if run["name"] == "all_reduce"), key=lambda run: run["bytes"])
            self.links[ranks] = 2 * (ranks - 1) / ranks * largest["bytes"] / largest["median_us"] / 1000
        return self.links[ranks]

    def config(self, case, run, steps=None):
        overrides = case.overrides(self.folder / "tokens", steps or self.args.steps, run)
        base = {"gpt": "quickstart.yaml", "llama": "llama_char.yaml"}[case.model]
        return ["--config", ROOT / "configs" / base, *(f"{key}={value}" for key, value in overrides.items())]

    def summary(self, run):
        return json.loads((run / "run_summary.json").read_text(encoding="utf-8"))

    def rate(self, case, ranks):
        """FLOP/s of each of as many processes as there are ranks."""
        runs = [self.fresh(f"alone-{i}") for i in range(ranks)]
        commands = [[self.programs.trainer, *self.config(case, run)] for run in runs]
        with ThreadPoolExecutor(ranks) as pool:
            list(pool.map(self.run, commands))
        update = 28 / 14e9  # seconds for each parameter, as the planner has it
        parameters = case.flops() / case.block / 6
        seconds = [self.summary(run)["median_step_seconds"] - update * parameters for run in runs]
        return case.flops() * case.batch * case.accumulation / statistics.median(seconds)

    def fresh(self, name):
        self.runs += 1
        return self.folder / f"{name}-{self.runs}"

    def planned(self, case, ranks):
        speeds = [] if self.args.part == "memory" else \
            ["--link", self.link(ranks), "--tflops", self.rate(case, ranks) / 1e12, "--efficiency", 1]
        said = self.run([self.programs.trainer, "plan", *self.config(case, self.folder / "planned"), "--gpus", ranks, "--memory",
                         64, *speeds, "--json"])
        answer = json.loads(said)
        return {Division(**{key: each[key] for key in vars(Division())}): each for each in [*answer["plans"], answer["choice"]]}, \
            Division(**{key: answer["choice"][key] for key in vars(Division())})

    def measured(self, plan):
        case, division, ranks = plan
        run = self.fresh(name_of(plan))
        divided = (f"{key}={value}" for key, value in division.overrides(case.accumulation).items())
        self.launched(ranks, [*self.config(case, run), *divided])
        summary = self.summary(run)
        return {"memory": max(summary["peak_memory_bytes"]), "step": summary["median_step_seconds"]}

    def round(self, plans):
        """Each plan's prediction and measurement, by name."""
        found = {}
        for case, ranks in dict.fromkeys((case, ranks) for case, _, ranks in plans):
            predicted, chosen = self.planned(case, ranks)
            for plan in plans:
                if (plan[0], plan[2]) != (case, ranks):
                    continue
                expected = predicted[plan[1]]
                if not expected["accepted"]:
                    sys.exit(f"error: {name_of(plan)}: {expected['reason']}")
                found[name_of(plan)] = {"planned": {"memory": expected["memory_bytes"], "step": expected["step_seconds"],
                                                    "chosen": f"{case.name}-{ranks}-{chosen.name()}"},
                                        "measured": self.measured(plan)}
                print(f"{name_of(plan)}: {found[name_of(plan)]}", file=sys.stderr, flush=True)
        return found


def shown(part):
    """The figures of `part`: heading, unit and format of each."""
    columns = {"memory": ("memory planned, MB", 1e-6, ".0f"), "step": ("step planned, ms", 1e3, ".1f")}
    return {what: column for what, column in columns.items() if part in (None, {"step": "time"}.get(what, what))}


def medians(rounds):
    results = {}
    for name in rounds[0]:
        result = {side: {what: statistics.median(each[name][side][what] for each in rounds) for what in ("memory", "step")}
                  for side in ("planned", "measured")}
        result["planned"]["chosen"] = rounds[0][name]["planned"]["chosen"]
        result["error"] = {what: result["planned"][what] / result["measured"][what] - 1 for what in ("memory", "step")}
        results[name] = result
    return results


def table(results, machine, part):
    columns = shown(part)
    head = ["plan", *(text for heading, _, _ in columns.values() for text in (heading, "measured", "error"))]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name, found in results.items():
        cells = [name]
        for what, (_, unit, digits) in columns.items():
            cells += [format(unit * found[side][what], digits) for side in ("planned", "measured")]
            cells.append(f"{100 * found['error'][what]:+.0f} %")
        lines.append("| " + " | ".join(cells) + " |")
    for what in columns:
        errors = [abs(found["error"][what]) for found in results.values()]
        lines.append(f"{what}: median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} %")
    lines += choices(results) if "step" in columns else []
    return "\n".join([*lines, "{date}, commit {commit}, {cpu}, {cores} cores, load {load}, {command}".format(**machine)])


def choices(results):
    """Whether the planner's choice was among the fastest that were measured."""
    lines = []
    for group in dict.fromkeys("-".join(name.split("-")[:2]) for name in results):
        of_group = {name: found for name, found in results.items() if name.startswith(group + "-")}
        chosen = next(iter(of_group.values()))["planned"]["chosen"]
        if len(of_group) < 2 or chosen not in of_group:
            continue
        slower = of_group[chosen]["measured"]["step"] / min(found["measured"]["step"] for found in of_group.values())
        verdict = "within" if slower <= CHOICES_WITHIN else "NOT within"
        lines.append(f"{chosen}: chosen, {slower:.2f} of the fastest, {verdict} {CHOICES_WITHIN:.2f}")
    return lines


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench.sh plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("memory", "time"), help="measure only this")
    parser.add_argument("--steps", metavar="N", type=int, default=20, help="steps of each run (20)")
    parser.add_argument("--rounds", metavar="N", type=int, default=3, help="rounds over all plans (3)")
    parser.add_argument("--only", metavar="WORD", action="append", help="plans with this in their name; may be repeated")
    return parser.parse_args(arguments)


def main():
    args = parse(sys.argv[1:])
    programs = Programs()
    programs.check()
    plans = [plan for plan in PLANS if not args.only or any(word in name_of(plan) for word in args.only)]
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        bench = PlanBench(programs, Path(folder), args)
        for i in range(args.rounds):
            rounds.append(bench.round(plans))
            print(f"round {i + 1} of {args.rounds}", file=sys.stderr, flush=True)
    results = medians(rounds)
    print(table(results, measured_here(["plan", *sys.argv[1:]], programs), args.part))


if __name__ == "__main__":
    main()
