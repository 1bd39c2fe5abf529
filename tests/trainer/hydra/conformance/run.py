#!/usr/bin/env python3
"""Compares trainer's reading of configurations with the real OmegaConf and hydra-core, case by case.

  run.py PROGRAM [--random N] [--seed S] [--only TEXT]

Each case is a YAML document, or a folder of them, and a list of overrides. Both sides must give the same resolved JSON, types included, or
both must refuse. The cases of accepted_differences.py must differ. Random cases are well-formed: chains of overrides, group choices, sweeps,
nested values. Needs omegaconf and hydra-core from PyPI; exit code 77 (skipped) without them.
"""

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
try:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import setup_globals
    from omegaconf import OmegaConf, open_dict
except ImportError:
    print("[skipped] omegaconf and hydra-core are not installed")
    sys.exit(77)

import cases
import groups
import sweeps
import typed as typed_merge
from accepted_differences import REASONS, SWEEP_REASONS

ENVIRONMENT = {"CONF_A": "12", "CONF_TEXT": "some text", "CONF_LIST": "[1, x, 'y z']", "CONF_EMPTY": ""}


class Trainer:
    """Answers one case after the other in one process."""

    def __init__(self, program):
        self.program = program
        self.process = None

    def ask(self, folder, arguments):
        if self.process is None:
            self.process = subprocess.Popen([self.program, "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process.stdin.write(json.dumps([str(folder), *arguments]).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.process = None
        return {"code": code, "text": f"crashed with {code}"}

    def show(self, folder, arguments, any_keys=False):
        common = ["--any-keys"] * any_keys + ["--config", str(folder / "cfg.yaml"), "--cfg", "job", "--resolve", "--format", "json"]
        answer = self.ask(folder, common + arguments)
        if answer["code"] == 0:
            return ("ok", [json.loads(line) for line in answer["text"].split("\n") if line])
        return ("error" if answer["code"] == 2 else "crash", answer["text"][:300])


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")}
    if isinstance(value, dict):
        return {k if isinstance(k, str) else json.dumps(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    json.dumps(value)  # what JSON cannot hold, such as !!binary, counts as refused
    return value


def typed(value):
    """JSON with the types kept apart: 1, 1.0 and true compare equal in Python."""
    if isinstance(value, dict):
        return {k: typed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [typed(v) for v in value]
    return (type(value).__name__, value)


def composed(overrides):
    """As an application sees its configuration: ${hydra:...} has a value."""
    config = compose(config_name="cfg", overrides=overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


def refusal(error):
    return ("error", f"{type(error).__name__}: {error}"[:200].replace("\n", " "))


def expected(folder, case):
    overrides = case[1]
    try:
        if overrides is None:
            config = OmegaConf.load(folder / "cfg.yaml")
            if not OmegaConf.is_dict(config):
                return ("error", "not a map")
            return ("ok", plain(OmegaConf.to_container(config, resolve=True)))
        GlobalHydra.instance().clear()
        os.chdir(folder)
        with initialize_config_dir(config_dir=str(folder), version_base=None, job_name="trainer"):
            return ("ok", plain(OmegaConf.to_container(composed(list(overrides)), resolve=True)))
    except Exception as error:  # whatever the library throws is a refusal
        return refusal(error)


def actual(trainer, folder, case):
    answer = trainer.show(folder, ["--", *(case[1] or [])], any_keys=True)
    return ("ok", answer[1][0]) if answer[0] == "ok" else answer


def expected_jobs(folder, overrides):
    try:
        GlobalHydra.instance().clear()
        os.chdir(folder)
        with initialize_config_dir(config_dir=str(folder), version_base=None, job_name="trainer"):
            return ("ok", sweeps.jobs(overrides, lambda job: plain(OmegaConf.to_container(composed(job), resolve=True))))
    except Exception as error:
        return refusal(error)


def check_sweeps(trainer, folder, every):
    """The same for sweeps."""
    wrong = accepted = different = 0
    folders = [write_case(folder / str(i), case[0]) for i, case in enumerate(every)]
    for folder, (_, overrides) in zip(folders, every):
        got = trainer.show(folder, ["--multirun", "--", *overrides], any_keys=True)
        want = expected_jobs(folder, overrides)
        accepted += want[0] == "ok"
        listed = " ".join(overrides) in SWEEP_REASONS
        different += listed
        if same(want, got) == listed:
            wrong += 1
            print("--- agrees: take it out of accepted_differences.py" if listed else "---")
            print(f"--- --multirun {overrides}\n  expected: {want}\n  got:      {got}")
    print(f"{len(every) - wrong - different} of {len(every)} sweeps agree ({accepted} are accepted), {different} differ as listed", flush=True)
    return wrong


def check_typed(trainer, folder):
    wrong, every = 0, typed_merge.cases()
    for key, kind, word in every:
        section, name = key.split(".")
        (folder / "cfg.yaml").write_text(f"{section}:\n  {name}: {word}\n")
        got = trainer.show(folder, [])
        message = got[1] if got[0] != "ok" else ""
        if got[0] == "ok":
            got = ("ok", got[1][0][section][name])
        want = typed_merge.expected(kind, word)
        want = (want[0], plain(want[1]))
        if not same(want, got) and not typed_merge.allowed(kind, word, want, got, message):
            wrong += 1
            print(f"--- {key} ({kind}): {word}\n  expected: {want}\n  got:      {got}")
    print(f"{len(every) - wrong} of {len(every)} typed values agree")
    return wrong


def write_case(folder, files):
    folder.mkdir(parents=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    return folder


def same(want, got):
    if want[0] != got[0]:
        return False
    return want[0] == "error" or typed(want[1]) == typed(got[1])


def check_cases(trainer, folder, every):
    """How many disagree, or agree though accepted_differences.py lists them; the files of each case are in a folder of its own."""
    wrong = accepted = different = 0
    for i, case in enumerate(every):
        files = case[0] if isinstance(case[0], dict) else {"cfg.yaml": case[0]}
        place = write_case(folder / str(i), files)
        want, got = expected(place, case), actual(trainer, place, case)
        shutil.rmtree(place)
        accepted += want[0] == "ok"
        listed = isinstance(case[0], str) and case[1] is None and case[0] in REASONS
        different += listed
        if same(want, got) != listed:
            continue
        wrong += 1
        text = case[0] if isinstance(case[0], str) else json.dumps(case[0])
        if listed:
            print("--- agrees: take it out of accepted_differences.py")
        print(f"--- {case[1]}\n{text!r}\n{text}\n  expected: {want}\n  got:      {got}", flush=True)
    print(f"{len(every) - wrong - different} of {len(every)} cases agree ({accepted} are accepted), {different} differ as listed", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=os.path.abspath)
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--sweeps", type=int, default=100, help="random sweeps")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    setup_globals()  # registers now, as an application that runs under Hydra has it
    trainer = Trainer(options.trainer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = random.Random(options.seed)
        every = cases.hand_picked() + cases.generated(rng, options.random)
        every += groups.hand_picked() + groups.generated(rng, options.random)
        wrong = check_cases(trainer, folder, [c for c in every if options.only in str(c[0]) + " ".join(c[1] or [])])
        if not options.only:
            swept = sweeps.hand_picked() + [sweeps.generated(rng) for _ in range(options.sweeps)]
            wrong += check_sweeps(trainer, folder / "sweeps", swept)
            wrong += check_typed(trainer, write_case(folder / "typed", {}))
        os.chdir("/")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
