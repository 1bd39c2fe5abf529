"""python -m unittest with the surroundings of a login shell, whose exit code is the tests' result and nothing else.

  run_unittest.py -v MODULE      in the folder of the module

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


sys.path.insert(0, os.getcwd())
result = unittest.main(module=None, exit=False, testRunner=Runner).result
sys.stdout.flush()
sys.stderr.flush()
os._exit(0 if result.wasSuccessful() and (result.testsRun or result.skipped) else 1)
