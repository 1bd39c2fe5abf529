"""Leaves a record and lines; with FAIL_FIRST its rank 1 fails in the first attempt."""

import os
import signal
import sys

from seen import ATTEMPT, RANK, leave_record, meet, write_line

leave_record(package=__package__)
write_line(f"out {RANK}")
write_line(f"err {RANK} needle")
write_line(f"to stderr {RANK}", fd=2)
if os.environ.get("FAIL_FIRST") and ATTEMPT == 0:
    meet()
    if RANK == 1:
        sys.exit(3)
    signal.pause()
