"""scripts/bench/bench.sh as it is used, on its shortest row. It asserts no timing."""

import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, PYTHON, ROOT, need_torch

need_torch()
LONG = {"Bench.test_memory_and_time_of_sharded_training", "Bench.test_rows_that_other_programs_measure"}


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_peers_")
        self.addCleanup(folder.cleanup)
        self.json = Path(folder.name, "bench.json")

    def bench(self, *arguments, zero=None, **variables):
        env = {**os.environ, "DDP_RUN": str(DDP_RUN), "PYTHON": str(PYTHON), **variables}
        words = ["scripts/bench/bench.sh"] if zero is None else ["scripts/bench.sh", "zero", *zero]
        return subprocess.run([ROOT / words[0], *words[1:], "--json", self.json, *arguments], env=env, capture_output=True,
                              text=True, check=False, timeout=4 * PATIENCE)

    def test_a_quick_run_of_one_row_gives_a_table_and_json(self):
        done = self.bench("--quick", "--only", "cpu_step_1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = json.loads(self.json.read_text())
        self.assertLessEqual({"date", "commit", "cpu", "cores", "load", "torch", "command"}, set(found["machine"]))
        [row] = found["rows"]
        self.assertEqual((row["name"], row["unit"], row["gate"]), ("cpu_step_1", "ms/step", 0.9))
        for clock in ("wall", "processor"):
            for who in ("ours", "peer", "ratio"):
                figures = row[clock][who]
                self.assertTrue(0 < figures["p10"] <= figures["median"] <= figures["p90"] < math.inf, figures)
        # The same model on the same text: after four steps neither is where it began, and they are near each other.
        [(ours, peer)] = row["losses"]
        self.assertTrue(2.5 < ours < 4.0 and abs(ours - peer) < 0.4, row["losses"])
        self.assertIn(row["verdict"], ("met", "missed"))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[1], r"^cpu_step_1 .* ms/step .*<= 0\.90 -> 0\.70: (met|missed)")
        self.assertIn(found["machine"]["cpu"], lines[-1])

    def test_rows_that_other_programs_measure(self):
        done = self.bench("--quick", "--only", "evaluation", "--only", "all_reduce_4k", "--only", "all_reduce_16m")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads(self.json.read_text())["rows"]
        self.assertEqual([row["verdict"] in ("met", "missed") for row in rows], [True] * 3, rows)
        # The same weights on the same text.
        [(ours, peer)] = rows[0]["losses"]
        self.assertAlmostEqual(ours, peer, delta=1e-4)
        self.assertTrue(3 < ours < 6, ours)

    def test_memory_and_time_of_sharded_training(self):
        done = self.bench(zero=["--quick", "--ranks", "2", "--only", "zero1", "--only", "python_zero1"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        programs = json.loads(self.json.read_text())["programs"]
        for name in ("zero1", "python_zero1"):
            memory, time = programs[name]["memory"]["2"], programs[name]["time"]["2"]
            self.assertEqual(memory["parameters"], 23175168)
            # Weights, half of AdamW's averages and, with torch, all gradients are the least that is there.
            self.assertTrue(200 < memory["rest"] < memory["peak"] < 500, memory)
            self.assertTrue(0 < time["wall"]["step"]["median"] < math.inf, time)
        self.assertRegex(done.stdout, r"(?m)^\| trainer, zero1 \| 2 \| \d+ \| \d+ \| 221 \| ")

    def test_a_program_that_fails_is_a_failed_row(self):
        done = self.bench("--quick", "--only", "cpu_step_1", TRAINER="/bin/false")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("failed: exit code 1", done.stdout)

    def test_an_unknown_row_is_refused(self):
        done = self.bench("--only", "nonsense")
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                         (2, "bench.sh: error: no row 'nonsense'; --list names them"))


if __name__ == "__main__":
    unittest.main()
