#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases or MLflow: what metrics.jsonl in its folder has and they have not.

  python3 scripts/track_run.py outputs/quickstart --to wandb --follow &     next to a run: until it has ended
  python3 scripts/track_run.py outputs/quickstart --to mlflow               once

trainer starts it with metrics_config.wandb or metrics_config.mlflow, keeps its standard input open and logs what it prints.
Called again, also after a crash and a resume, it continues the same run there: its id and the last step that was sent are in
tracking.wandb.json or tracking.mlflow.json in the run's folder. A run that started over in the same folder is a new one there. Each tracker is configured by
its own environment: WANDB_PROJECT, WANDB_MODE=offline, MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ... wandb's files are in the
folder wandb of the run's unless WANDB_DIR names another. Needs `pip install wandb` or `pip install mlflow-skinny`.
"""

import argparse
import contextlib
import fcntl
import glob
import importlib.util
import itertools
import json
import os
import re
import resource
import select
import shlex
import signal
import sys
import time
from pathlib import Path

NOT_METRICS = ("step", "split", "time", "resumed_from")
PACKAGES = {"wandb": "wandb", "mlflow": "mlflow-skinny"}


class Wandb:
    settles = 30  # its process writes what it is given to the disk every 15 s, and at the end

    def __init__(self, name, config, run_id, options):
        import wandb
        os.environ.setdefault("WANDB_DIR", str(options.folder.resolve()))
        settings = wandb.Settings(console="off", quiet=options.with_trainer, silent=options.with_trainer and options.mode == "offline")
        self.run = wandb.init(id=run_id, resume="allow", name=os.environ.get("WANDB_NAME") or name, config=config, mode=options.mode,
                              settings=settings)
        self.id = self.run.id
        # Each start of the run has a folder of its own.
        files = f"wandb sync {shlex.quote(str(Path(self.run.dir).parents[1]))}/offline-run-*-{self.id}"
        self.place = files if self.run.offline else self.run.url
        self.run.define_metric("step")  # an axis of its own: W&B's counter never takes a step twice
        self.run.define_metric("*", step_metric="step")

    def send(self, step, values, seconds):
        self.run.log({**values, "step": step, "time": seconds})

    def end(self, finished):
        self.run.finish(exit_code=0 if finished else 1)


class MLflow:
    settles = 0

    def __init__(self, name, config, run_id, options):
        import mlflow
        self.entities = mlflow.entities
        self.client = mlflow.MlflowClient()
        if run_id is None:
            experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default"))
            run_id = self.client.create_run(experiment.experiment_id, run_name=name).info.run_id
            flat = {f"{section}.{key}": value for section, keys in config.items() if isinstance(keys, dict) for key, value in keys.items()}
            flat.update({key: value for key, value in config.items() if not isinstance(value, dict)})
            params = [mlflow.entities.Param(key, str(value)[:500]) for key, value in flat.items()]
            for first in range(0, len(params), 100):  # the limit of one request
                self.client.log_batch(run_id, params=params[first:first + 100])
        self.id = run_id
        self.place = without_credentials(f"run {run_id} at {mlflow.get_tracking_uri()}")

    def send(self, step, values, seconds):
        metrics = [self.entities.Metric(self.taken_name(name), value, int(seconds * 1000), step) for name, value in values.items()]
        self.client.log_batch(self.id, metrics=metrics)

    @staticmethod
    def taken_name(name):
        return re.sub(r"[^\w\-. :/]", "_", name)  # as MLflow refuses other characters

    def end(self, finished):
        self.client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


def numbers_of(record):
    return {f"{record['split']}/{name}": value for name, value in record.items() if name not in NOT_METRICS and isinstance(value, (int, float))}


def whole_records(path):
    """The records of the file's whole lines; none while a run that starts over has set the file aside."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return  # is being written
                yield json.loads(line)
    except FileNotFoundError:
        return


def is_of_another_run(first, run, mine):
    """Whether the first record is not of the run in `mine`. One that starts over sets the file aside. One that resumes before its
    first line writes that again: then the ids of the runs in the snapshots' manifests tell, where both are known."""
    if mine.get("began", first["time"]) == first["time"]:
        return False
    return "resumed_from" not in first or bool(run and mine.get("run") and run != mine["run"])


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def is_finished(summary, first, last_step):
    """Whether it is of these records: neither of a run before them nor of a job that ended before the last of them."""
    written = summary.get("job_began", 0) + summary.get("wall_seconds", 0)
    return summary.get("outcome") == "finished" and first["time"] <= written and last_step <= summary.get("last_step", -1)


def is_open(path):
    """Whether a process that can be seen from here writes the file: one of another user, host or container cannot."""
    target = os.path.realpath(path)
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link) == target and os.lstat(link).st_mode & 0o200:
                return True
        except OSError:
            continue
    return False


def changed_at(path):
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def write_state(path, mine):
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(mine))
    aside.replace(path)


def wait(options):
    """Until the next look, or until the trainer that started this closes its end of standard input, however it ended."""
    if not options.with_trainer:
        time.sleep(options.every)
    elif select.select([sys.stdin], [], [], options.every)[0]:
        options.follow = False


class Unheard:
    """A stream whose reader, the trainer, may have exited: a tracker that prints something must not fail."""
    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self):
        with contextlib.suppress(OSError):
            self.stream.flush()


def without_credentials(text):
    return re.sub(r"//[^/@\s]*@", "//", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="hydra.run.dir of the run")
    parser.add_argument("--to", choices=("wandb", "mlflow"), required=True)
    parser.add_argument("--follow", action="store_true", help="continue until the run has ended, or Ctrl-C")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="how often --follow looks (default: 5)")
    parser.add_argument("--patience", type=float, default=300, metavar="SECONDS",
                        help="how long --follow waits for a run that is gone, or had ended before, to go on (default: 300)")
    parser.add_argument("--mode", choices=("offline", "online"), help="wandb's; default: as WANDB_MODE says, whose disabled wins")
    parser.add_argument("--with-trainer", action="store_true", help="--follow until standard input ends")
    options = parser.parse_args()
    if options.with_trainer:
        options.follow = True
        sys.stdout, sys.stderr = Unheard(sys.stdout), Unheard(sys.stderr)
        resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)  # memory_limit_mb is the trainer's
    if options.to == "wandb" and os.environ.get("WANDB_MODE") == "disabled":
        print("wandb: nothing is sent, as WANDB_MODE=disabled")
        return
    if not importlib.util.find_spec(options.to):
        sys.exit(f"error: {sys.executable} lacks {options.to}: {sys.executable} -m pip install {PACKAGES[options.to]}"
                 f"{', or set PYTHON_EXEC to a Python that has it' * options.with_trainer}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        before = changed_at(options.folder / "run_summary.json")  # may be of a run before the one to follow
        while track(options, before):
            print(f"{options.folder}: another run has begun", file=sys.stderr)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if not options.with_trainer:
            raise
        sys.exit(without_credentials(f"error: {type(error).__name__}: {error}".splitlines()[0]))


def track(options, summary_before):
    """Sends one run; returns whether another one has begun in its folder."""
    metrics, saved, summary = (options.folder / name for name in ("metrics.jsonl", f"tracking.{options.to}.json", "run_summary.json"))
    while not (first := next(whole_records(metrics), None)):
        if not options.follow:
            if options.with_trainer:
                return False
            sys.exit(f"error: {metrics}: no such file, or empty; give the folder of a run (hydra.run.dir) with logging_config.jsonl")
        wait(options)
    lock = open(saved.with_suffix(".lock"), "w")
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.lockf(lock, fcntl.LOCK_EX)  # that of a process that was killed may still be sending
    config = read_json(options.folder / "run_info.json").get("config", {})
    manifest = Path(f"{config.get('trainer_config', {}).get('snapshot_path')}.manifest.json")
    mine = json.loads(saved.read_text()) if saved.exists() else None
    if not mine or is_of_another_run(first, read_json(manifest).get("run"), mine):
        mine = {"id": None, "sent": {}}
    mine["began"] = first["time"]
    tracker = {"wandb": Wandb, "mlflow": MLflow}[options.to](options.folder.resolve().name, config, mine["id"], options)
    mine["id"] = tracker.id
    another = finished = seen = False
    before, alive = None, time.monotonic()
    settled, settling, since = dict(mine["sent"]), dict(mine["sent"]), alive
    try:
        while True:
            # Before reading: nothing follows once it has ended.
            following = options.follow
            account, ended_anew, open_now = read_json(summary), changed_at(summary) != summary_before, options.with_trainer or is_open(metrics)
            run, now = read_json(manifest).get("run"), (changed_at(metrics), changed_at(summary))
            seen = seen or open_now  # before that, that none is seen tells nothing
            if open_now or now != before:
                before, alive = now, time.monotonic()
            records, last_step = whole_records(metrics), 0
            first = next(records, None)  # of the file that is read on: it may be replaced meanwhile
            if another := bool(first) and is_of_another_run(first, run, mine):
                break
            for record in itertools.chain([first] if first else [], records):
                last_step = max(last_step, record["step"])
                # A resumed run has removed later lines and writes them again.
                if record["step"] > mine["sent"].get(record["split"], -1):
                    tracker.send(record["step"], numbers_of(record), record["time"])
                    mine["sent"][record["split"]] = record["step"]
            if first:
                mine.update(began=first["time"], run=run or mine.get("run"))
                finished = is_finished(account, first, last_step)
            if time.monotonic() - since >= tracker.settles:  # a process that is killed may lose what has not
                settled, settling, since = settling if tracker.settles else mine["sent"], dict(mine["sent"]), time.monotonic()
            write_state(saved, {**mine, "sent": settled})
            gone = time.monotonic() - alive >= options.patience and (finished or seen)
            ended = not options.with_trainer and (gone or finished and ended_anew and not open_now)
            if not following or ended:
                break
            wait(options)
    except KeyboardInterrupt:
        options.follow = False
    tracker.end(finished)
    write_state(saved, mine)
    lock.close()
    if options.with_trainer:
        print(f"{options.to}: {tracker.place}", flush=True)
    return another and options.follow


if __name__ == "__main__":
    main()
