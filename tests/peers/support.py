"""Both launchers as their users start them, with workers that leave what they saw in files.

DDP_RUN names ddp-run (default: build/release/bin), DDP_PEER_PYTHON a Python with torch (default: .venv),
beside which torchrun lies.
"""

import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).resolve().parent / "workers"
DDP_RUN = Path(os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run"))
TRAINER = Path(os.environ.get("DDP_TRAINER", DDP_RUN.parent / "trainer"))
PYTHON = Path(os.environ.get("DDP_PEER_PYTHON", ROOT / ".venv/bin/python"))
PEERS = os.environ.get("DDP_PEER_PACKAGES", str(ROOT / ".cache/peers"))
PATIENCE = 180  # seconds: far above what a run needs, far below what hides a hang
# The end of each program that uses torch: with torch 2.15 the interpreter may abort while it ends, under torchrun as well,
# and what counts is what the program wrote.
LEAVE = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"

# What a launcher or a job around this one may have set.
FOREIGN = ("PET_", "TORCH", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "OMP_NUM_THREADS",
           "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NCCL_", "PYTHON")


def need_torch():
    """To be called before the tests of a file are defined."""
    if not (PYTHON.exists() and list(PYTHON.parents[1].glob("lib/python3*/site-packages/torch/version.py"))):
        print(f"[skipped] all of it: no Python with torch at {PYTHON}")
        sys.exit(0)


def need_here(package):
    """Starts the tests anew by PYTHON if this Python lacks `package`; to be called before it is imported."""
    if importlib.util.find_spec(package):
        return
    if PYTHON.exists() and Path(sys.executable).parent != PYTHON.parent:
        os.execv(PYTHON, [str(PYTHON), "-m", "unittest", *sys.argv[1:]])
    print(f"[skipped] all of it: no Python with {package} at {PYTHON}")
    sys.exit(0)


class Launcher:
    def __init__(self, name, command):
        self.name = name
        self.command = [str(part) for part in command]


DDP_RUN_LAUNCHER = Launcher("ddp-run", [DDP_RUN])
TORCHRUN = Launcher("torchrun", [PYTHON, "-m", "torch.distributed.run"])


class Job:
    """A started launcher; its session and everything in it is dead at the end of the test."""

    def __init__(self, command, folder, env):
        self.out_file, self.err_file = tempfile.TemporaryFile(dir=folder), tempfile.TemporaryFile(dir=folder)
        self.process = subprocess.Popen(command, cwd=WORKERS, env=env, stdin=subprocess.DEVNULL,
                                        stdout=self.out_file, stderr=self.err_file, start_new_session=True)

    def signal(self, number):
        self.process.send_signal(number)

    def finish(self, patience=PATIENCE):
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError("the launcher did not end\n" + self.err) from None
        return self

    @property
    def code(self):
        return self.process.returncode

    @staticmethod
    def _text(file):
        file.seek(0)
        return file.read().decode(errors="replace")

    @property
    def out(self):
        return self._text(self.out_file)

    @property
    def err(self):
        return self._text(self.err_file)

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()  # killed at once, torchrun would leave its workers behind
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.out_file.close()
        self.err_file.close()


class JobTest(unittest.TestCase):
    """`self.launcher` starts the jobs; workers leave records in `self.records`."""

    launcher = DDP_RUN_LAUNCHER
    patience = PATIENCE

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ddp_peers_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.records = self.folder / "records"
        self.logs = self.folder / "logs"
        for folder in (self.records, self.folder / "tmp"):
            folder.mkdir()
        os.mkfifo(self.records / "meet")
        os.mkfifo(self.records / "ready")
        # Writable here as well: it has no end of file between one worker and the next.
        self.ready = open(self.records / "ready", "rb+", buffering=0)
        self.addCleanup(self.ready.close)

    def start(self, *arguments, **variables):
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        env.update(OMP_NUM_THREADS="1", TMPDIR=str(self.folder / "tmp"), RECORDS=str(self.records),
                   PYTHONDONTWRITEBYTECODE="1", PYTHON_EXEC=str(PYTHON))
        for name, value in variables.items():
            env.pop(name, None)
            if value is not None:
                env[name] = str(value)
        job = Job(self.launcher.command + [str(argument) for argument in arguments], self.folder, env)
        self.addCleanup(job.end)
        return job

    def run_job(self, *arguments, **variables):
        return self.start(*arguments, **variables).finish(self.patience)

    def succeed(self, *arguments, **variables):
        job = self.run_job(*arguments, **variables)
        self.assertEqual(job.code, 0, str(job))
        return job

    def record(self, rank, attempt=0):
        return json.loads((self.records / f"{attempt}.{rank}.json").read_text())

    def need(self, *modules):
        """Looks only: importing them takes seconds."""
        look = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in sys.argv[1:]))"
        if subprocess.run([PYTHON, "-c", look, *modules], env={**os.environ, "PYTHONPATH": PEERS}).returncode != 0:
            print(f"[skipped] {modules[0]} is not in {PEERS.removeprefix(str(ROOT) + '/')}: bash .ci/run setup")
            self.skipTest("a package is missing")

    def wait_for_workers(self, count):
        """Until that many have written a line into the pipe `ready`."""
        for _ in range(count):
            ready, _, _ = select.select([self.ready], [], [], PATIENCE)
            self.assertTrue(ready, "the workers did not get ready")
            self.ready.readline()

    def log_tree(self):
        """Files below the one run folder, relative to it, and that folder's name."""
        runs = [path for path in self.logs.iterdir() if not path.is_symlink()]  # ddp-run has a link `latest`, too
        self.assertEqual(len(runs), 1, runs)
        files = {str(path.relative_to(runs[0])) for path in runs[0].rglob("*") if path.is_file()}
        return runs[0], files - {"result.json"}  # ddp-run's record of the run


class TrainerTest(unittest.TestCase):
    """A folder in which trainer runs on the CPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_peers_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def trainer(self, *words, code=0, **environment):
        """What it printed; its errors where it is to fail."""
        done = subprocess.run([TRAINER, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=2 * PATIENCE,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout


def both_launchers(tests):
    """Two test cases from one class of assertions: the peer's and ours."""
    def case(name, launcher):
        return type(tests.__name__ + name, (tests, JobTest), {"launcher": launcher, "__module__": tests.__module__})

    return case("OfTorchrun", TORCHRUN), case("OfDdpRun", DDP_RUN_LAUNCHER)


__all__ = ["DDP_RUN", "JobTest", "LEAVE", "PATIENCE", "PEERS", "PYTHON", "ROOT", "TORCHRUN", "TRAINER", "TrainerTest",
           "WORKERS", "both_launchers", "need_torch", "signal"]
