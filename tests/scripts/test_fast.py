"""test.sh --fast tests what build/dev is configured for; without it, --all adds the long tests."""

import unittest

from support import ScriptTest

BUILD = """mkdir -p build/dev
echo "$*" >>built
echo "DDP_BUILD_TRAINER:BOOL=$TRAINER" >build/dev/CMakeCache.txt
[ "$TRAINER" = ON ] || [[ "$*" != *ddp_trainer_tests* ]] || { echo "ninja: error: unknown target 'ddp_trainer_tests'"; exit 1; }
"""
CTEST = """echo "$*" >ctest_arguments
echo "100% tests passed, 0 tests failed out of 7"
"""


class Fast(ScriptTest):
    script = "test.sh"

    def setUp(self):
        super().setUp()
        build = self.folder / "scripts/build.sh"
        build.write_text("#!/bin/bash\n" + BUILD)
        build.chmod(0o755)
        self.fake("ctest", CTEST)
        (self.folder / "scripts/setup.sh").write_text("#!/bin/sh\n")
        (self.folder / "scripts/setup.sh").chmod(0o755)

    def arguments_of_ctest(self, *arguments):
        done = self.run_script(*arguments, TRAINER="ON")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return (self.folder / "ctest_arguments").read_text().split()[4:]

    def test_long_tests_run_with_all_only(self):
        self.assertEqual(self.arguments_of_ctest("-R", "x"), ["-LE", "[-]long$", "-R", "x"])
        self.assertEqual(self.arguments_of_ctest("--all", "-R", "x"), ["-R", "x"])

    def test_without_trainer_the_tests_that_need_no_libtorch_run(self):
        done = self.run_script("--fast", TRAINER="OFF")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("test: build/dev is configured without trainer", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "test: 7 of 7 tests passed, 0 failed, 0 skipped")
        self.assertNotIn("|trainer)", (self.folder / "ctest_arguments").read_text())

    def test_with_trainer_its_tests_run_as_well(self):
        programs = self.folder / "build/dev/bin"
        programs.mkdir(parents=True)
        for name in ("ddp_model_tests", "ddp_trainer_tests", "ddp_refusal_tests"):
            (programs / name).write_text("#!/bin/sh\necho 'All tests passed (3 assertions in 1 test case)'\n")
            (programs / name).chmod(0o755)
        done = self.run_script("--fast", TRAINER="ON")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("test: ddp_trainer_tests: All tests passed", done.stdout)
        self.assertIn("|trainer)", (self.folder / "ctest_arguments").read_text())


if __name__ == "__main__":
    unittest.main()
