"""examples/python/train.py as it is, and then the end of the process without that of the interpreter."""

import os
import runpy
import sys

runpy.run_path(os.environ["EXAMPLE"], run_name="__main__")
sys.stdout.flush()
# With torch 2.15 the interpreter's end aborts now and then after DDP over Gloo, under torchrun as well.
os._exit(0)
