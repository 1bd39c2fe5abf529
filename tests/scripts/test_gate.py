"""A test that fails next to others and passes alone is flaky: .ci/run lists it, and fails in `full`."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

GATE = Path(__file__).resolve().parents[2] / ".ci/run"
STAGES = """
for stage in "${all_stages[@]}"; do eval "stage_$stage() { :; }"; done
stage_test() { run_tests build ctest; }
"""
BEGIN = 'if [ "${1:-}" = --stage ]'
# Fails at first; alone, with --rerun-failed, as $RERUN says.
CTEST = """#!/bin/sh
[ "$3" != --rerun-failed ] || exit "$RERUN"
mkdir -p build/Testing/Temporary
echo "7:a test of two ranks" >build/Testing/Temporary/LastTestsFailed.log
touch build/Testing/Temporary/LastTest.log
exit 8
"""


class Gate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / ".ci").mkdir()
        text = GATE.read_text()
        self.assertEqual(text.count(BEGIN), 1)
        (self.folder / ".ci/run").write_text(text.replace(BEGIN, STAGES + BEGIN))
        (self.folder / "ctest").write_text(CTEST)
        (self.folder / "ctest").chmod(0o755)

    def gate(self, *stages, rerun):
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "RERUN": str(rerun), "DDP_GATE_WITHOUT_TOOLKITS": "yes"}
        done = subprocess.run(["bash", ".ci/run", *stages], cwd=self.folder, env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines()

    def test_the_gate_lists_a_flaky_test_at_its_end(self):
        code, lines = self.gate(rerun=0)
        self.assertEqual(code, 0, lines)
        self.assertEqual(lines[-2], "flaky: a test of two ranks")
        self.assertRegex(lines[-1], "^gate: passed in ")

    def test_a_flaky_test_fails_the_nightly_run(self):
        code, lines = self.gate("full", rerun=0)
        self.assertEqual(code, 1, lines)
        self.assertEqual(lines[-2], "flaky: a test of two ranks")
        self.assertRegex(lines[-1], r"^gate: FAILED \(flaky tests\) after ")

    def test_a_test_that_fails_alone_is_no_flaky_one(self):
        code, lines = self.gate(rerun=8)
        self.assertEqual(code, 1, lines)
        self.assertRegex(lines[-1], r"^gate: FAILED \(test\) after ")
        self.assertEqual([line for line in lines if line.startswith("flaky")], [])


if __name__ == "__main__":
    unittest.main()
