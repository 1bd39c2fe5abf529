#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases or MLflow: what metrics.jsonl in its folder has and they have not.

  python3 scripts/track_run.py outputs/quickstart --to wandb --follow &     next to a run: until it has ended
  python3 scripts/track_run.py outputs/quickstart --to mlflow               once

Called again, also after a crash and a resume, it continues the same run there: its id and the last step that was sent are in
tracking.json in the run's folder. A run that started over in the same folder is a new one there. Each tracker is configured by
its own environment: WANDB_PROJECT, WANDB_MODE=offline, MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ... Needs `pip install wandb`
or `pip install mlflow-skinny`.
"""

import argparse
import glob
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

NOT_METRICS = ("step", "split", "time", "resumed_from")
LOOKS_WITHOUT_RUN = 12  # a restart by ddp-run takes less


class Wandb:
    def __init__(self, name, config, run_id):
        import wandb
        self.run = wandb.init(id=run_id, resume="allow", name=name, config=config, settings=wandb.Settings(console="off"))
        self.id = self.run.id
        self.run.define_metric("step")  # an axis of its own: W&B's counter never takes a step twice
        self.run.define_metric("*", step_metric="step")

    def send(self, step, values, seconds):
        self.run.log({**values, "step": step, "time": seconds})

    def end(self, finished):
        self.run.finish()


class MLflow:
    def __init__(self, name, config, run_id):
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


def new_records(path, sent):
    """The whole lines of steps after those in `sent`, by split. A resumed run has removed later lines and writes them again."""
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return  # is being written
            record = json.loads(line)
            if record["step"] > sent.get(record["split"], -1):
                yield record


def first_record(path):
    try:
        with open(path, "rb") as file:
            line = file.readline()
        return json.loads(line) if line.endswith(b"\n") else None
    except OSError:
        return None


def is_of_another_run(first, mine):
    """A resumed run keeps the lines before its snapshot; one that starts over sets the file aside."""
    return "resumed_from" not in first and mine.get("began", first["time"]) != first["time"]


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def may_be_written(path, host):
    """Whether a process has the file open; of another host unknown."""
    if host != os.uname().nodename:
        return True
    target = os.path.realpath(path)
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(link) == target:
                return True
        except OSError:
            continue
    return False


def write_state(path, state):
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(state))
    aside.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="hydra.run.dir of the run")
    parser.add_argument("--to", choices=("wandb", "mlflow"), required=True)
    parser.add_argument("--follow", action="store_true", help="continue until the run has ended, or Ctrl-C")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="how often --follow looks (default: 5)")
    options = parser.parse_args()
    metrics, saved = options.folder / "metrics.jsonl", options.folder / "tracking.json"
    while options.follow and not first_record(metrics):
        time.sleep(options.every)
    first = first_record(metrics)
    if not first:
        sys.exit(f"error: {metrics}: no such file, or empty; give the folder of a run (hydra.run.dir) with logging_config.jsonl")
    state = json.loads(saved.read_text()) if saved.exists() else {}
    mine = state.setdefault(options.to, {"id": None, "sent": {}})
    if is_of_another_run(first, mine):
        mine = state[options.to] = {"id": None, "sent": {}}
    mine.setdefault("began", first["time"])
    info = read_json(options.folder / "run_info.json")
    config, host = info.get("config", {}), info.get("environment", {}).get("host")
    try:
        tracker = {"wandb": Wandb, "mlflow": MLflow}[options.to](options.folder.resolve().name, config, mine["id"])
    except ImportError:
        sys.exit(f"error: this Python lacks {options.to}: pip install {'wandb' if options.to == 'wandb' else 'mlflow-skinny'}")
    mine["id"] = tracker.id
    finished, looks = False, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            # Before reading: nothing follows then.
            finished = read_json(options.folder / "run_summary.json").get("outcome") == "finished"
            looks = 0 if may_be_written(metrics, host) else looks + 1
            if is_of_another_run(first_record(metrics) or first, mine):
                print(f"{options.folder}: another run has begun; start again to follow it", file=sys.stderr)
                break
            for record in new_records(metrics, mine["sent"]):
                tracker.send(record["step"], numbers_of(record), record["time"])
                mine["sent"][record["split"]] = record["step"]
            write_state(saved, state)
            if finished or not options.follow or looks == LOOKS_WITHOUT_RUN:
                break
            time.sleep(options.every)
    except KeyboardInterrupt:
        write_state(saved, state)
    tracker.end(finished)


if __name__ == "__main__":
    main()
