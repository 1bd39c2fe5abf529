"""All-reduces as torch.distributed makes them with Gloo, under torchrun; timed as `trainer doctor` times its own.

  peer_all_reduce.py BYTES ...      prints one line `all_reduce BYTES MICROSECONDS` each
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

RUNS = 5


def median_us(size):
    tensor, times = torch.zeros(size // 4), []
    for run in range(RUNS + 1):
        tensor.fill_(dist.get_rank() + 1)
        dist.all_reduce(torch.zeros(1))
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if run > 0:
            times.append(1e6 * (time.perf_counter() - begin))
    slowest = torch.tensor([statistics.median(times)])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def main():
    dist.init_process_group("gloo")
    for size in map(int, sys.argv[1:]):
        taken = median_us(size)
        if dist.get_rank() == 0:
            print(f"all_reduce {size} {taken:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # With torch 2.15 the interpreter may abort while it ends; the result is out by then.
    os._exit(0)
