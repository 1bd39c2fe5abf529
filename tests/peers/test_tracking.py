"""Runs in Weights & Biases and MLflow, as scripts/track_run.py sends them and as their own readers find them.

By a Python of your own, as no set-up installs them:  DDP_TRAINER=build/release/bin/trainer PYTHON tests/peers/test_tracking.py
"""

import importlib.util
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if not (importlib.util.find_spec("wandb") and importlib.util.find_spec("mlflow")):
    print("[skipped] all of it: no Python with wandb and mlflow")
    sys.exit(0)
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # where SQLAlchemy is not installed
TRAINER = os.environ.get("DDP_TRAINER", str(ROOT / "build/release/bin/trainer"))
CONFIG = """data_config: {path: text.txt, block_size: 16, train_split: 0.9, tokenizer: byte}
gpt_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 6, batch_size: 4, data_loader_workers: 0, eval_every_steps: 2, device: cpu}
hydra: {run: {dir: run}}
"""


def records_of(data):
    """The records of a .wandb file: LevelDB's log format after a header of seven bytes."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        whole += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


class Tracking(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_tracking_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "text.txt").write_text((ROOT / "data/sample_corpus.txt").read_text()[:4000])
        (self.folder / "c.yaml").write_text(CONFIG)
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_PROJECT": "tests",
                            "MLFLOW_TRACKING_URI": f"sqlite:///{self.folder}/mlflow.db" if importlib.util.find_spec("sqlalchemy") else f"file:{self.folder}/mlruns"}

    def train(self, *more):
        subprocess.run([TRAINER, "--config", "c.yaml", *more], cwd=self.folder, env=self.environment, check=True, capture_output=True)

    def track(self, *more, code=0):
        done = subprocess.run([sys.executable, ROOT / "scripts/track_run.py", "run", *more], cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def records(self):
        return [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]

    def expected(self, split, name):
        return [(record["step"], record[name]) for record in self.records() if record["split"] == split]

    def test_mlflow_has_every_number_once_and_the_configuration_after_a_resume_too(self):
        from mlflow import MlflowClient
        self.train("trainer_config.max_steps=3")
        self.track("--to", "mlflow")
        first = json.loads((self.folder / "run/tracking.mlflow.json").read_text())["id"]
        self.train()
        for _ in range(2):
            self.track("--to", "mlflow", "--follow", "--patience", "0")  # ends, as the run has finished
        client = MlflowClient(self.environment["MLFLOW_TRACKING_URI"])
        run = client.get_run(first)
        self.assertEqual((run.info.status, run.data.params["trainer_config.batch_size"]), ("FINISHED", "4"))
        for split, name in (("train", "loss"), ("train", "lr"), ("eval", "perplexity")):
            self.assertEqual([(metric.step, metric.value) for metric in sorted(client.get_metric_history(first, f"{split}/{name}"), key=lambda metric: metric.step)],
                             self.expected(split, name))

    def test_mlflow_has_a_metric_whose_name_it_does_not_take(self):
        from mlflow import MlflowClient
        self.train()
        with open(self.folder / "run/metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps({"step": 7, "split": "eval", "f1_R&D (x)": 0.5, "time": 1.0}) + "\n")
        self.track("--to", "mlflow")
        mine = json.loads((self.folder / "run/tracking.mlflow.json").read_text())["id"]
        self.assertEqual(MlflowClient(self.environment["MLFLOW_TRACKING_URI"]).get_run(mine).data.metrics["eval/f1_R_D _x_"], 0.5)

    def wandb_history(self):
        """(ids and names, rows) of all offline files."""
        from wandb.proto import wandb_internal_pb2 as proto
        runs, rows = set(), []
        for path in sorted(self.folder.glob("run/wandb/offline-run-*/*.wandb")):
            for data in records_of(path.read_bytes()):
                record = proto.Record.FromString(data)
                if record.run.run_id:
                    runs.add((record.run.run_id, record.run.display_name))
                row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
                if row:
                    rows.append(row)
        return runs, rows

    def test_wandb_has_every_number_once_in_one_run_after_a_resume_too(self):
        self.train("trainer_config.max_steps=3")
        self.track("--to", "wandb")
        self.train()
        self.track("--to", "wandb")
        ids, rows = self.wandb_history()
        self.assertEqual(ids, {(json.loads((self.folder / "run/tracking.wandb.json").read_text())["id"], "run")})
        for split, name in (("train", "loss"), ("eval", "perplexity")):
            self.assertEqual([(row["step"], row[f"{split}/{name}"]) for row in rows if f"{split}/{name}" in row], self.expected(split, name))

    def test_wandb_by_the_key_has_every_number_once_in_one_run_after_a_crash_too(self):
        self.environment["PYTHON_EXEC"] = sys.executable
        with self.assertRaises(subprocess.CalledProcessError):
            self.train("metrics_config.wandb=offline", "trainer_config.save_every_steps=2", "trainer_config.log_every_steps=1",
                       "trainer_config.fault_plan=['rank=0 step=5 phase=backward kind=kill']")
        self.train("metrics_config.wandb=offline", "trainer_config.log_every_steps=1")  # waits for the tracker of the first
        ids, rows = self.wandb_history()
        self.assertEqual(ids, {(json.loads((self.folder / "run/tracking.wandb.json").read_text())["id"], "run")})
        self.assertEqual(len(list(self.folder.glob("run/wandb/offline-run-*"))), 2)
        for split, name in (("train", "loss"), ("eval", "perplexity")):
            self.assertEqual([(row["step"], row[f"{split}/{name}"]) for row in rows if f"{split}/{name}" in row], self.expected(split, name))

    def test_mlflow_by_the_key_has_every_number_once(self):
        from mlflow import MlflowClient
        self.environment["PYTHON_EXEC"] = sys.executable
        self.train("metrics_config.mlflow=true")
        client, mine = MlflowClient(self.environment["MLFLOW_TRACKING_URI"]), self.mine()["id"]
        self.assertEqual(client.get_run(mine).info.status, "FINISHED")
        history = sorted(client.get_metric_history(mine, "train/loss"), key=lambda metric: metric.step)
        self.assertEqual([(metric.step, metric.value) for metric in history], self.expected("train", "loss"))

    def follower(self, *more):
        """One that has sent what there is."""
        tracking = self.folder / "run/tracking.mlflow.json"
        before = tracking.stat().st_mtime_ns if tracking.exists() else None
        process = subprocess.Popen([sys.executable, ROOT / "scripts/track_run.py", "run", "--to", "mlflow", "--follow", "--every", "0.1", *more],
                                   cwd=self.folder, env=self.environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not tracking.exists() or tracking.stat().st_mtime_ns == before:
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        return process

    def mine(self):
        return json.loads((self.folder / "run/tracking.mlflow.json").read_text())

    def train_and_fail(self):
        self.train("trainer_config.max_steps=3")
        (self.folder / "run/run_summary.json").write_text(json.dumps({"outcome": "unfinished"}))

    def test_a_follower_of_a_run_whose_process_it_never_saw_waits_until_it_is_stopped(self):
        self.train_and_fail()
        follower = self.follower("--patience", "0.1")
        time.sleep(2)
        self.assertIsNone(follower.poll())
        follower.send_signal(signal.SIGTERM)
        self.assertEqual(follower.wait(60), 0)
        self.assertEqual(self.mine()["sent"]["train"], 3)

    def test_a_follower_ends_some_seconds_after_a_run_that_failed_is_gone_however_often_it_looks(self):
        from mlflow import MlflowClient
        self.train_and_fail()
        with open(self.folder / "run/metrics.jsonl", "a"):
            follower = self.follower("--every", "0.01", "--patience", "15")
            tracking = self.folder / "run/tracking.mlflow.json"
            sent = tracking.stat().st_mtime_ns
            while tracking.stat().st_mtime_ns == sent:  # until it looks again, with nothing to send
                time.sleep(0.01)
        closed = time.monotonic()
        self.assertEqual(follower.wait(120), 0)
        self.assertGreater(time.monotonic() - closed, 13)  # the last look at the open file was a little before
        self.assertEqual(self.mine()["sent"]["train"], 3)
        self.assertEqual(MlflowClient(self.environment["MLFLOW_TRACKING_URI"]).get_run(self.mine()["id"]).info.status, "KILLED")

    def test_a_run_that_starts_over_in_the_folder_is_a_new_one_also_for_a_follower_that_began_before(self):
        from mlflow import MlflowClient
        client, ids = MlflowClient(self.environment["MLFLOW_TRACKING_URI"]), []
        for rate in ("0.001", "0.002", "0.003"):
            follower = self.follower() if rate == "0.003" else None
            for snapshot in self.folder.glob("run/snapshot*"):
                snapshot.unlink()
            self.train(f"optimizer_config.learning_rate={rate}")
            self.assertEqual(follower.wait(120), 0) if follower else self.track("--to", "mlflow")
            ids.append(self.mine()["id"])
            history = sorted(client.get_metric_history(ids[-1], "train/loss"), key=lambda metric: metric.step)
            self.assertEqual([(metric.step, metric.value) for metric in history], self.expected("train", "loss"))
            run = client.get_run(ids[-1])
            self.assertEqual((run.info.status, run.data.params["optimizer_config.learning_rate"]), ("FINISHED", rate))
        self.assertEqual(len(set(ids)), 3)

    def test_what_tells_runs_apart_and_whose_end_a_summary_is(self):
        spec = importlib.util.spec_from_file_location("track_run", ROOT / "scripts/track_run.py")
        script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(script)
        mine, resumed = {"began": 1.0, "run": "a"}, {"time": 2.0, "resumed_from": 5}
        self.assertTrue(script.is_of_another_run({"time": 2.0}, "a", mine))
        self.assertFalse(script.is_of_another_run({"time": 1.0}, "b", mine))
        self.assertTrue(script.is_of_another_run(resumed, "b", mine))
        for run in ("a", None):
            self.assertFalse(script.is_of_another_run(resumed, run, mine))
        summary = {"outcome": "finished", "job_began": 1.0, "wall_seconds": 4.0, "last_step": 6}
        self.assertTrue(script.is_finished(summary, {"time": 2.0}, 6))
        self.assertFalse(script.is_finished(summary, {"time": 2.0}, 7))  # a job that continues it
        self.assertFalse(script.is_finished(summary, {"time": 9.0}, 1))  # a run that starts over
        self.assertEqual(list(script.whole_records(self.folder / "metrics.jsonl")), [])
        with open(self.folder / "text.txt", "a"):
            self.assertTrue(script.is_open(self.folder / "text.txt"))
        with open(self.folder / "text.txt"):
            self.assertFalse(script.is_open(self.folder / "text.txt"))  # a reader, as this script is one

    def test_a_folder_without_metrics_is_refused_in_one_line(self):
        self.assertRegex(self.track("--to", "wandb", code=1), r"^error: run/metrics\.jsonl: no such file, or empty; .*\n$")


if __name__ == "__main__":
    unittest.main()
