"""A folder with the files of configs/, in which the built programs run."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("DDP_BIN", ROOT / "build/release/bin"))
CORPUS = (ROOT / "data/sample_corpus.txt").read_text()
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "DDP_RUN")


class RecipeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ddp_recipes_"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(ROOT / "configs", self.folder / "configs")

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def run_command(self, *command, patience=300, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        env |= {"PATH": f"{BIN}:{env['PATH']}", **environment}
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=patience)

    def shorten(self, **values):
        """A smaller model in the quickstart's configuration, and what the test wants; all else as in the file."""
        path = self.folder / "configs/quickstart.yaml"
        text = path.read_text()
        for key, value in {"n_embd": 32, "batch_size": 4, **values}.items():
            text, count = re.subn(rf"^  {key}: \d+", f"  {key}: {value}", text, flags=re.MULTILINE)
            self.assertEqual(count, 1, key)
        path.write_text(text)

    def run_page(self, page, *replacements, patience=300):
        """Runs a page's commands in their order, each block of them in a shell; what each block has written."""
        said = []
        for block in re.findall(r"^```bash\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            for written, run in replacements:
                block = block.replace(written, run)
            done = self.run_command("bash", "-euo", "pipefail", "-c", block, patience=patience)
            self.assertEqual(done.returncode, 0, block + done.stdout + done.stderr)
            said.append(done.stdout + done.stderr)
        return said

    def trainer(self, *arguments, patience=300):
        """Its standard output; it must succeed."""
        done = self.run_command("trainer", *arguments, patience=patience)
        self.assertEqual(done.returncode, 0, f"trainer {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def refused(self, *arguments):
        """The one line on standard error."""
        done = self.run_command("trainer", *arguments)
        self.assertEqual(done.returncode, 2, f"trainer {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr.strip()

    def evaluations(self, run):
        """The records of evaluations in a run's folder."""
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["split"] == "eval"]


__all__ = ["BIN", "CORPUS", "ROOT", "RecipeTest"]
