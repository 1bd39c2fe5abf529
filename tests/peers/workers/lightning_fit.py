"""Lightning with DDP and a metric of torchmetrics; the ranks come from the launcher (TorchElasticEnvironment).

FOLDER holds the checkpoints, one after each epoch; ckpt_path="last" resumes, if there is one. CRASH: in the first attempt
rank 1 is killed during the second epoch.
"""

import os
import signal
import warnings

import lightning
import torch
import torchmetrics
from lightning.pytorch.callbacks import ModelCheckpoint

warnings.filterwarnings("ignore")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.mean = torchmetrics.MeanMetric()
        self.first_step = None

    def on_train_start(self):
        self.first_step = self.global_step

    def on_train_epoch_start(self):
        self.mean.reset()

    def training_step(self, batch, _):
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if "CRASH" in os.environ and first and self.global_step == 6 and self.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.mean.update(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)


def main():
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4, shuffle=True)
    module = Module()
    saver = ModelCheckpoint(os.environ["FOLDER"], save_last=True)
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False, callbacks=[saver],
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, data, ckpt_path="last")
    environment = type(trainer.strategy.cluster_environment).__name__
    mean = module.mean.compute().item()  # of the last epoch, over both ranks
    weights = torch.nn.utils.parameters_to_vector(module.parameters()).tolist()
    os.write(1, f"rank {trainer.global_rank} of {trainer.world_size} by {environment}: steps {module.first_step} to "
                f"{trainer.global_step}, mean loss {mean!r}, weights {weights}\n".encode())
    torch.distributed.barrier()
    os._exit(0)  # see hf_trainer.py


main()
