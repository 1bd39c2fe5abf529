"""What trainer's distributed_config.strategy is measured against: torch's own DistributedDataParallel, ZeroRedundancyOptimizer
(ZeRO-1) and fully_shard (FSDP2), around peer_train.py's model with a tied head, on tokens that `trainer tokenize` wrote.

FSDP2 shards each block and, in one group with the tied embedding, the rest. AdamW is the fused one. Prints `Model next` before
the model exists, and trainer's words for a step.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from peer_train import Gpt, endless

HEADER = 128  # bytes; docs/data.md


class TokenDataset(Dataset):
    def __init__(self, path, block):
        with open(path, "rb") as file:
            header = file.read(HEADER)
        assert int.from_bytes(header[16:20], "little") == 2, "tokens of 16 bits"
        self.vocabulary = int.from_bytes(header[20:24], "little")
        size = (os.path.getsize(path) - HEADER) // 2
        self.tokens = torch.from_file(str(path), dtype=torch.uint16, size=HEADER // 2 + size)[HEADER // 2:]
        self.block = block

    def __len__(self):
        return (len(self.tokens) - 1) // self.block

    def __getitem__(self, i):
        window = self.tokens[i * self.block:(i + 1) * self.block + 1].long()
        return window[:-1], window[1:]


def make_model(args, vocabulary):
    net = Gpt(args, vocabulary)
    net.head.weight = net.wte.weight
    count = sum(p.numel() for p in net.parameters())
    if args.strategy in ("ddp", "zero1"):
        return DistributedDataParallel(net, gradient_as_bucket_view=True), count
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    reshard = args.strategy == "fsdp2"
    for block in net.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    return fully_shard(net, mesh=mesh, reshard_after_forward=reshard), count


def make_optimizer(model, args):
    options = {"lr": args.learning_rate, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}
    if args.strategy == "zero1":
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)
    return torch.optim.AdamW(model.parameters(), **options)


def train(args):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1337)
    data = TokenDataset(args.tokens, args.block)
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, seed=1337, drop_last=True)
    loader = DataLoader(data, args.batch, sampler=sampler, drop_last=True)
    if rank == 0:
        print("Model next", flush=True)
    model, count = make_model(args, data.vocabulary)
    optimizer = make_optimizer(model, args)
    if rank == 0:
        print(f"number of parameters: {count}", flush=True)
    for step, (tokens, targets) in enumerate(endless(loader, sampler), 1):
        optimizer.zero_grad(set_to_none=args.strategy.startswith("fsdp2"))  # elsewhere they are views of the buckets
        loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and (step == 1 or step % args.log_every == 0):
            print(f"Step {step} | Train Loss {loss.item():.6f}", flush=True)
        if step == args.steps:
            break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens")
    parser.add_argument("--strategy", choices=("ddp", "zero1", "fsdp2", "fsdp2_kept"), default="ddp",
                        help="fsdp2_kept: without reshard_after_forward")
    for name, default in (("layers", 6), ("heads", 8), ("width", 512), ("block", 128), ("batch", 2), ("steps", 10),
                          ("log_every", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--learning_rate", type=float, default=0.002)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # With torch 2.15 the interpreter may abort while it ends; the result is out by then.
    os._exit(0)
