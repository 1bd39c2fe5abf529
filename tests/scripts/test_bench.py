"""The figures of scripts/bench/bench.sh: what becomes of measured times."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))

import bench_zero
import report
import rows
from bench import Laps, lacks
from rank_memory import ALLOCATOR, RankMemory
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

    def test_memory_of_a_rank_is_that_over_its_start_at_rest_and_at_its_peak(self):
        program = ("import sys; size = 32 << 20; may = open('may')\n"
                   "def say(text): print(text, flush=True); may.readline()\n"
                   "say('Model next'); held = bytearray(b'x') * (2 * size); say('number of parameters: 12345')\n"
                   "for step in range(1, 7):\n"
                   "    passing = bytearray(b'x') * size; del passing; say(f'Step {step} | Train Loss 1.0')\n"
                   "held = None; say('end')")

        class InSteps(RankMemory):
            def line(self, text):
                super().line(text)
                seen = len(self.samples)
                while len(self.samples) < seen + 2:  # the program waits meanwhile
                    self.thread.join(0.001)
                may.write("\n")

        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(Path(folder, "may"))
            with open(os.open(Path(folder, "may"), os.O_RDWR), "w", buffering=1, encoding="utf-8") as may, \
                    InSteps(3, 6) as observer:
                watch([sys.executable, "-c", program], folder, {"RANK": "0", **ALLOCATOR}, 30, observer)
        self.assertEqual(observer.parameters, 12345)
        # On many CPUs the kernel's counters are off by some MiB.
        self.assertAlmostEqual(observer.peak, 96, delta=10)
        self.assertAlmostEqual(observer.rest, 64, delta=10)

    def test_the_state_that_strategies_keep(self):
        weights = 4 * bench_zero.PARAMETERS / 2**20
        self.assertEqual(bench_zero.PARAMETERS, 23175168)
        held = {program.name: bench_zero.held(program, 4) / weights for program in bench_zero.PROGRAMS}
        self.assertEqual({name: round(value, 6) for name, value in held.items()},
                         {"ddp": 4, "zero1": 1.75, "zero2": 1.75, "zero3": 1, "python_ddp": 4, "python_zero1": 2.5,
                          "python_fsdp2_kept": 0.75, "python_fsdp2": 0.75})


if __name__ == "__main__":
    unittest.main()
