"""python -m unittest, whose exit code is the tests' result and nothing else: with torch 2.15 the interpreter may abort while it ends.

  run_unittest.py -v MODULE      in the folder of the module
"""

import os
import sys
import unittest

sys.path.insert(0, os.getcwd())
result = unittest.main(module=None, exit=False).result
sys.stdout.flush()
sys.stderr.flush()
os._exit(0 if result.wasSuccessful() and (result.testsRun or result.skipped) else 1)
