"""Runs that trainer itself has tracked (metrics_config), by a stand-in for the package wandb that writes what it is given to a file.

tests/peers/test_tracking.py does so by the packages themselves.
"""

import json
import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", str(ROOT / "build/release/bin/ddp-run"))
TRAINER = os.environ.get("DDP_TRAINER", str(ROOT / "build/release/bin/trainer"))
CONFIG = """data_config: {path: text.txt, block_size: 16, train_split: 0.9, tokenizer: byte}
gpt_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 6, batch_size: 4, data_loader_workers: 0, eval_every_steps: 2, save_every_steps: 2, log_every_steps: 1, device: cpu}
metrics_config: {wandb: offline}
hydra: {run: {dir: run}}
"""
WANDB = '''
import json, os

def note(**what):
    with open(os.environ["FAKE_WANDB"], "a") as file:
        file.write(json.dumps(what) + "\\n")

class Settings:
    def __init__(self, **given): pass

class Run:
    offline = True
    def __init__(self, id, mode, config, **given):
        self.id = id or f"id{os.getpid()}"
        self.dir = os.environ["WANDB_DIR"] + f"/wandb/offline-run-now-{self.id}/files"
        note(init=self.id, mode=mode, process=os.getpid(), steps=config["trainer_config"]["max_steps"])
    def define_metric(self, *names, **given): pass
    def log(self, row): note(row=row)
    def finish(self, exit_code):
        open(os.environ.get("FAKE_WANDB_GATE", os.devnull)).read()
        note(finish=exit_code)

init = Run
'''


class TrackedRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_tracked_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        (self.folder / "text.txt").write_text((ROOT / "data/sample_corpus.txt").read_text()[:4000])
        (self.folder / "c.yaml").write_text(CONFIG)
        (self.folder / "packages").mkdir()
        (self.folder / "packages/wandb.py").write_text(WANDB)
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.folder / "packages"), "FAKE_WANDB": str(self.folder / "notes")}
        self.environment.pop("WANDB_DIR", None)

    def start(self, *more, launcher=(), **variables):
        process = subprocess.Popen([*launcher, TRAINER, "--config", "c.yaml", *more], cwd=self.folder, env={**self.environment, **variables}, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(process.kill)
        return process

    def train(self, *more, **given):
        process = self.start(*more, **given)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out + err)
        return out, err

    def notes(self, kind):
        notes = [json.loads(line) for line in (self.folder / "notes").read_text().splitlines()]
        return [note[kind] for note in notes if kind in note]

    def assert_has_every_number_once(self):
        records = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        rows = [(row["step"], name, value) for row in self.notes("row") for name, value in row.items() if name.endswith("/loss")]
        self.assertEqual(rows, [(record["step"], f"{record['split']}/loss", record["loss"]) for record in records])
        self.assertEqual(len(set(self.notes("init"))), 1)

    def test_a_run_is_sent_whole_and_its_last_line_tells_how_to_upload_it(self):
        out, err = self.train()
        self.assert_has_every_number_once()
        self.assertEqual((self.notes("mode"), self.notes("steps"), self.notes("finish")), (["offline"], [6], [0]))
        self.assertRegex(out.splitlines()[-1], f"wandb: wandb sync {self.folder}/run/wandb/offline-run-\\*-{self.notes('init')[0]}$")
        self.assertEqual(err, "")

    def test_a_folder_with_a_blank_is_quoted_in_the_command(self):
        out, _ = self.train("hydra.run.dir='my run'")
        command = out.splitlines()[-1].partition("wandb: ")[2]
        self.assertEqual(shlex.split(command), ["wandb", "sync", f"{self.folder}/my run/wandb/offline-run-*-{self.notes('init')[0]}"])
        self.assertTrue(command.endswith(f"'/offline-run-*-{self.notes('init')[0]}"))  # the shell expands it

    def test_wandb_mode_disabled_sends_nothing(self):
        out, err = self.train(WANDB_MODE="disabled")
        # The tracker prints it when it has started, which may be before or after the last step.
        self.assertRegex(out, "(?m)wandb: nothing is sent, as WANDB_MODE=disabled$")
        self.assertEqual(err, "")
        self.assertFalse((self.folder / "notes").exists() or list((self.folder / "run").glob("tracking*")))

    def test_without_the_package_or_python_one_line_says_how_to_get_it_and_training_continues(self):
        bare = self.folder / "python"
        bare.write_text('#!/bin/sh\nexec python3 -I -S "$@"\n')
        bare.chmod(0o755)
        for python, why in ((bare, r"\S+ lacks wandb: \S+ -m pip install wandb, or set PYTHON_EXEC to a Python that has it"),
                            ("/nowhere", "cannot start /nowhere: No such file or directory; install Python 3, or set PYTHON_EXEC to one")):
            out, err = self.train(f"hydra.run.dir=run_{Path(python).name}", PYTHON_EXEC=str(python))
            self.assertIn("Training finished", out)
            self.assertRegex(err, f"metrics_config.wandb: {why}; training continues without it; afterwards: {python} \\S+/track_run.py \\S+ --to wandb --mode=offline\n$")
            self.assertEqual(err.count("\n"), 1)

    def test_a_crash_and_its_restart_are_one_run_without_gaps_or_repetitions(self):
        self.train(launcher=[DDP_RUN, "--nproc_per_node=2", "--max_restarts=1"], DDP_FAULT_PLAN="rank=0 step=5 phase=backward kind=kill")
        self.assert_has_every_number_once()
        self.assertEqual((len(self.notes("init")), self.notes("finish")), (2, [1, 0]))

    def test_a_tracker_that_is_killed_has_what_it_may_have_lost_sent_again(self):
        self.train("metrics_config.wandb=off")
        command = ["python3", ROOT / "scripts/track_run.py", self.folder / "run", "--to", "wandb", "--with-trainer"]
        first = subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while not (self.folder / "run/tracking.wandb.json").exists():
            self.assertIsNone(first.poll())
            time.sleep(0.05)
        first.kill()
        first.communicate()
        subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        rows, half = self.notes("row"), len(self.notes("row")) // 2
        self.assertEqual((rows[:half], len(set(self.notes("init")))), (rows[half:], 1))
        subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(self.notes("row"), rows)

    def test_signals_to_all_processes_of_a_job_lose_nothing(self):
        os.mkfifo(self.folder / "gate")
        process = self.start("trainer_config.max_steps=1000000", FAKE_WANDB_GATE=str(self.folder / "gate"))
        for line in process.stdout:
            if "tep 3" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        with open(self.folder / "gate", "w"):  # once the tracker comes to its end
            os.killpg(self.notes("process")[0], signal.SIGTERM)
        process.communicate(timeout=120)
        self.assert_has_every_number_once()
        self.assertEqual(self.notes("finish"), [1])

    def test_a_tracker_that_does_not_end_is_left_running_after_a_while(self):
        os.mkfifo(self.folder / "gate")
        _, err = self.train("distributed_config.timeout_s=2", FAKE_WANDB_GATE=str(self.folder / "gate"))
        self.assertRegex(err, r"metrics_config.wandb: process \d+ still sends and is left to itself \(ddp-run ends what outlives its rank\); afterwards: python3 \S+ \S+ --to wandb --mode=offline\n$")
        end = os.pidfd_open(int(re.search(r"process (\d+) still", err)[1]))  # perhaps before its first note
        self.addCleanup(os.close, end)
        with open(self.folder / "gate", "w"):
            pass
        self.assertTrue(select.select([end], [], [], 60)[0])
        self.assert_has_every_number_once()
        self.assertEqual(self.notes("finish"), [0])


if __name__ == "__main__":
    unittest.main()
