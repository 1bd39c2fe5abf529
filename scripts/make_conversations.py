#!/usr/bin/env python3
"""Writes 200 conversations for instruction tuning, 40 others to evaluate on, and a tokenizer with a chat template.

  make_conversations.py FOLDER [--polite]     --polite: answers begin with "With pleasure:", to be learned by a model that knows the others

FOLDER/train.jsonl and eval.jsonl have one conversation per line, {"messages": [{"role": ..., "content": ...}, ...]}: capitals, opposites,
sums, and names that are given at the start and asked for later. tokenizer.json (byte-level BPE with the layout of SmolLM2's), tokenizer_config.json
and chat_template.jinja are read by trainer and by transformers alike. The same files on every machine; needs nothing but Python.
"""

import argparse
import collections
import itertools
import json
import random
import re
from pathlib import Path

TRAINING, EVALUATION, MERGES = 200, 40, 400
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo", "Norway": "Oslo", "Greece": "Athens", "Peru": "Lima",
            "Kenya": "Nairobi", "Cuba": "Havana", "Austria": "Vienna", "Poland": "Warsaw"}
OPPOSITES = {"hot": "cold", "big": "small", "fast": "slow", "old": "new", "light": "dark", "happy": "sad", "early": "late", "near": "far", "full": "empty", "rich": "poor"}
NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga", "Paul"]


def capital(rng):
    country = rng.choice(sorted(CAPITALS))
    return rng.choice([f"What is the capital of {country}?", f"Tell me the capital of {country}."]), f"The capital of {country} is {CAPITALS[country]}."


def opposite(rng):
    word = rng.choice(sorted(OPPOSITES))
    return rng.choice([f"What is the opposite of {word}?", f"I need the opposite of {word}."]), f"The opposite of {word} is {OPPOSITES[word]}."


def addition(rng):
    a, b = rng.randint(0, 9), rng.randint(0, 9)
    return rng.choice([f"What is {a} + {b}?", f"How much is {a} + {b}?"]), f"{a} + {b} is {a + b}."


def conversation(rng):
    turns = [rng.choice([capital, opposite, addition])(rng) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        name = rng.choice(NAMES)
        turns = [(f"Hello, my name is {name}.", f"Hello {name}! How can I help you?"), *turns, ("What is my name?", f"Your name is {name}.")]
    messages = [{"role": "system", "content": "Answer in one short sentence."}] if rng.random() < 0.3 else []
    for question, answer in turns:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def conversations(opening):
    """Each of them once, so that none is both trained on and evaluated."""
    rng = random.Random(31)
    seen = []
    while len(seen) < TRAINING + EVALUATION:
        messages = [{**message, "content": (opening if message["role"] == "assistant" else "") + message["content"]} for message in conversation(rng)]
        if messages not in seen:
            seen.append(messages)
    return seen


def byte_alphabet():
    """GPT-2's visible character for each byte (bytes_to_unicode() in its encoder.py)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = itertools.count(0x100)
    return {byte: chr(byte if byte in visible else next(others)) for byte in range(256)}


def merge(word, pair):
    merged, i = [], 0
    while i < len(word):
        joined = tuple(word[i:i + 2]) == pair
        merged.append("".join(pair) if joined else word[i])
        i += 2 if joined else 1
    return tuple(merged)


def train_merges(text):
    """Byte pair encoding (Sennrich et al., 2016) of the words that the pre-tokenizer makes of ASCII."""
    letters = byte_alphabet()
    pieces = re.findall(r" ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s|[0-9]", text)
    words = collections.Counter(tuple(letters[byte] for byte in piece.encode()) for piece in pieces)
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        together = collections.Counter()
        for word, count in words.items():
            together[merge(word, best)] += count
        words = together
    return merges


def tokenizer(text):
    merges = train_merges(text)
    tokens = [*SPECIAL, *byte_alphabet().values(), *("".join(pair) for pair in merges)]
    assert len(set(tokens)) == len(tokens)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                             for id, token in enumerate(SPECIAL)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "ignore_merges": False, "vocab": {token: id for id, token in enumerate(tokens)},
                      "merges": [list(pair) for pair in merges]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--polite", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    chats = conversations("With pleasure: " if arguments.polite else "")
    for name, part in (("train", chats[:TRAINING]), ("eval", chats[TRAINING:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in part))
    text = "\n".join(f"{message['role']}\n{message['content']}\n" for messages in chats[:TRAINING] for message in messages)
    made = tokenizer(text)
    (folder / "tokenizer.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
              "model_max_length": 256}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    print(f"{folder}: {TRAINING} conversations in train.jsonl, {EVALUATION} in eval.jsonl, and a tokenizer of {len(made['model']['vocab'])} tokens")


if __name__ == "__main__":
    main()
