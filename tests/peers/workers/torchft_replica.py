"""One replica of torchft's, by its number REPLICA: averages gradients with the others, found through TORCHFT_LIGHTHOUSE.

CRASH: in the first attempt replica 1 is killed during step 3; started again it takes weights, moments and the number of
the step from replica 0, which waits for it.
"""

import os
import signal
from datetime import timedelta
from pathlib import Path

import torch
from torchft import Manager, Optimizer, ProcessGroupGloo


def main():
    torch.manual_seed(1)
    replica, attempt = int(os.environ["REPLICA"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    layer = torch.nn.Linear(4, 1)
    adam = torch.optim.AdamW(layer.parameters(), lr=0.1)

    def load(state):
        layer.load_state_dict(state["layer"])
        adam.load_state_dict(state["adam"])

    def state():
        return {"layer": layer.state_dict(), "adam": adam.state_dict()}

    patience = timedelta(seconds=180)  # another replica's imports may take a minute
    manager = Manager(ProcessGroupGloo(), load, state, min_replica_size=2, use_async_quorum=False,
                      replica_id=f"replica_{replica}", timeout=patience, quorum_timeout=patience, connect_timeout=patience)
    optimizer = Optimizer(manager, adam)
    first = None
    while manager.current_step() < 6:
        optimizer.zero_grad()  # agrees on who takes part
        step = manager.current_step()
        first = step if first is None else first
        if "CRASH" in os.environ and attempt == 0 and replica == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * step + replica))
        (layer(batch) - batch.sum(1, keepdim=True)).square().mean().backward()
        # By hand: the hook of torchft's DistributedDataParallel (0.2.0) fails when a replica is lost in its all-reduce.
        for work in [manager.allreduce(parameter.grad) for parameter in layer.parameters()]:
            work.wait()
        optimizer.step()  # unless a replica was lost: then the step is done again
    manager.start_quorum()  # neither leaves before the other has its last gradients
    weights = torch.nn.utils.parameters_to_vector(layer.parameters()).tolist()
    words = f"attempt {attempt}, steps {first} to {step}, weights {weights}"
    Path(os.environ["RECORDS"], f"replica {replica}").write_text(words)
    os._exit(0)  # see hf_trainer.py


main()
