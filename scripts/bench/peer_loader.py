"""Batches as plain PyTorch makes them, and nothing else: peer_train.py's data set, DistributedSampler and DataLoader.

  peer_loader.py TEXT BLOCK BATCH BATCHES      prints what ddp_loader_bench prints
"""

import sys
import time

from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from peer_train import CharDataset, endless


def main():
    text, block, batch, batches = sys.argv[1], *map(int, sys.argv[2:])
    data = CharDataset(text, block)
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=1337, drop_last=True)
    loader = endless(DataLoader(data, batch, sampler=sampler, drop_last=True), sampler)
    next(loader)
    begin, processor, tokens = time.perf_counter(), time.process_time(), 0
    for _ in range(batches):
        tokens += next(loader)[0].numel()
    print(f"{tokens} tokens, {time.perf_counter() - begin:.6f} s, {time.process_time() - processor:.6f} s of processor time")


if __name__ == "__main__":
    main()
