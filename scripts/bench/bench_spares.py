#!/usr/bin/env python3
"""SIGKILL of a rank to the end of the group's first new step, with and without ddp-run --warm-spares, in turns.

  bench_spares.py [KILLS]     KILLS (20) of each; 2 CPU ranks, gpt-mini, copies of the state in memory

A round: both jobs train, one of them gets SIGKILL on a random rank, and the line that follows its first new step is waited
for, while the other is stopped (SIGSTOP), so that it takes no CPU time. Before a kill with spares these are waited for until they sleep in
recvmsg; the job without trains as long. DDP_RUN and TRAINER name other programs.
"""

import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
DDP_RUN = os.environ.get("DDP_RUN", ROOT / "build/release/bin/ddp-run")
TRAINER = os.environ.get("TRAINER", ROOT / "build/release/bin/trainer")
RANKS = 2
CONFIG = """
data_config: {path: text.txt, block_size: 64, train_split: 1}
gpt_config: {model_type: gpt-mini}
trainer_config: {max_steps: 1000000, batch_size: 4, data_loader_workers: 1, snapshot_path: snapshot.pt, ram_snapshots: true,
  log_every_steps: 1}
distributed_config: {timeout_s: 60, hang_timeout_s: 0}
hydra: {run: {dir: .}}
"""
WORDS = "the brook ran high and Anna baked bread. Karl looked below an old oak, but kept".split()


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


class Job:
    def __init__(self, folder, options):
        self.folder = folder
        folder.mkdir()
        dice = random.Random(1)
        (folder / "text.txt").write_text(" ".join(dice.choice(WORDS) for _ in range(36000)))
        (folder / "config.yaml").write_text(CONFIG)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [DDP_RUN, "--standalone", f"--nproc_per_node={RANKS}", "--max_restarts=1000", "--healthy-after=0.1", *options, TRAINER, "--config",
             "config.yaml"], cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=(folder / "err").open("w"))
        self.steps, self.starts = Queue(), Queue()  # when a line came
        self.parts = []  # of each start
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if "| Step " in line:
                self.steps.put(time.monotonic())
            if ": program " in line:  # after the first step
                self.starts.put(time.monotonic())
                self.parts.append({name: float(seconds) for name, seconds in re.findall(r"([a-z ]+) (\d+\.\d+)[,\n]", line)})

    def agent(self):
        return int(read(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()[0])

    def children(self):
        """pid -> its first environment"""
        pids = read(f"/proc/{self.agent()}/task/{self.agent()}/children").split()
        return {int(pid): read(f"/proc/{int(pid)}/environ") for pid in pids}

    def waits(self, pid):  # for its environment: recvmsg
        return read(f"/proc/{pid}/syscall").split()[:1] == [b"212" if platform.machine() == "aarch64" else b"47"]

    def spares(self):
        return [pid for pid, env in self.children().items() if b"DDP_SPARE_FD=" in env and self.waits(pid)]

    def workers(self):
        return [pid for pid, env in self.children().items() if b"TORCHELASTIC_RUN_ID=" in env and not self.waits(pid)]

    def signal_all(self, number):
        for pid in self.children():
            os.kill(pid, number)

    def make_a_step(self):
        began = time.monotonic()
        while self.steps.get(timeout=120) < began:
            pass

    def kill_one(self):
        killed = time.monotonic()
        os.kill(random.choice(self.workers()), signal.SIGKILL)
        return self.starts.get(timeout=120) - killed

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def measure(kills, folder):
    jobs = {"without": Job(folder / "without", []), "with": Job(folder / "with", ["--warm-spares"])}
    times = {name: [] for name in jobs}
    for job in jobs.values():
        job.starts.get(timeout=120)
    for kill in range(kills + 1):  # the first pair is not counted
        for name, other in (("without", "with"), ("with", "without")):
            job = jobs[name]
            began = time.monotonic()
            jobs[other].signal_all(signal.SIGSTOP)
            while name == "with" and len(job.spares()) < RANKS or time.monotonic() - began < 1.0:
                time.sleep(0.01)
            taken = job.kill_one()
            if kill:
                times[name].append(taken)
            jobs[other].signal_all(signal.SIGCONT)
            jobs[other].make_a_step()
    for job in jobs.values():
        job.end()
    return times, jobs


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main(arguments):
    if len(arguments) > 1 or arguments and not arguments[0].isdigit():
        sys.exit(__doc__)
    kills = int(arguments[0]) if arguments else 20
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        times, jobs = measure(kills, Path(folder))
        memory = re.search(r"standby workers: .*", (Path(folder) / "with/err").read_text())[0]
    for name, values in times.items():
        print(f"{name:8} p10 {percentile(values, 0.1):.3f} s, p50 {statistics.median(values):.3f} s, p90 {percentile(values, 0.9):.3f} s "
              f"[{min(values):.3f} - {max(values):.3f}] n={len(values)}")
        starts = jobs[name].parts[2:]
        print("         " + ", ".join(f"{part} {statistics.median(start[part] for start in starts):.2f}"
                                      for part in starts[0]))
    ratios = [a / b for a, b in zip(times["with"], times["without"])]
    print(f"ratio    p10 {percentile(ratios, 0.1):.2f}, p50 {statistics.median(ratios):.2f}, "
          f"p90 {percentile(ratios, 0.9):.2f} [{min(ratios):.2f} - {max(ratios):.2f}]; {memory}")
    print(f"machine: {os.cpu_count()} CPU cores, load average {load:.1f} to {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
