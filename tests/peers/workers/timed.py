"""torch's own watchdog: one scope that ends in time, and one of rank 1 that does not."""

import os
import time

from torch.distributed.elastic import timer

from seen import RANK, leave_record

timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=600):
    leave_record()
if RANK == 1:
    with timer.expires(after=0.1):
        time.sleep(600)
time.sleep(600)
