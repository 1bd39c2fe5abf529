"""The baseline for scripts/checks/chaos.sh: a GPT of gpt-mini's size under DistributedDataParallel, in plain Python.

Rank 0 saves every few steps, each restart resumes from there, and a rank kills itself a few steps after each start.
Prints `killed TIME` and, for the first step of each attempt, `step TIME`, in Unix seconds.
"""

import os
import random
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

LAYERS, HEADS, WIDTH, BLOCK, BATCH, VOCABULARY = 6, 6, 192, 64, 4, 64
SAVE_EVERY, KILL_AFTER = 5, 6


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(BLOCK, WIDTH))
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(BLOCK), persistent=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens) + self.positions, mask=self.mask, is_causal=True))


def say(what):
    os.write(1, f"{what} {time.time():.6f}\n".encode())


def main(path, kills):
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(1337)
    net = Gpt()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    first = 0
    if os.path.exists(path):
        saved = torch.load(path)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    victim = random.Random(attempt).randrange(dist.get_world_size())
    for step in range(first + 1, first + 1000):
        if attempt < kills and step == first + KILL_AFTER and rank == victim:
            say("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        data = torch.randint(VOCABULARY, (BATCH, BLOCK + 1))
        loss = nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step == first + 1:
            say("step")
        if rank == 0 and step % SAVE_EVERY == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".tmp")
            os.replace(path + ".tmp", path)
        if attempt >= kills and step > first + KILL_AFTER:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    # With torch 2.15 the interpreter may abort while it ends; the result is out by then.
    os._exit(0)
