"""A copy of one script in a folder of its own, and commands that pretend."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ScriptTest(unittest.TestCase):
    script = ""  # name below scripts/

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / self.script, self.folder / "scripts")
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def fake(self, name, body):
        """A command found before the real one."""
        path = self.bin / name
        path.write_text("#!/bin/bash\n" + body)
        path.chmod(0o755)

    def run_script(self, *arguments, path=None, **environment):
        env = {k: v for k, v in os.environ.items() if k not in ("TORCH_ROOT", "TORCH_VERSION", "DDP_VENV")}
        env["PATH"] = path or f"{self.bin}:{env['PATH']}"
        env.update(environment)
        return subprocess.run(["bash", f"scripts/{self.script}", *arguments], cwd=self.folder, env=env,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
