"""A failed test fails .ci/run, which runs it once."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

GATE = Path(__file__).resolve().parents[2] / ".ci/run"
# All stages but that of the tests.
STAGES = """
for stage in "${all_stages[@]}"; do [ "$stage" = test ] || eval "stage_$stage() { :; }"; done
"""
BEGIN = 'if [ "${1:-}" = --stage ]'
# Fails at first, and passes when it runs again.
TESTS = """#!/bin/sh
echo "$*" >>runs
[ "$(wc -l <runs)" -gt 1 ]
"""


class Gate(unittest.TestCase):
    def test_a_failed_test_does_not_run_again(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = Path(folder.name)
        for name in (".ci", "scripts"):
            (place / name).mkdir()
        text = GATE.read_text()
        self.assertEqual(text.count(BEGIN), 1)
        (place / ".ci/run").write_text(text.replace(BEGIN, STAGES + BEGIN))
        for name in ("scripts/test.sh", "ctest"):
            (place / name).write_text(TESTS)
            (place / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "DDP_GATE_WITHOUT_TOOLKITS": "yes"}
        done = subprocess.run(["bash", ".ci/run"], cwd=place, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^gate: FAILED \(test\) after ")
        self.assertEqual((place / "runs").read_text(), "\n")


if __name__ == "__main__":
    unittest.main()
