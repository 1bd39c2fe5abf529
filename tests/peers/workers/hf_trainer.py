"""Hugging Face's Trainer, as its users write it: resumes from the newest checkpoint, if there is one.

FOLDER holds the checkpoints. CRASH: in the first attempt rank 1 is killed during step 4, after the checkpoint of step 2.
"""

import os
import signal

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        prediction = self.layer(x).squeeze(-1)
        return {"loss": torch.nn.functional.mse_loss(prediction, labels), "logits": prediction}


class Crash(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if "CRASH" in os.environ and first and state.global_step == 3 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    set_seed(1)
    data = [{"x": x, "labels": x.sum()} for x in torch.randn(64, 4)]
    folder = os.environ["FOLDER"]
    trainer = Trainer(Model(), TrainingArguments(
        folder, use_cpu=True, max_steps=6, per_device_train_batch_size=4, learning_rate=0.1, save_steps=2, logging_steps=1,
        report_to=[], disable_tqdm=True, seed=1, dataloader_pin_memory=False), train_dataset=data, callbacks=[Crash()])
    os.makedirs(folder, exist_ok=True)
    checkpoint = get_last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.args.process_index == 0:
        losses = " ".join(f"{entry['step']}:{entry['loss']}" for entry in trainer.state.log_history if "loss" in entry)
        os.write(1, f"world {trainer.args.world_size} from {os.path.basename(checkpoint or 'none')} losses {losses}\n".encode())
    torch.distributed.barrier()
    # With torch 2.15 the interpreter's end aborts now and then after DDP over Gloo, under torchrun as well.
    os._exit(0)


main()
