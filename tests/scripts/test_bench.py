"""The figures of scripts/bench/bench.sh: what becomes of measured times."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))

import report
import rows
from bench import Laps, lacks
from watch import Failed, Mark, watch


def mark(step, wall, processor):
    made = Mark(step, 1.0, 0.0, [])
    made.wall, made.processor = wall, processor
    return made


class Figures(unittest.TestCase):
    machine = {"date": "2026-01-01", "commit": "abc", "cpu": "a CPU", "cores": 2, "load": 0.5, "torch": "2", "command": "x"}
    row = rows.Row("some_row", "what it is", 0.9, 0.7)

    def result(self, ratio, row=None):
        row = row or self.row
        figures = report.compared([100.0 * ratio, 101.0 * ratio], [100.0, 101.0], [ratio])
        return {**report.head(row), "wall": figures, "processor": figures, "load": 1.0, **report.verdict(row, ratio)}

    def test_the_first_lap_is_warm_up(self):
        laps = Laps([mark(1, 5.0, 4.0), mark(10, 9.0, 8.0), mark(20, 10.0, 8.5), mark(30, 12.0, 9.0)])
        self.assertEqual(laps.wall, [0.1, 0.2])
        self.assertEqual(laps.processor, [0.05, 0.05])
        self.assertAlmostEqual(laps.mean_wall, 0.15)

    def test_gates_are_met_or_missed(self):
        self.assertEqual([report.gate_text(self.result(ratio)) for ratio in (0.91, 0.90, 0.70)],
                         ["<= 0.90 -> 0.70: missed", "<= 0.90 -> 0.70: met", "<= 0.90 -> 0.70: met, aim reached"])
        more = rows.Row("more", "tokens/s", 2.0, more_is_better=True)
        self.assertEqual([report.gate_text(self.result(ratio, more)) for ratio in (1.9, 2.0)],
                         [">= 2.00: missed", ">= 2.00: met"])

    def test_percentiles_are_measured_values(self):
        self.assertEqual(report.spread(range(1, 12)), {"median": 6, "p10": 2, "p90": 10, "n": 11})

    def test_rows_of_the_docs_are_replaced_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.md")
            page.write_text(f"before\n{report.DOCS_BEGIN}\n{report.DOCS_END}\nafter\n")
            other = rows.Row("other_row", "the other")
            report.write_docs(page, self.machine, [self.result(0.5), self.result(2.0, other)])
            report.write_docs(page, self.machine, [self.result(0.25)])
            lines = page.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        self.assertEqual([line.split(" | ")[0] for line in lines[2:-2]], ["| name", "|---|---|---|---|---|---|---|---|",
                                                                         "| some_row", "| other_row"])
        self.assertIn("0.25 [0.25 - 0.25]", lines[4])

    def test_a_program_that_fails_is_named_with_its_last_words(self):
        with self.assertRaises(Failed) as caught:
            watch(["sh", "-c", "echo why >&2; exit 3"], "/", {}, 30)
        self.assertEqual(str(caught.exception), "exit code 3\nwhy\n")

    def test_steps_are_seen_from_outside(self):
        marks = watch(["sh", "-c", "echo 'Step 1 | Train Loss 4.25'; echo 'Step 10 | Train Loss nan'"], "/", {}, 30)
        self.assertEqual([(m.step, str(m.loss)) for m in marks], [(1, "4.25"), (10, "nan")])

    def test_a_row_says_what_the_machine_lacks(self):
        missing = {row.name: lacks(row) for row in rows.ROWS}
        self.assertEqual(missing["cpu_step_1"], "")
        self.assertEqual(missing["gpu_small"], "" if Path("/dev/nvidiactl").exists() else "no GPU here")


if __name__ == "__main__":
    unittest.main()
