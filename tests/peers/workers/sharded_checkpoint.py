"""Accelerate, whose model and optimizer torch.distributed.checkpoint saves; a crash, then it goes on from there.

FOLDER holds the checkpoint. Rank 0 is killed in the first attempt, after it was saved.
"""

import os
import signal

import torch
import torch.distributed.checkpoint as dcp
import torchmetrics
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def main():
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    metric = torchmetrics.MeanMetric()
    folder, attempt = os.environ["FOLDER"], int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    weights, moments = get_state_dict(model, optimizer.optimizer)
    state, done = {"model": weights, "optimizer": moments}, 0
    if attempt > 0:
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(model, optimizer.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        done = 3
    for step, batch in enumerate(data):
        if step < done:
            continue
        optimizer.zero_grad()
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        metric.update(loss.detach())
        accelerator.backward(loss)
        optimizer.step()
        if step == 2:
            weights, moments = get_state_dict(model, optimizer.optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
            if "CRASH" in os.environ and accelerator.process_index == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            accelerator.wait_for_everyone()
            metric.reset()
    os.write(1, f"rank {accelerator.process_index} of {accelerator.num_processes} ended in attempt {attempt}: "
                f"mean loss {metric.compute().item()!r}\n".encode())
    accelerator.wait_for_everyone()
    os._exit(0)  # see hf_trainer.py


main()
