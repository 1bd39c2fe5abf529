"""Records the first signal that asks it to stop, and exits with 0. With FAIL its rank 1 fails instead."""

import os
import signal
import sys

from seen import RANK, RECORDS, leave_record, meet

asked = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, asked)
if os.environ.get("FAIL"):
    meet()
    if RANK == 1:
        sys.exit(7)
else:
    with open(f"{RECORDS}/ready", "w") as pipe:
        pipe.write("ready\n")
leave_record(signal=signal.Signals(signal.sigwait(asked)).name)
