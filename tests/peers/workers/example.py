"""examples/python/train.py as it is, and then the end of the process without that of the interpreter."""

import os
import runpy
import sys

code = 0
try:
    runpy.run_path(os.environ["EXAMPLE"], run_name="__main__")
except Exception:
    sys.excepthook(*sys.exc_info())
    code = 1
sys.stdout.flush()
sys.stderr.flush()
# With torch 2.15 the interpreter's end aborts now and then after DDP over Gloo, under torchrun as well.
os._exit(code)
