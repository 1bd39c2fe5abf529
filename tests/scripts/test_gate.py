"""A failed test fails .ci/run, which runs it once; the gate calls no function that it lacks."""

import os
import re
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
# A name with an underscore where a command stands: no program that the gate runs is named like that.
CALL = re.compile(
    r"(?:^|&&|\|\||[;|({!] |\$\(|\b(?:if|elif|then|else|while|until|do) )[ ]*(?:[A-Z_]+=(?:\"[^\"]*\"|\S*) )*"
    r"([a-z0-9]+(?:_[a-z0-9-]+)+)(?=[ ;)]|$)",
    re.MULTILINE,
)


class Gate(unittest.TestCase):
    def test_each_function_that_a_stage_calls_exists(self):
        text = GATE.read_text()
        place = text.index(BEGIN)
        listed = subprocess.run(
            ["bash", "-c", text[text.index("readonly gate_stages") : place] + "declare -F"],
            capture_output=True, text=True, check=True, timeout=60,
        )
        functions = {line.split()[-1] for line in listed.stdout.splitlines()}
        calls = set(CALL.findall(text))
        self.assertLessEqual({"install_packages", "build_for_aarch64", "stage_aarch64-contract"}, calls)
        self.assertEqual(calls - functions - {"hide_toolkits", "recall_failure"}, set())

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
