#!/usr/bin/env python3
"""Trains configs/masked_lm.yaml on WikiText-2's test.txt with 2 ranks for a few minutes, from random weights, and checks that
the masked accuracy on its valid.txt rises above what always guessing the most frequent token reaches.

  check_masked_lm.py [STEPS]     default: 600, about 5 minutes on 2 cores; the texts: wikitext2-{test,valid}.txt in
                                 DDP_TEST_TEXTS (default: ../shared/data); DDP_TRAINER, DDP_RUN: other programs
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = Path(os.environ.get("DDP_TEST_TEXTS", ROOT.parent / "shared/data"))
PROGRAMS = ROOT / "build/release/bin"
TRAINER = os.environ.get("DDP_TRAINER", PROGRAMS / "trainer")
DDP_RUN = os.environ.get("DDP_RUN", PROGRAMS / "ddp-run")
MARGIN = 2.0  # times the share of the most frequent token; 2.5 was measured after 600 steps


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    training, evaluation = TEXTS / "wikitext2-test.txt", TEXTS / "wikitext2-valid.txt"
    if not training.exists() or not evaluation.exists():
        print(f"[skipped] no {training.name} and {evaluation.name} in {TEXTS}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        def run(*words):
            return subprocess.run([*map(str, words)], cwd=folder, check=True, capture_output=True, text=True,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
        run(TRAINER, "tokenize", "--tokenizer", "wordpiece", "--train", "--vocab_size", "2000", "--input", training,
            "--output", "wordpieces")
        lines = evaluation.read_text(encoding="utf-8").splitlines(keepends=True)
        Path(folder, "valid.txt").write_text("".join(lines[:len(lines) // 2]), encoding="utf-8")
        Path(folder, "test.txt").write_text("".join(lines[len(lines) // 2:]), encoding="utf-8")
        began = time.monotonic()
        log = run(DDP_RUN, "--standalone", "--nproc_per_node=2", TRAINER, "--config", ROOT / "configs/masked_lm.yaml",
                  f"data_config.path={training}", "data_config.eval_path=valid.txt", "data_config.test_path=test.txt",
                  "data_config.tokenizer=wordpieces", "data_config.block_size=128", "trainer_config.batch_size=16",
                  "trainer_config.global_batch_size=32", "trainer_config.max_epochs=100", f"trainer_config.max_steps={steps}",
                  "optimizer_config.learning_rate=0.002", "optimizer_config.warmup_steps=30", "bert_config.hidden_pdrop=0",
                  "bert_config.attn_pdrop=0", "trainer_config.device=cpu")
        took = time.monotonic() - began
        report = json.loads(run(TRAINER, "eval", "--snapshot", "outputs/masked_lm/snapshot.pt", "--json"))
    guess = float(re.search(r"would be right about ([0-9.]+)", log).group(1))
    reached = report["masked_accuracy"]
    print(f"{steps} steps in {took:.0f} s: masked accuracy {reached:.4f}, the most frequent token {guess:.4f}")
    return 0 if reached >= MARGIN * guess else 1


if __name__ == "__main__":
    sys.exit(main())
