"""What `trainer plan` predicts against what runs need: peak memory of the largest rank and seconds a step, over 20 plans on CPU ranks.

  scripts/bench.sh plan [--steps N] [--only NAME ...] [--doctor FILE] [--json FILE] [--list]

Each plan is a strategy on 2 or 4 ranks with one thread each. The peak is the kernel's VmHWM of the rank that has most, with the
program and a snapshot at the end; the step is the run's median. Both are read from run_summary.json. Links are those of a
`trainer doctor --json` on as many ranks, unless --doctor names a file; the rate of computation is the planner's own assumption.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
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

    def overrides(self, tokens, strategy, steps, run):
        return {
            "data_config.path": tokens, "data_config.block_size": self.block, "data_config.train_split": 1,
            "gpt_config.n_layer": self.layers, "gpt_config.n_head": 8, "gpt_config.n_embd": self.width,
            "gpt_config.tie_weights": "true", "trainer_config.batch_size": self.batch,
            "trainer_config.grad_accumulation_steps": self.accumulation, "trainer_config.ema_decay": 0.99 if self.ema else 0,
            "trainer_config.max_steps": steps, "trainer_config.max_epochs": 1000000, "trainer_config.save_every": 1000000,
            "trainer_config.device": "cpu", "distributed_config.strategy": strategy, "hydra.run.dir": run}


CASES = [
    Case("small", 6, 512, 8192, 128, 2, 1, ema=False),
    Case("accumulating", 6, 512, 8192, 128, 2, 2, ema=False),
    Case("wide", 4, 768, 8192, 128, 1, 1, ema=True),
    Case("long", 4, 512, 8192, 512, 2, 1, ema=False),
]
# zero2 is zero1 without accumulation.
PLANS = [(case, strategy, ranks) for case in CASES for ranks in (2, 4) for strategy in ("ddp", "zero1", "zero2")
         if strategy != "zero2" or case.accumulation > 1 or case.ema]


def name_of(plan):
    case, strategy, ranks = plan
    return f"{case.name}-{strategy}-{ranks}"


class PlanBench:
    def __init__(self, programs, folder, args):
        self.programs, self.folder, self.args, self.doctors = programs, folder, args, {}
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

    def doctor(self, ranks):
        if self.args.doctor:
            return Path(self.args.doctor).resolve()
        if ranks not in self.doctors:
            self.doctors[ranks] = self.folder / f"doctor-{ranks}.json"
            self.doctors[ranks].write_text(self.launched(ranks, ["doctor", "--json"]), encoding="utf-8")
        return self.doctors[ranks]

    def words(self, plan, run):
        case, strategy, _ = plan
        overrides = case.overrides(self.folder / "tokens", strategy, self.args.steps, run)
        return ["--config", ROOT / "configs/quickstart.yaml", *(f"{key}={value}" for key, value in overrides.items())]

    def planned(self, plan):
        _, strategy, ranks = plan
        said = self.run([self.programs.trainer, "plan", *self.words(plan, self.folder / "planned"), "--gpus", ranks, "--memory", 64,
                         "--doctor", self.doctor(ranks), "--json"])
        answer = json.loads(said)
        found = next(each for each in answer["plans"] if each["strategy"] == strategy)
        return {"memory": found["memory_bytes"], "step": found["step_seconds"], "chosen": answer["choice"]["strategy"]}

    def measured(self, plan):
        run = self.folder / name_of(plan)
        self.launched(plan[2], self.words(plan, run))
        summary = json.loads((run / "run_summary.json").read_text(encoding="utf-8"))
        return {"memory": max(summary["peak_memory_bytes"]), "step": summary["median_step_seconds"]}

    def result(self, plan):
        found = {"planned": self.planned(plan), "measured": self.measured(plan)}
        found["error"] = {what: found["planned"][what] / found["measured"][what] - 1 for what in ("memory", "step")}
        return found


def table(results, machine):
    lines = ["| plan | memory planned, MB | measured | error | step planned, ms | measured | error |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, found in results.items():
        planned, measured, error = found["planned"], found["measured"], found["error"]
        lines.append(f"| {name} | {planned['memory'] / 1e6:.0f} | {measured['memory'] / 1e6:.0f} | {100 * error['memory']:+.0f} % | "
                     f"{1e3 * planned['step']:.1f} | {1e3 * measured['step']:.1f} | {100 * error['step']:+.0f} % |")
    for what in ("memory", "step"):
        errors = [abs(found["error"][what]) for found in results.values()]
        lines.append(f"{what}: median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} %")
    lines += choices(results)
    return "\n".join([*lines, "{date}, commit {commit}, {cpu}, {cores} cores, load {load}, {command}".format(**machine)])


def choices(results):
    """Whether the planner's choice was among the fastest that were measured."""
    lines = []
    for case in CASES:
        for ranks in (2, 4):
            of_case = {name.split("-")[1]: found for name, found in results.items()
                       if name.startswith(case.name + "-") and name.endswith(f"-{ranks}")}
            if len(of_case) < 2:
                continue
            chosen = next(iter(of_case.values()))["planned"]["chosen"]
            if chosen not in of_case:
                continue
            best = min(found["measured"]["step"] for found in of_case.values())
            slower = of_case[chosen]["measured"]["step"] / best
            verdict = "within" if slower <= CHOICES_WITHIN else "NOT within"
            lines.append(f"{case.name} on {ranks} ranks: {chosen}, {slower:.2f} of the fastest, {verdict} {CHOICES_WITHIN:.2f}")
    return lines


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench.sh plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name_of(plan) for plan in PLANS]
    parser.add_argument("--steps", metavar="N", type=int, default=20, help="steps of each run (20)")
    parser.add_argument("--only", metavar="NAME", action="append", choices=names, help="this plan; may be repeated")
    parser.add_argument("--doctor", metavar="FILE", help="links as measured by `trainer doctor --json` before")
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    parser.add_argument("--list", action="store_true", help="print the names of the plans")
    args = parser.parse_args(arguments)
    if args.list:
        print("\n".join(names))
        sys.exit(0)
    return args


def main():
    args = parse(sys.argv[1:])
    programs = Programs()
    programs.check()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = PlanBench(programs, Path(folder), args)
        for plan in PLANS:
            if args.only and name_of(plan) not in args.only:
                continue
            results[name_of(plan)] = found = bench.result(plan)
            print(f"{name_of(plan)}: memory {100 * found['error']['memory']:+.0f} %, step {100 * found['error']['step']:+.0f} %",
                  file=sys.stderr, flush=True)
    machine = measured_here(["plan", *sys.argv[1:]], programs)
    print(table(results, machine))
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine, "plans": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
