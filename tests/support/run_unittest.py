"""python -m unittest with the surroundings of a login shell, whose exit code is the tests' result and nothing else.

  run_unittest.py [--short | --long] -v MODULE      in the folder of the module

A module's LONG is a set of its classes and CLASS.METHODs that are left to the night: --short runs the others, --long these.

After SIGTERM, as of timeout(1), the test that runs fails and shows what it waited for, cleans up, and no other begins.

With torch 2.15 the interpreter may abort while it ends. nohup and others ignore signals, close stdin or set a umask, which
the programs under test would inherit; a handler in place of SIG_IGN is reset to the default by exec.
"""

import os
import signal
import sys
import unittest

os.umask(0o022)
try:
    os.fstat(0)
except OSError:
    os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # these are subprocess's
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


class Runner(unittest.TextTestRunner):
    def _makeResult(self):
        result = super()._makeResult()

        def cut_off(*_):
            result.failfast = True  # subtests, too
            result.stop()
            raise SystemExit("cut off by SIGTERM")

        signal.signal(signal.SIGTERM, cut_off)
        return result


class Loader(unittest.TestLoader):
    """Of a module's tests the short or the long ones, or both."""

    wanted = None
    if sys.argv[1:2] in (["--short"], ["--long"]):
        wanted = sys.argv.pop(1) == "--long"

    def getTestCaseNames(self, case):
        long = getattr(sys.modules[case.__module__], "LONG", set())
        names = super().getTestCaseNames(case)
        if self.wanted is None:
            return names
        return [name for name in names if bool({case.__name__, f"{case.__name__}.{name}"} & long) == self.wanted]


sys.path.insert(0, os.getcwd())
result = unittest.main(module=None, exit=False, testRunner=Runner, testLoader=Loader()).result
sys.stdout.flush()
sys.stderr.flush()
os._exit(0 if result.wasSuccessful() and (result.testsRun or result.skipped) else 1)
