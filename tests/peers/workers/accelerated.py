"""Hugging Face accelerate, started by any launcher that sets the usual environment."""

import os

import torch
from accelerate import Accelerator


def main():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    batches = 0
    for batch in data:
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        batches += 1
    weights = accelerator.gather(model.module.weight.detach().flatten())
    assert torch.equal(*weights.chunk(2)), weights
    os.write(1, f"rank {accelerator.process_index} of {accelerator.num_processes}: {batches} batches\n".encode())
    accelerator.end_training()
    # With torch 2.15 the interpreter's end aborts now and then after that, under torchrun as well.
    os._exit(0)


main()
