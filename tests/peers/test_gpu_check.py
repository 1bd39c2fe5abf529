"""scripts/gpu_check.sh on a machine without a GPU: the same runs on the CPU, and what it says when a program says nothing."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PYTHON, ROOT, need_torch

need_torch()
SCRIPT = ROOT / "scripts/gpu_check.sh"


class GpuCheck(unittest.TestCase):
    def check(self, *arguments, **variables):
        env = {**os.environ, "DDP_RUN": str(DDP_RUN), "TRAINER": str(DDP_RUN.parent / "trainer"), "PYTHON": str(PYTHON),
               "OMP_NUM_THREADS": "1", "GPU_CHECK_SECONDS": "100000", **variables}
        return subprocess.run([SCRIPT, *arguments], env=env, capture_output=True, text=True, check=False, timeout=4 * PATIENCE)

    def figures(self, done):
        lines = done.stdout.split("\n== figures, ")[1].splitlines()[1:]
        return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}

    def test_a_dry_run_has_a_figure_for_everything(self):
        done = self.check("--dry-run", "--no-bench")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        figures = self.figures(done)
        self.assertEqual((figures["same_seed"], figures["resumed"], figures["device_and_cpu"]), ("equal",) * 3)
        for name in ("padding_and_loss", "compression_and_loss"):
            self.assertLess(0.0 if figures[name] == "equal" else float(figures[name]), 0.01)
        for name in ("fp32", "bf16", "padded_vocabulary", "compressed", "copies_in_memory"):
            self.assertRegex(figures[name], r"^[\d.]+k? tok/s$")
        self.assertRegex(figures["communication"], r"in flight for [\d.]+ ms, .* exposed$")
        self.assertIn("aten::", figures["operations"])

    def test_programs_that_say_nothing_are_missing_figures(self):
        with tempfile.TemporaryDirectory(prefix="ddp_peers_") as folder:
            silent = Path(folder, "silent")
            silent.write_text("#!/bin/sh\n")
            silent.chmod(0o755)
            done = self.check("--dry-run", "--no-bench", TRAINER=str(silent), DDP_RUN=str(silent))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(set(self.figures(done).values()), {"missing"})
        self.assertIn("error: without a figure: doctor same_seed", done.stderr)

    def test_what_does_not_begin_in_time_is_missing(self):
        done = self.check("--dry-run", GPU_CHECK_SECONDS="0")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(self.figures(done)["fp32"], "missing")
        self.assertEqual(self.figures(done)["cpu_step_1"], "missing")

    def test_without_a_driver_it_says_so(self):
        with tempfile.TemporaryDirectory(prefix="ddp_peers_") as folder:
            for name in ("bash", "dirname", "mktemp", "rm"):
                Path(folder, name).symlink_to(f"/usr/bin/{name}")
            done = self.check("--no-build", PATH=folder)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "error: nvidia-smi was not found: no NVIDIA driver on this machine\n"))

    def test_unknown_arguments_and_missing_programs_are_refused(self):
        self.assertEqual(self.check("--nonsense").returncode, 2)
        done = self.check("--dry-run", TRAINER="/nonexistent/trainer")
        self.assertEqual(done.returncode, 2)
        self.assertIn("error: /nonexistent/trainer is missing; tip: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
