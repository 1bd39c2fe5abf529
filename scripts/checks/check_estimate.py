#!/usr/bin/env python3
"""Compares what `trainer estimate` says of a rank's memory with the largest resident memory of a real run, on the CPU, for
models of every task.

  check_estimate.py [TRAINER [WORD]]      TRAINER: default build/release/bin/trainer; WORD: only cases with it in their name;
                                          exit 1 if one differs by more than 10 %
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 0.10
TEXT = ROOT / "data/sample_corpus.txt"
# A snapshot after each step: its copy is there while the next one computes.
TRAINER = "trainer_config: {max_steps: 4, save_every_steps: 1, device: cpu, data_loader_workers: 1}\n"
SPLIT = "train_split: 1.0"
GPT = f"data_config: {{path: {TEXT}, {SPLIT}}}\n"
MASKED = f"task: masked_lm\ndata_config: {{path: lines.txt, tokenizer: words, {SPLIT}}}\n"
CLASSIFIER = f"task: text_classification\ndata_config: {{path: texts.csv, tokenizer: words, {SPLIT}}}\n"
IMAGES = f"task: image_classification\ndata_config: {{path: images-idx3-ubyte, {SPLIT}}}\n"

LARGE = ["gpt_config.n_layer=6", "gpt_config.n_head=8", "gpt_config.n_embd=512", "data_config.block_size=256"]
LLAMA = ["model=llama", "llama_config.n_layer=6", "llama_config.n_head=8", "llama_config.n_kv_head=4", "llama_config.n_embd=512",
         "llama_config.intermediate=1408", "data_config.block_size=256"]
NO_DROPOUT = ["gpt_config.embd_pdrop=0", "gpt_config.resid_pdrop=0", "gpt_config.attn_pdrop=0"]
BERT = ["bert_config.n_layer=6", "bert_config.n_head=8", "bert_config.n_embd=384", "data_config.block_size=128"]
NO_BERT_DROPOUT = ["bert_config.hidden_pdrop=0", "bert_config.attn_pdrop=0"]
DENSE = ["image_config.network=dense", "image_config.n_layer=3", "image_config.width=2048"]
CONV = ["image_config.n_layer=3", "image_config.conv_channels=32", "trainer_config.batch_size=256"]
# Adapters of a Llama that one step has trained, most of whose memory is its weights'.
BASE = ["model=llama", "llama_config.n_layer=8", "llama_config.n_head=8", "llama_config.n_embd=1024", "llama_config.intermediate=2816",
        "data_config.block_size=128", "trainer_config.batch_size=1"]
ADAPTED = ["model=llama", "init_from=base", "lora.rank=8", "lora.targets=all-linear", *BASE[-2:]]
CASES = {
    "weights more than activations": (GPT, [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=1"]),
    "activations more than weights": (GPT, [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=12"]),
    "dropout": (GPT, [*LARGE, "trainer_config.batch_size=8"]),
    "checkpointed": (GPT, [*LARGE, *NO_DROPOUT, "trainer_config.batch_size=24", "gpt_config.activation_checkpointing=true"]),
    "llama, weights": (GPT, [*LLAMA, "trainer_config.batch_size=1"]),
    "llama, activations": (GPT, [*LLAMA, "trainer_config.batch_size=12"]),
    "llama, torch's attention": (GPT, [*LLAMA, "data_config.block_size=512", "trainer_config.batch_size=6"]),
    "llama, checkpointed": (GPT, [*LLAMA, "trainer_config.batch_size=24", "llama_config.activation_checkpointing=true"]),
    "adapters": (GPT, ADAPTED),
    "adapters, nf4": (GPT, [*ADAPTED, "quantize.base=nf4"]),
    "adapters, int8": (GPT, [*ADAPTED, "quantize.base=int8"]),
    "masked, weights": (MASKED, [*BERT, *NO_BERT_DROPOUT, "trainer_config.batch_size=2"]),
    "masked, activations": (MASKED, [*BERT, *NO_BERT_DROPOUT, "trainer_config.batch_size=48"]),
    "masked, dropout": (MASKED, [*BERT, "trainer_config.batch_size=32"]),
    "texts, dropout": (CLASSIFIER, [*BERT, "trainer_config.batch_size=32"]),
    "texts, long": (CLASSIFIER, [*BERT, "data_config.block_size=256", "trainer_config.batch_size=8"]),
    "images, dense": (IMAGES, [*DENSE, "trainer_config.batch_size=64"]),
    "images, convolution": (IMAGES, CONV),
    "images, normalized": (IMAGES, [*CONV, "image_config.batch_norm=local", "image_config.dropout=0.2"]),
}


def write_data(folder, trainer):
    """Lines longer than any row, two classes of them, images of 64x64."""
    words = TEXT.read_text(encoding="utf-8").split()
    lines = [" ".join(words[i:i + 300]) for i in range(0, len(words) - 300, max(1, len(words) // 200))]
    (folder / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    rows = [f'{i % 2},"{line.replace(chr(34), chr(34) * 2)}"' for i, line in enumerate(lines)]
    (folder / "texts.csv").write_text("\n".join(["label,text", *rows]), encoding="utf-8")
    images, side = 512, 64
    head = lambda *shape: bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    (folder / "images-idx3-ubyte").write_bytes(head(images, side, side) + random.Random(0).randbytes(images * side * side))
    (folder / "labels-idx1-ubyte").write_bytes(head(images) + bytes(i % 10 for i in range(images)))
    run(folder, trainer, "tokenize", "--tokenizer", "wordpiece", "--train", "--vocab_size", "4000", "--input", TEXT,
        "--output", "words")


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
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    bad = 0
    for name, (data, overrides) in CASES.items():
        if wanted not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if data != GPT:
                write_data(Path(folder), trainer)
            Path(folder, "c.yaml").write_text(data + TRAINER, encoding="utf-8")
            if "init_from=base" in overrides:
                run(folder, trainer, "--config", "c.yaml", *BASE, "trainer_config.snapshot_path=base.pt", "trainer_config.max_steps=1")
                run(folder, trainer, "export", "--snapshot", "base.pt", "--output", "base")
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
