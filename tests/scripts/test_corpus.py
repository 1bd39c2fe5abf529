"""The sample corpus is what its script writes, and what data/README.md says of it is true."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "data" / "sample_corpus.txt"
SCRIPT = ROOT / "scripts" / "corpus" / "make_corpus.py"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


class Corpus(unittest.TestCase):
    def test_the_script_writes_the_same_bytes_again(self):
        self.assertEqual(run("--check", CORPUS).returncode, 0)

    def test_a_changed_byte_is_noticed(self):
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".txt") as other:
            other.write(CORPUS.read_bytes().replace(b"Anna", b"Anne", 1))
            other.flush()
            result = run("--check", other.name)
        self.assertEqual(result.returncode, 1)
        self.assertIn("is not what", result.stderr)

    def test_the_readme_tells_its_facts(self):
        readme = (ROOT / "data" / "README.md").read_text()
        for line in run("--stats", CORPUS).stdout.splitlines():
            self.assertIn(line.split(": ")[1], readme, line)

    def test_every_sum_is_right(self):
        sums = re.findall(r"^(?:.*: )?([\d +x-]+) = (\d+)$", CORPUS.read_text(), re.MULTILINE)
        self.assertGreater(len(sums), 100)
        for terms, result in sums:
            self.assertEqual(eval(terms.replace("x", "*")), int(result), terms)

    def test_no_line_is_repeated_often(self):
        lines = [line for line in CORPUS.read_text().splitlines() if line]
        self.assertGreater(len(set(lines)), 0.85 * len(lines))
