#!/usr/bin/env python3
"""Writes pairs of answers and a small GPT-2 to start from: the same files on every machine, with nothing but Python.

  preference_data.py FOLDER

FOLDER/start has the model, and the tokenizer and chat template of scripts/make_conversations.py. explicit.jsonl, implicit.jsonl and texts.jsonl have
the same eight pairs in TRL's forms, of which one is longer than 79 tokens; eval.jsonl has six others.
"""

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LAYERS, HEADS, WIDTH, POSITIONS, PAIRS, EVALUATION = 2, 2, 16, 80, 8, 6


def shapes(vocabulary):
    yield "transformer.wte.weight", [vocabulary, WIDTH]
    yield "transformer.wpe.weight", [POSITIONS, WIDTH]
    for layer in range(LAYERS):
        for name, shape in (("ln_1", [WIDTH]), ("attn.c_attn", [WIDTH, 3 * WIDTH]), ("attn.c_proj", [WIDTH, WIDTH]), ("ln_2", [WIDTH]),
                            ("mlp.c_fc", [WIDTH, 4 * WIDTH]), ("mlp.c_proj", [4 * WIDTH, WIDTH])):
            yield f"transformer.h.{layer}.{name}.weight", shape
            yield f"transformer.h.{layer}.{name}.bias", shape[-1:]
    yield "transformer.ln_f.weight", [WIDTH]
    yield "transformer.ln_f.bias", [WIDTH]


def write_model(folder, vocabulary):
    rng = random.Random(5)
    header, data = {}, b""
    for name, shape in shapes(vocabulary):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        centre = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
        values = struct.pack(f"<{count}f", *(centre + 0.6 * (rng.random() - 0.5) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": POSITIONS, "n_embd": WIDTH,
              "n_layer": LAYERS, "n_head": HEADS, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    folder = Path(sys.argv[1])
    start = folder / "start"
    subprocess.run([sys.executable, ROOT / "scripts/make_conversations.py", start], check=True)
    settings = start / "tokenizer_config.json"  # <|endoftext|> ends a text, and the chat template its own
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "eos_token": "<|endoftext|>"}))
    conversations = [json.loads(line)["messages"] for line in (start / "train.jsonl").read_text().splitlines()]
    write_model(start, len(json.loads((start / "tokenizer.json").read_text())["model"]["vocab"]))
    answers = [messages[-1]["content"] for messages in conversations]
    pairs = []
    for number, messages in enumerate(conversations[:PAIRS + EVALUATION]):
        wrong = next(answer for answer in answers[number + 1:] if answer != answers[number])
        pairs.append((messages[:-1] if number == 0 else messages[-2:-1], messages[-1:], [{"role": "assistant", "content": wrong}]))
    explicit = [{"prompt": prompt, "chosen": chosen, "rejected": rejected} for prompt, chosen, rejected in pairs]
    write_rows(folder / "explicit.jsonl", explicit[:PAIRS])
    write_rows(folder / "eval.jsonl", explicit[PAIRS:])
    write_rows(folder / "implicit.jsonl", [{"chosen": prompt + chosen, "rejected": prompt + rejected} for prompt, chosen, rejected in pairs[:PAIRS]])
    write_rows(folder / "texts.jsonl", [{"prompt": prompt[-1]["content"], "chosen": " " + chosen[0]["content"], "rejected": " " + rejected[0]["content"]}
                                        for prompt, chosen, rejected in pairs[:PAIRS]])


if __name__ == "__main__":
    main()
