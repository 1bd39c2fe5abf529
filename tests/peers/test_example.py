"""examples/python/train.py under torchrun, and as docs/python-script.md tells to run it under ddp-run."""

import os
import re
import subprocess
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PYTHON, ROOT, TORCHRUN, WORKERS, JobTest, need_torch

need_torch()
SCRIPT = "examples/python/train.py"
PAGE = ROOT / "docs/python-script.md"


def losses(text):
    """The last loss that each rank printed for each epoch."""
    return {(int(rank), int(epoch)): loss for rank, epoch, loss in re.findall(r"rank (\d): epoch (\d+), loss ([\d.]+)", text)}


class Example(JobTest):
    def typed(self, line):
        """A line of the page, typed in a folder of the test's with the environment of a user."""
        env = {**os.environ, "PATH": f"{DDP_RUN.parent}:{PYTHON.parent}:{os.environ['PATH']}", "VIRTUAL_ENV": str(PYTHON.parents[1]),
               "EXAMPLE": str(ROOT / SCRIPT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(["bash", "-c", line.replace(SCRIPT, str(WORKERS / "example.py"))], cwd=self.folder, env=env,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)

    def test_the_page_leads_through_a_crash_to_the_losses_of_an_undisturbed_run_under_torchrun(self):
        self.launcher = TORCHRUN
        calm = losses(self.succeed("--standalone", "--nproc-per-node=2", "example.py", "--epochs", 6, "--snapshot",
                                   self.folder / "calm.pt", EXAMPLE=ROOT / SCRIPT, CUDA_VISIBLE_DEVICES="").out)
        self.assertEqual(sorted(calm), [(rank, epoch) for rank in (0, 1) for epoch in range(1, 7)])

        first, failing, explain = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        done = self.typed(first)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(losses(done.stdout), {key: loss for key, loss in calm.items() if key[1] <= 4})

        done = self.typed(failing)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("made to fail in epoch 4", done.stderr)
        self.assertIn("restart 1 of 1", done.stderr)
        for rank in (0, 1):
            self.assertIn(f"rank {rank}: goes on after epoch 2", done.stdout)
        self.assertEqual(losses(done.stdout), calm)

        explained = self.typed(explain).stdout
        self.assertRegex(explained, r"succeeded .*, attempt 1\n(.*\n)*.*attempt 0, .*: rank 1 on .*, exit code 1\n"
                                    r"    RuntimeError: made to fail in epoch 4 \(.*train.py, line \d+\)\n")
        log = re.search(r"^    in (\S+/attempt_0/1/stderr.log)\n", explained, re.MULTILINE)[1]
        self.assertIn("made to fail in epoch 4", Path(log).read_text())


if __name__ == "__main__":
    unittest.main()
