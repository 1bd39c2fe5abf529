"""Fails in its first round and leaves what others have to remove: shared memory of Python and of torch."""

import os
from multiprocessing import shared_memory

import torch

segment = shared_memory.SharedMemory(os.environ["SEGMENT"], create=True, size=4096)
torch.multiprocessing.set_sharing_strategy("file_system")
shared = torch.zeros(4).share_memory_()
print(os.getpid(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
segment.unlink()
