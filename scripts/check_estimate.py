#!/usr/bin/env python3
"""Compares what `trainer estimate` says of a rank's memory with the largest resident memory of a real run, on the CPU.

  check_estimate.py [TRAINER]      TRAINER: default build/release/bin/trainer; exit 1 if one differs by more than 10 %
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 0.10
LARGE = ["gpt_config.n_layer=6", "gpt_config.n_head=8", "gpt_config.n_embd=512", "data_config.block_size=256"]
NO_DROPOUT = ["gpt_config.embd_pdrop=0", "gpt_config.resid_pdrop=0", "gpt_config.attn_pdrop=0"]
CASES = {
    "weights more than activations": [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=1"],
    "activations more than weights": [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=12"],
    "dropout": [*LARGE, "trainer_config.batch_size=8"],
    "checkpointed": [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=24", "gpt_config.activation_checkpointing=true"],
}


def run(folder, *words):
    """Standard output, and the largest resident memory in bytes."""
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = subprocess.Popen([*map(str, words)], cwd=folder, stdout=subprocess.PIPE, text=True, env=env)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"check_estimate: {' '.join(map(str, words))} ended with {status}")
    return output, usage.ru_maxrss * 1024


def main():
    trainer = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin/trainer").resolve()
    bad = 0
    for name, overrides in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "c.yaml").write_text(f"data_config: {{path: {ROOT}/data/sample_corpus.txt, train_split: 1.0}}\n"
                                              # A snapshot after each step: its copy is there while the next one computes.
                                              "trainer_config: {max_steps: 4, save_every_steps: 1, device: cpu}\n")
            words = ["--config", "c.yaml", *overrides]
            text, _ = run(folder, trainer, "estimate", "--json", *words)
            report = json.loads(text)
            _, measured = run(folder, trainer, *words)
        ratio = report["needed_bytes"] / measured
        kinds = ", ".join(f"{kind} {value / 1e6:.0f}" for kind, value in report["memory_per_rank_bytes"].items())
        verdict = "" if abs(ratio - 1) <= TOLERANCE else "  TOO FAR"
        bad += verdict != ""
        print(f"{name}: estimated {report['needed_bytes'] / 1e6:.0f} MB ({kinds}), measured {measured / 1e6:.0f} MB: "
              f"{ratio:.2f}{verdict}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
