"""Another CMake project may take this one in with add_subdirectory()."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(app LANGUAGES CXX)
set(DDP_BUILD_TRAINER OFF)
add_subdirectory("{root}" ddp_run)
"""


class Embedding(unittest.TestCase):
    def setUp(self):
        if not shutil.which("ninja"):
            self.skipTest("no ninja")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "CMakeLists.txt").write_text(PROJECT.format(root=ROOT))

    def run_command(self, *command):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_project_that_adds_this_one_gets_its_programs_and_nothing_else(self):
        self.run_command("cmake", "-G", "Ninja", "-S", ".", "-B", "build")
        targets = self.run_command("ninja", "-C", "build", "-t", "targets", "all")
        self.assertRegex(targets, r"(?m)^ddp-run: phony")
        self.assertNotRegex(targets, r"(?m)^(launcher_tests|package): phony")
        cache = (self.folder / "build" / "CMakeCache.txt").read_text()
        self.assertRegex(cache, r"(?m)^CMAKE_BUILD_TYPE:STRING=$", "the build type is the outer project's business")


if __name__ == "__main__":
    unittest.main()
