"""No test depends on how a Python that uses torch ends, with 2.15 perhaps by an abort, nor on how the tests were started."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests/support/run_unittest.py"


class Peers(unittest.TestCase):
    def test_whoever_forms_a_process_group_leaves_without_the_end_of_the_interpreter(self):
        formed = re.compile(r"init_process_group\(|\b(Accelerator|Trainer|Manager)\(")
        files = [path for folder in ("tests", "scripts") for kind in ("*.py", "*_test.cc") for path in (ROOT / folder).rglob(kind)]
        peers = [path for path in files if re.search(r"import .*\b(torch|lightning)\b", path.read_text()) and formed.search(path.read_text())]
        self.assertGreater(len(peers), 12)
        self.assertEqual([str(path) for path in peers if "os._exit(" not in path.read_text()], [])

    def run_module(self, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(text)
            return subprocess.run([sys.executable, RUNNER, *options, "-v", "test_it"], cwd=folder, capture_output=True, text=True, timeout=60)

    def test_the_result_of_the_tests_is_the_exit_code(self):
        head = "import atexit, os, unittest\natexit.register(os.abort)\nclass T(unittest.TestCase):\n def test(self): "
        for body, code in (("pass", 0), ("self.fail()", 1), ("1 / 0", 1), ("self.skipTest('no')", 0)):
            done = self.run_module(head + body)
            self.assertEqual(done.returncode, code, body + done.stderr)
            self.assertIn("Ran 1 test", done.stderr)
        self.assertEqual(self.run_module("").returncode, 1)
        self.assertEqual(self.run_module("raise ImportError").returncode, 1)
        self.assertEqual(self.run_module("import sys; print('[skipped] all of it', flush=True); sys.exit(0)").returncode, 0)

    def test_long_tests_run_on_their_own(self):
        module = """
import unittest
class A(unittest.TestCase):
    def test_a(self): print("a", flush=True)
    def test_b(self): print("b", flush=True)
class B(unittest.TestCase):
    def test_c(self): print("c", flush=True)
LONG = {"A.test_b", "B"}
"""
        for options, ran in (([], "a b c"), (["--short"], "a"), (["--long"], "b c")):
            done = self.run_module(module, *options)
            self.assertEqual((done.returncode, done.stdout.split()), (0, ran.split()), done.stderr)

    def test_tests_that_are_cut_off_show_where_they_were_and_clean_up(self):
        module = """
import os, signal, time, unittest
class T(unittest.TestCase):
    def setUp(self):
        self.addCleanup(print, "cleaned up", flush=True)
    def test_a(self):
        for i in range(2):
            with self.subTest(seed=i):
                os.kill(os.getpid(), signal.SIGTERM), time.sleep(30)  # what it waits for
    def test_b(self):
        print("went on")
"""
        done = self.run_module(module)
        self.assertEqual((done.returncode, done.stdout), (1, "cleaned up\n"), done.stderr)
        self.assertIn("what it waits for", done.stderr)
        self.assertIn("cut off by SIGTERM", done.stderr)
        self.assertIn("(seed=0)", done.stderr)
        self.assertNotIn("(seed=1)", done.stderr)

    def test_programs_under_test_start_as_from_a_login_shell(self):
        module = """
import os, subprocess, unittest
class T(unittest.TestCase):
    def test(self):
        status = subprocess.run(["cat", "/proc/self/status", "-"], capture_output=True, text=True)
        self.assertEqual(status.returncode, 0, status.stderr)
        self.assertRegex(status.stdout, r"Umask:\\t0022")
        self.assertRegex(status.stdout, r"SigIgn:\\t0+\\n")
"""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(module)
            script = 'trap "" HUP INT QUIT; umask 077; exec "$@" <&-'
            done = subprocess.run(["sh", "-c", script, "sh", sys.executable, RUNNER, "test_it"], cwd=folder,
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
