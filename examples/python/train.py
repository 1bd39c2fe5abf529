#!/usr/bin/env python3
"""A training under ddp-run or torchrun: DistributedDataParallel on GPUs (NCCL) or CPUs (Gloo), with a snapshot every
few epochs from which a restarted group resumes. docs/python-script.md explains it.

  ddp-run --standalone --nproc_per_node=2 --max_restarts=3 examples/python/train.py --epochs 10
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--save_every", type=int, default=2, metavar="EPOCHS")
    parser.add_argument("--batch_size", type=int, default=32, help="of each rank")
    parser.add_argument("--snapshot", default="snapshot.pt")
    parser.add_argument("--fail_in_epoch", type=int, help="rank 1 of the first attempt fails there, to see a restart")
    return parser.parse_args()


def toy_data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(2048, 20, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        torch.manual_seed(1)
        self.model = torch.nn.Linear(20, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.epochs_done = 0
        if os.path.exists(args.snapshot):
            self.load_snapshot()
        self.ddp = DistributedDataParallel(self.model)
        data = toy_data()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, args.batch_size, sampler=self.sampler)

    def load_snapshot(self):
        snapshot = torch.load(self.args.snapshot, map_location=self.device, weights_only=True)
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epochs_done = snapshot["epochs_done"]
        print(f"rank {self.rank}: goes on after epoch {self.epochs_done}", flush=True)

    def save_snapshot(self):
        """Whole or not at all: a rank that is killed while it writes leaves the previous snapshot."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epochs_done": self.epochs_done}
        folder = os.path.dirname(os.path.abspath(self.args.snapshot))
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            torch.save(state, file)
        os.replace(file.name, self.args.snapshot)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)  # another order each epoch, the same after a restart
        total = torch.zeros((), device=self.device)
        for inputs, targets in self.loader:
            loss = mse_loss(self.ddp(inputs.to(self.device)), targets.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.loader)

    def train(self):
        first_attempt = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        for epoch in range(self.epochs_done + 1, self.args.epochs + 1):
            if epoch == self.args.fail_in_epoch and first_attempt and self.rank == 1:
                raise RuntimeError(f"made to fail in epoch {epoch}")
            loss = self.train_epoch(epoch)
            print(f"rank {self.rank}: epoch {epoch}, loss {loss:.6f}", flush=True)
            self.epochs_done = epoch
            if self.rank == 0 and epoch % self.args.save_every == 0:
                self.save_snapshot()


def main():
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    Trainer(parse_args()).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
