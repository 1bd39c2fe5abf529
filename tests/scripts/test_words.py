"""check_words.py finds each pattern in its file and line, skips code and what is permitted, and lets plain English pass."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/checks/check_words.py"
sys.path.insert(0, str(SCRIPT.parent))
from check_words import RULES, check_tree  # noqa: E402

# A sentence and what is found in it; every rule has one.
WRONG = [
    ("The run goes on from its snapshot.", "goes on"),
    ("A killed rank comes back.", "comes back"),
    ("Each command is taken in by its program.", "is taken in"),
    ("The peer is gone.", "is gone"),
    ("The next start mends it.", "mends"),
    ("The workers hear of a new window size.", "hear of"),
    ("The picture stands beside it.", "stands beside"),
    ("The programs lie in bin/.", "lie in"),
    ("One line says so.", "says so"),
    ("As the log says.", "log says"),
    ("The rank is told at the hand-over.", "is told"),
    ("It tells once how much memory they take.", "tells once"),
    ("Wrong options are answered with a hint.", "are answered"),
    ("The snapshot knows its images.", "snapshot knows"),
    ("The run ends and names the first tensor.", "and names the"),
    ("A folder beside the programs.", "beside"),
    ("The update is queued behind the copy.", "behind "),
    ("| Most ranks that share a device |", "Most ranks that"),
    ("64 nodes at the most.", "at the most"),
    ("Done. Of each attempt it shows the error.", "Of "),
    ("Those of this process.", "Those of"),
    ("The layout for who loads all of them.", "for who"),
    ("A spare is no worker.", "is no worker"),
    ("A process that ends by itself.", "by itself"),
    ("It ends as the unbroken run does.", "unbroken"),
    ("Code that nobody has run.", "nobody has run"),
    ("It ends in the bits of another run.", "in the bits of"),
    ("Time in which it was ready to run.", "ready to run"),
    ("The cores are too few of them for all that runs.", "too few of them"),
    ("It is not taken for hung.", "taken for hung"),
    ("There is nothing ready-made.", "ready-made"),
    ("The time-outs are those of the group.", "time-outs"),
    ("It waits for ever.", "for ever"),
    ("It costs processor time.", "processor time"),
    ("A line with the remedy.", "remedy"),
    ("It needs a fitting torch.", "fitting"),
    ("Guessing: always the same label.", "Guessing:"),
    ("Evaluations do not weigh.", "do not weigh"),
    ("Odd rows suit no matrix unit.", "matrix unit"),
    ("They have not led beyond step 7.", "have not led"),
    ("Look for the rank that did not come.", "that did not come"),
    ("Correct what its last lines show.", "Correct what"),
]
RIGHT = """A resumed run continues from its snapshot; there is no other way, and there are no flags.
The rank that is furthest behind, or fell behind, leaves nothing behind. Run it on the GPU: what goes on the command line?
Of course it is no longer needed. Most of the time is startup. Files in the cloud are behind a proxy.
The message contains the word, `one line says so`, in code.

    ddp-run --standalone beside    # a comment in code is read
"""


def write(root, files):
    for name, text in files.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(files):
    with tempfile.TemporaryDirectory() as root:
        write(root, files)
        return check_tree(Path(root))[1]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        write(root, files)
        return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)


class Words(unittest.TestCase):
    def test_each_pattern_is_reported_with_its_file_line_and_suggestion(self):
        for sentence, phrase in WRONG:
            with self.subTest(sentence=sentence):
                errors = found({"docs/page.md": f"# Title\n\nA first line.\n\n{sentence}\n"})
                self.assertRegex("\n".join(errors), f'(?m)^docs/page.md:5: "{phrase.strip()}": .+')

    def test_every_rule_has_a_sentence_that_it_finds(self):
        for pattern, _ in RULES:
            self.assertTrue(any(pattern.search(sentence) for sentence, _ in WRONG), pattern.pattern)

    def test_plain_english_and_code_pass(self):
        self.assertEqual(found({"README.md": RIGHT}), [])

    def test_the_exit_code_is_1_with_findings_and_2_without_pages(self):
        for files, code, output in (({"README.md": RIGHT}, 0, "words: 1 files, no findings\n"),
                                    ({"README.md": "for ever\n"}, 1, 'README.md:1: "for ever": forever\n'), ({}, 2, "")):
            done = run(files)
            self.assertEqual((done.returncode, done.stdout), (code, output))

    def test_a_phrase_over_two_lines_is_found_in_the_first(self):
        self.assertEqual(found({"README.md": "One line.\nThe run goes\non from there.\n"}),
                         ['README.md:2: "goes on": continue, resume'])

    def test_a_comment_permits_its_phrase_on_the_line_and_the_next_one(self):
        allowed = "<!-- words: beside -->\nA word such as beside.\n"
        self.assertEqual(found({"README.md": allowed}), [])
        self.assertEqual(len(found({"README.md": allowed + "\nAnother beside.\n"})), 1)

    def test_of_code_the_comments_are_read(self):
        errors = found({"README.md": "    ddp-run true   # it goes on\n", "configs/run.yaml": "goes on: 1  # for ever\n",
                        "examples/slurm/job.sbatch": "# time-out\necho time-out\n"})
        self.assertEqual(errors, ['README.md:1: "goes on": continue, resume', 'configs/run.yaml:1: "for ever": forever',
                                  'examples/slurm/job.sbatch:1: "time-out": timeout'])

    def test_of_cpp_and_python_the_comments_and_docstrings_are_read(self):
        header = ('// It goes\n// on there.\n/* for ever */\nconst char* a = "time-out // time-out";  // Of these\n'
                  'int million = 1\'000;  // "time-out" is quoted, as is `time-out`\nauto b = R"(// time-out)";\n')
        python = '#!/usr/bin/env time-out\n"""Beside: beside."""\nx = "time-out"  # time-out\n\ndef f():\n    """It\n    is gone."""\n'
        errors = found({"launcher/a.h": header, "trainer/a/b.cu": "// time-out\n", "tests/a_test.cc": "int a;\n// Of it.\n",
                        "scripts/a.py": python})
        self.assertEqual([error.split(": ")[0] + error.split('"')[1] for error in errors],
                         ["scripts/a.py:2beside", "scripts/a.py:3time-out", "scripts/a.py:7is gone", "launcher/a.h:1goes on",
                          "launcher/a.h:3for ever", "launcher/a.h:4Of", "tests/a_test.cc:2Of", "trainer/a/b.cu:1time-out"])

    def test_help_and_the_newest_version_of_the_changelog_are_read(self):
        errors = found({"tests/launcher/cli/help.golden": "  --x   waits for ever\n",
                        "CHANGELOG.md": "# Changelog\n\n## 0.2\n- time-out\n\n## 0.1\n- time-out\n"})
        self.assertEqual([error.split(": ")[0] for error in errors], ["CHANGELOG.md:4", "tests/launcher/cli/help.golden:1"])


if __name__ == "__main__":
    unittest.main()
