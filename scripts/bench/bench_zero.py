"""Memory and time of a step under trainer's strategies, next to DDP, ZeRO-1 and FSDP2 of Python's torch: one table.

  scripts/bench.sh zero [--ranks N ...] [--only NAME ...] [--part memory|time] [--rounds N] [--quick] [--json FILE]

Model: GPT with 23.2 million parameters (6 layers, width 512, vocabulary 8192, tied head), blocks of 128 tokens, 4 sequences
per step over all ranks, AdamW, float32, CPU ranks with one thread each. Memory: anonymous memory of rank 0 over that before
the model, its peak in a step and its minimum between steps, see rank_memory.py. Time: every round runs all programs in turn,
every other round in reverse; the ratio to trainer's ddp is taken within a round, medians over the rounds.
"""

import argparse
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import PATIENCE, Laps, Programs, measured_here
from parts import Ended
from rank_memory import ALLOCATOR, RankMemory
from report import number, spread, spread_text
from watch import Failed, watch

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LAYERS, HEADS, WIDTH, VOCABULARY, BLOCK, SEQUENCES = 6, 8, 512, 8192, 128, 4
MEASURED = (4, 6)  # steps whose memory counts: by then everything that stays is allocated
PARAMETERS = (12 * WIDTH + 13) * WIDTH * LAYERS + (VOCABULARY + BLOCK + 2) * WIDTH
BASE = "ddp"


@dataclass(frozen=True)
class Program:
    name: str
    what: str
    strategy: str
    ours: bool = False


PROGRAMS = [
    Program("ddp", "trainer, ddp", "ddp", ours=True),
    Program("zero1", "trainer, zero1", "zero1", ours=True),
    Program("zero2", "trainer, zero2", "zero2", ours=True),
    Program("zero3", "trainer, zero3", "zero3", ours=True),
    Program("python_ddp", "Python, DDP", "ddp"),
    Program("python_zero1", "Python, ZeRO-1", "zero1"),
    Program("python_fsdp2_kept", "Python, FSDP2 without reshard", "fsdp2_kept"),
    Program("python_fsdp2", "Python, FSDP2", "fsdp2"),
]


def write_text(path):
    """Words enough for a vocabulary of 8192."""
    draw = random.Random(28)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(2, 4))) for _ in range(20000)]
    path.write_text("\n".join(" ".join(draw.choices(words, k=12)) for _ in range(8000)), encoding="utf-8")


def parameters_of(observer):
    if observer.rest is None:
        raise Failed(f"no memory measured: step {MEASURED[1]} was not reported")
    if observer.parameters != PARAMETERS:
        raise Failed(f"a model of {observer.parameters} parameters, not {PARAMETERS}")
    return observer.parameters


class ZeroBench:
    def __init__(self, programs, folder):
        self.programs, self.folder, self.runs = programs, folder, 0
        write_text(folder / "text.txt")
        Ended([programs.trainer, "tokenize", "--tokenizer", "bpe", "--train", "--vocab_size", VOCABULARY, "--input",
               folder / "text.txt", "--output", folder / "tokens"], 1)

    def command(self, program, ranks, steps, log_every):
        self.runs += 1
        if program.ours:
            return self.our_command(program, ranks, steps, log_every)
        return [self.programs.python, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}",
                HERE / "peer_zero.py", self.folder / "tokens/tokens_000000.bin", "--strategy", program.strategy, "--layers",
                LAYERS, "--heads", HEADS, "--width", WIDTH, "--block", BLOCK, "--batch", SEQUENCES // ranks, "--steps", steps,
                "--log_every", log_every]

    def our_command(self, program, ranks, steps, log_every):
        overrides = {
            "data_config.path": self.folder / "tokens", "data_config.block_size": BLOCK, "data_config.train_split": 1,
            "gpt_config.n_layer": LAYERS, "gpt_config.n_head": HEADS, "gpt_config.n_embd": WIDTH,
            "gpt_config.tie_weights": "true", "trainer_config.batch_size": SEQUENCES // ranks,
            "trainer_config.max_steps": steps, "trainer_config.max_epochs": 1000000,
            "trainer_config.log_every_steps": log_every, "trainer_config.save_every": 1000000, "trainer_config.device": "cpu",
            "distributed_config.strategy": program.strategy, "hydra.run.dir": self.folder / str(self.runs)}
        return [self.programs.ddp_run, "--standalone", f"--nproc_per_node={ranks}", self.programs.trainer, "--config",
                ROOT / "configs/quickstart.yaml", *(f"{key}={value}" for key, value in overrides.items())]

    def memory(self, program, ranks):
        """In MiB."""
        command = self.command(program, ranks, MEASURED[1] + 1, 1)
        with RankMemory(*MEASURED) as observer:
            watch(command, self.folder, {"OMP_NUM_THREADS": "1", **ALLOCATOR}, PATIENCE, observer)
        return {"peak": observer.peak, "rest": observer.rest, "before": observer.before, "parameters": parameters_of(observer),
                "command": shlex.join(map(str, command)).replace(str(ROOT) + "/", "").replace(str(self.folder) + "/", "")}

    def step(self, program, ranks, laps):
        """Milliseconds of a step by both clocks, the processor's of all processes of the job; of the laps the median."""
        every = 3
        marks = watch(self.command(program, ranks, (laps + 1) * every, every), self.folder, {"OMP_NUM_THREADS": "1"}, PATIENCE)
        found = Laps(marks)
        return {clock: 1e3 * statistics.median(getattr(found, clock)) for clock in ("wall", "processor")}

    def times(self, chosen, ranks, rounds, laps):
        """For each program, of both clocks: figures over the rounds, and ratios to ddp's if that is among them."""
        found = {program.name: [] for program in chosen}
        for turn in range(rounds):
            for program in chosen if turn % 2 == 0 else reversed(chosen):
                found[program.name].append(self.step(program, ranks, laps))
                say(f"{ranks} ranks, round {turn + 1} of {rounds}: {program.name} {number(found[program.name][-1]['wall'])} ms")
        return {name: {clock: summary(steps, found.get(BASE), clock) for clock in ("wall", "processor")}
                for name, steps in found.items()}


def summary(steps, base, clock):
    figures = {"step": spread([step[clock] for step in steps])}
    if base:
        figures["ratio"] = spread([step[clock] / other[clock] for step, other in zip(steps, base)])
    return figures


def say(text):
    print(text, file=sys.stderr, flush=True)


def held(program, ranks):
    """What stays between steps, MiB: weights, gradients, AdamW's two averages."""
    weights = 4 * PARAMETERS / 2**20
    theirs = {"ddp": 4, "zero1": 2 + 2 / ranks}.get(program.strategy, 3 / ranks)
    ours = {"ddp": 4, "zero3": 4 / ranks}.get(program.strategy, 1 + 3 / ranks)
    return weights * (ours if program.ours else theirs)


def ratio_text(figures):
    ratio = figures.get("ratio")
    return f"{ratio['median']:.2f} [{ratio['p10']:.2f} - {ratio['p90']:.2f}]" if ratio else "-"


def cells(program, result, ranks):
    """For one program and number of ranks."""
    memory, time = (result.get(part, {}).get(str(ranks)) for part in ("memory", "time"))
    texts = [*(f"{memory[name]:.0f}" if memory else "-" for name in ("peak", "rest")), f"{held(program, ranks):.0f}"]
    if not time:
        return [*texts, "-", "-", "-"]
    return [*texts, spread_text(time["wall"]["step"], "ms"), ratio_text(time["wall"]), ratio_text(time["processor"])]


def table(machine, results, all_ranks):
    head = ["program", "ranks", "peak in a step, MiB", "at rest, MiB", "state by formula, MiB", "step", "/ trainer's ddp",
            "CPU time, / trainer's ddp"]
    rows = [[program.what, str(ranks), *cells(program, results[program.name], ranks)]
            for ranks in all_ranks for program in PROGRAMS if program.name in results]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join([*lines, "", "medians [p10 - p90]; {date}, commit {commit}, {cpu}, {cores} cores, load {load}, torch "
                      "{torch}, {command}".format(**machine)])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench.sh zero", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", metavar="N", type=int, nargs="+", choices=(2, 4), default=[2, 4], help="2, 4 or both (2 4)")
    parser.add_argument("--only", metavar="NAME", action="append", choices=[program.name for program in PROGRAMS],
                        help="measure this program; may be repeated: " + ", ".join(program.name for program in PROGRAMS))
    parser.add_argument("--part", choices=("memory", "time"), help="measure only this")
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="timed runs of each program (5)")
    parser.add_argument("--quick", action="store_true", help="one round of a few steps: shows that it works, not how fast")
    parser.add_argument("--json", metavar="FILE", help="also write the results here")
    args = parser.parse_args(arguments)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


def measure(bench, args, chosen, results):
    for ranks in args.ranks:
        for program in chosen if args.part != "time" else ():
            results[program.name].setdefault("memory", {})[str(ranks)] = found = bench.memory(program, ranks)
            say(f"{ranks} ranks: {program.name} {found['peak']:.0f} ({found['rest']:.0f}) MiB over {found['before']:.0f}, "
                f"{found['parameters']} parameters")
        if args.part != "memory":
            times = bench.times(chosen, ranks, 1 if args.quick else args.rounds, 1 if args.quick else 4)
            for name, found in times.items():
                results[name].setdefault("time", {})[str(ranks)] = found


def main():
    args = parse(sys.argv[1:])
    programs = Programs()
    programs.check()
    chosen = [program for program in PROGRAMS if not args.only or program.name in args.only]
    machine = measured_here(["zero", *sys.argv[1:]], programs)
    results = {program.name: {"what": program.what} for program in chosen}
    with tempfile.TemporaryDirectory(prefix="ddp_bench_") as folder:
        try:
            measure(ZeroBench(programs, Path(folder)), args, chosen, results)
        except Failed as trouble:
            sys.exit(f"error: {trouble}")
    machine["load"] = round(os.getloadavg()[0], 1)
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": machine, "programs": results}, indent=1) + "\n")
    print(table(machine, results, args.ranks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
