"""Attempts of a run without a model: what tests/trainer/metrics/metrics_probe.cc records from a script."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(os.environ.get("DDP_METRICS_PROBE", ROOT / "build/release/bin/ddp_metrics_probe"))
PATIENCE = 180  # seconds


class ProbeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ddp_metrics_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.run_folder = self.folder / "run"
        self.run_folder.mkdir()

    def attempt(self, script, folder=None):
        subprocess.run([PROBE, folder or self.run_folder], input=script, text=True, check=True, timeout=PATIENCE)

    def report(self, *folders):
        page = self.folder / "report.html"
        subprocess.run([PROBE, "--report", page, *folders], check=True, timeout=PATIENCE)
        return page


__all__ = ["PATIENCE", "PROBE", "ROOT", "ProbeTest"]
