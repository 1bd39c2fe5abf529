"""python -m unittest with the surroundings of a login shell, whose exit code is the tests' result and nothing else.

  run_unittest.py -v MODULE      in the folder of the module

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
sys.path.insert(0, os.getcwd())
result = unittest.main(module=None, exit=False).result
sys.stdout.flush()
sys.stderr.flush()
os._exit(0 if result.wasSuccessful() and (result.testsRun or result.skipped) else 1)
