#!/usr/bin/env python3
"""Writes tests/e2e/tasks/preference.golden: what TRL's DPOTrainer and ORPOTrainer (1.16) report of ten steps on the files of preference_data.py.

  make_preference_golden.py > tests/e2e/tasks/preference.golden      by a Python with trl; nothing else needs it
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

HERE = Path(__file__).resolve().parent
STEPS, PAIRS, MOST_TOKENS = 10, 8, 79
# The losses of TRL's `sigmoid` have no label smoothing; those of `aot` are DPO's with it, sorted within a micro-batch: of one pair here.
CASES = {"sigmoid": ("explicit", 4, {"loss_type": ["sigmoid"]}),
         "texts": ("texts", 8, {"loss_type": ["sigmoid"], "beta": 0.5}),
         "smoothing": ("explicit", 1, {"loss_type": ["aot"], "label_smoothing": 0.2}),
         "robust": ("implicit", 2, {"loss_type": ["robust"], "label_smoothing": 0.1}),
         "ipo": ("implicit", 8, {"loss_type": ["ipo"]}),
         "orpo": ("texts", 8, None)}
COMMON = {"max_steps": STEPS, "learning_rate": 0.005, "lr_scheduler_type": "constant", "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.95,
          "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "logging_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True, "bf16": False,
          "max_length": MOST_TOKENS, "disable_tqdm": True, "gradient_checkpointing": False}


def run(folder, rows, batch, options):
    tokenizer = AutoTokenizer.from_pretrained(folder / "start")
    tokenizer.bos_token = None
    data = Dataset.from_list([json.loads(line) for line in (folder / f"{rows}.jsonl").read_text().splitlines()])
    base, kind = (ORPOTrainer, ORPOConfig) if options is None else (DPOTrainer, DPOConfig)
    losses = []

    class Recorded(base):
        def compute_loss(self, model, inputs, *args, **kwargs):
            result = super().compute_loss(model, inputs, *args, **kwargs)
            losses.append((result[0] if isinstance(result, tuple) else result).item())
            return result

    config = kind(output_dir=str(folder / "out"), per_device_train_batch_size=batch, gradient_accumulation_steps=PAIRS // batch, **COMMON, **(options or {}))
    trainer = Recorded(model=AutoModelForCausalLM.from_pretrained(folder / "start", dtype=torch.float32), args=config, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "rewards/margins" in entry]
    assert len(steps) == STEPS and len(losses) * batch == STEPS * PAIRS
    result = {"loss": [sum(losses[first:first + PAIRS // batch]) * batch / PAIRS for first in range(0, len(losses), PAIRS // batch)]}
    for name in ("rewards/accuracies", "rewards/margins", "rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected", "nll_loss", "log_odds_ratio",
                 "log_odds_chosen"):
        if name in steps[0]:
            result[name] = [float(entry[name]) for entry in steps]
    return result


def as_text(golden):
    """JSON with a line for each list."""
    cases = [f'"{name}": {{\n' + ",\n".join(f'  "{key}": {[float(f"{value:.7g}") for value in values]}' for key, values in case.items()) + "}"
             for name, case in golden.items()]
    return "{" + ",\n".join(cases) + "}\n"


def main():
    out = os.dup(1)
    os.dup2(2, 1)
    golden = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, HERE / "preference_data.py", folder], check=True)
        for name, (rows, batch, options) in CASES.items():
            golden[name] = run(Path(folder), rows, batch, options)
    os.write(out, as_text(golden).encode())


if __name__ == "__main__":
    main()
