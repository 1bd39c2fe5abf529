"""A rank of torch's DistributedDataParallel with each communication hook in turn; rank 0 prints the gradients.

  compress_peer.py bf16|fp16 ...
"""

import os
import sys

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
except ImportError:
    if os.environ["RANK"] == "0":
        print("no torch")
    sys.exit(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1000))
        self.bias = torch.nn.Parameter(torch.zeros(7))

    def forward(self, x):
        return (self.weight * x).sum() + (self.bias * x[:7]).sum()


dist.init_process_group("gloo")
for name in sys.argv[1:]:
    model = Model()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(None, {"bf16": default_hooks.bf16_compress_hook, "fp16": default_hooks.fp16_compress_hook}[name])
    ddp(torch.arange(1000, dtype=torch.float32) * 0.37 * (dist.get_rank() + 1) - 3.1).backward()
    if dist.get_rank() == 0:
        for parameter in (model.weight, model.bias):
            print(" ".join("%.9g" % value for value in parameter.grad.tolist()))
sys.stdout.flush()
dist.destroy_process_group()
# With torch 2.15 the interpreter may abort while it ends; the result is out by then.
os._exit(0)
