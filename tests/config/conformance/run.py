#!/usr/bin/env python3
"""Compares trainer's reading of configurations with the real OmegaConf and hydra-core, case by case.

  run.py TRAINER [--random N] [--seed S] [--only TEXT]

Each case is a YAML document, or a folder of them, and a list of overrides. Both sides must give the same resolved JSON, types included, or
both must refuse. Needs omegaconf and hydra-core from PyPI; exit code 77 (skipped) without them.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

warnings.filterwarnings("ignore")
try:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.utils import setup_globals
    from omegaconf import OmegaConf
except ImportError:
    print("omegaconf and hydra-core are not installed; skipped")
    sys.exit(77)

import cases
import groups
import sweeps
import typed as typed_merge

ENVIRONMENT = {"CONF_A": "12", "CONF_TEXT": "some text", "CONF_LIST": "[1, x, 'y z']", "CONF_EMPTY": ""}


def plain(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")}
    if isinstance(value, dict):
        return {k if isinstance(k, str) else json.dumps(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def typed(value):
    """JSON with the types kept apart: 1, 1.0 and true compare equal in Python."""
    if isinstance(value, dict):
        return {k: typed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [typed(v) for v in value]
    return (type(value).__name__, value)


def expected(folder, case):
    overrides = case[1]
    try:
        if overrides is None:
            config = OmegaConf.load(folder / "cfg.yaml")
            if not OmegaConf.is_dict(config):
                return ("error", "not a map")
        else:
            GlobalHydra.instance().clear()
            os.chdir(folder)
            os.chdir(folder)
            with initialize_config_dir(config_dir=str(folder), version_base=None):
                config = compose(config_name="cfg", overrides=overrides)
        return ("ok", plain(OmegaConf.to_container(config, resolve=True)))
    except RecursionError:
        return ("error", "RecursionError")
    except Exception as error:  # whatever the library throws is a refusal
        return ("error", f"{type(error).__name__}: {error}"[:200].replace("\n", " "))


def actual(trainer, folder, case):
    command = [trainer, "--config", str(folder / "cfg.yaml"), "--cfg", "job", "--resolve", "--format", "json", "--no-schema", "--"]
    done = subprocess.run(command + list(case[1] or []), capture_output=True, env={**os.environ, **ENVIRONMENT}, cwd=folder, timeout=60)
    if done.returncode == 2:
        return ("error", done.stderr.decode(errors="replace").strip()[:200])
    if done.returncode != 0:
        return ("crash", f"exit code {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")
    return ("ok", json.loads(done.stdout))


def expected_jobs(folder, overrides):
    def one(job):
        config = compose(config_name="cfg", overrides=job)
        return plain(OmegaConf.to_container(config, resolve=True))

    try:
        GlobalHydra.instance().clear()
        os.chdir(folder)
        with initialize_config_dir(config_dir=str(folder), version_base=None):
            return ("ok", sweeps.jobs(overrides, one))
    except Exception as error:
        return ("error", f"{type(error).__name__}: {error}"[:200].replace("\n", " "))


def show(trainer, folder, arguments):
    command = [trainer, "--config", str(folder / "cfg.yaml"), "--cfg", "job", "--resolve", "--format", "json"]
    return subprocess.run(command + arguments, capture_output=True, env={**os.environ, **ENVIRONMENT}, cwd=folder, timeout=60)


def check_sweeps(trainer, folders, every):
    wrong = 0
    for folder, (_, overrides) in zip(folders, every):
        done = show(trainer, folder, ["--no-schema", "--multirun", "--", *overrides])
        lines = done.stdout.decode(errors="replace").splitlines()
        got = ("ok", [json.loads(line) for line in lines]) if done.returncode == 0 else ("error", done.stderr.decode()[:200])
        want = expected_jobs(folder, overrides)
        if not same(want, got):
            wrong += 1
            print(f"--- --multirun {overrides}\n  expected: {want}\n  got:      {got}")
    print(f"{len(every) - wrong} of {len(every)} sweeps agree")
    return wrong


def check_typed(trainer, folder):
    wrong, every = 0, typed_merge.cases()
    for key, kind, word in every:
        section, name = key.split(".")
        (folder / "cfg.yaml").write_text(f"{section}:\n  {name}: {word}\n")
        done = show(trainer, folder, [])
        message = done.stderr.decode(errors="replace")
        got = ("ok", json.loads(done.stdout)[section][name]) if done.returncode == 0 else ("error", message[:200])
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=os.path.abspath)
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    setup_globals()  # registers now, as an application that runs under Hydra has it
    every = cases.hand_picked() + cases.generated(random.Random(options.seed), options.random)
    every += groups.hand_picked() + groups.generated(random.Random(options.seed), options.random)
    every = [c for c in every if options.only in str(c[0]) + " ".join(c[1] or [])]
    with tempfile.TemporaryDirectory() as name:
        folders = []
        for i, case in enumerate(every):
            files = case[0] if isinstance(case[0], dict) else {"cfg.yaml": case[0]}
            folders.append(write_case(Path(name) / str(i), files))
        with ThreadPoolExecutor(2) as pool:
            got_all = list(pool.map(lambda pair: actual(options.trainer, *pair), zip(folders, every)))
        wrong = 0
        for folder, case, got in zip(folders, every, got_all):
            want = expected(folder, case)
            if same(want, got):
                continue
            wrong += 1
            text = case[0]["cfg.yaml"] if isinstance(case[0], dict) else case[0]
            print(f"--- {case[1]}\n{text}\n  expected: {want}\n  got:      {got}")
        print(f"{len(every) - wrong} of {len(every)} cases agree")
        if not options.only:
            swept = sweeps.hand_picked()
            wrong += check_sweeps(options.trainer, [write_case(Path(name) / f"s{i}", c[0]) for i, c in enumerate(swept)], swept)
            wrong += check_typed(options.trainer, write_case(Path(name) / "typed", {}))
        os.chdir("/")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
