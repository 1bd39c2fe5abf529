"""A user's own script: joins the group that the environment describes and sums over the ranks."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item():.0f}, "
      f"store of ddp-run: {os.environ['TORCHELASTIC_USE_AGENT_STORE']}", flush=True)
dist.destroy_process_group()
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
os._exit(0)
