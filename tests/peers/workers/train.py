"""A user's script: torch's own DistributedDataParallel over Gloo, set up by env://; nothing of ddp-run's in it.

MODE tells what happens beside the training, as it may in a user's job.
"""

import contextlib
import os
import select
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(text):
    # One write: ranks share the pipe, and print() makes two when Python is unbuffered.
    os.write(1, (text + "\n").encode())


def train(steps):
    torch.manual_seed(dist.get_rank())  # different on purpose: DDP starts from rank 0's parameters
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        torch.manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def check_equal_everywhere(values):
    all_values = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(all_values, values)
    assert all(torch.equal(values, other) for other in all_values)


def main():
    mode = os.environ.get("MODE", "")
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    values = train(steps=5)
    check_equal_everywhere(values)
    say(f"rank {rank} of {size} in attempt {attempt} trained, with arguments {sys.argv[1:]}")
    store = dist.distributed_c10d._get_default_store()
    if mode == "die" and attempt == 0:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
    if mode == "rank 0 leaves":
        store.set(f"pid {rank}", str(os.getpid()))
        dist.destroy_process_group()
        if rank == 0:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended already
            select.select([os.pidfd_open(int(store.get("pid 0")))], [], [])
        store.set("after", "served after rank 0")
        say(f"the store said: {store.get('after').decode()}")
        return
    if mode == "store is killed":
        with open(os.environ["RECORDS"] + "/ready", "w") as pipe:
            pipe.write("ready\n")
        if rank == 0:
            os.close(os.open(os.environ["RECORDS"] + "/meet", os.O_RDONLY))
        check_equal_everywhere(train(steps=2))
        say(f"rank {rank} went on")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # With torch 2.15 the end of the interpreter aborts in some runs of a hundred after DDP over Gloo, under
    # torchrun as well; that is not what these tests are about.
    os._exit(0)
