"""Lightning with DDP and a metric of torchmetrics; the ranks come from the launcher (TorchElasticEnvironment)."""

import os
import warnings

import lightning
import torch
import torchmetrics

warnings.filterwarnings("ignore")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.mean = torchmetrics.MeanMetric()

    def training_step(self, batch, _):
        loss = (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.mean.update(loss.detach())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    lightning.seed_everything(1, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
    module = Module()
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, data)
    environment = type(trainer.strategy.cluster_environment).__name__
    mean = module.mean.compute().item()  # over both ranks
    os.write(1, f"rank {trainer.global_rank} of {trainer.world_size} by {environment}: mean loss {mean!r}\n".encode())
    torch.distributed.barrier()
    os._exit(0)  # see hf_trainer.py


main()
