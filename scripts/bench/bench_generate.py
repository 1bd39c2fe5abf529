#!/usr/bin/env python3
"""Tokens per second of trainer generate against transformers' generate(): same weights, greedy, in alternation.

  bench_generate.py [--trainer PROGRAM] [--model_type gpt-mini|llama] [--tokens 200] [--rounds 5] [--batch 1] [--threads 2]
                    [--device cpu]

Trains one step of the model on data/sample_corpus.txt, exports it, and lets both continue the same prompt; prints one line
with both medians. Trainer's time is that of the second batch of a process: the first one pays for what a process does once, as
transformers' first round does. On a GPU the line ends with what CUDA graphs did. Needs a Python with torch and transformers: run
it with .venv/bin/python.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# As wide and deep as gpt-mini.
LLAMA = "model: llama\nllama_config: {n_layer: 6, n_head: 6, n_kv_head: 2, n_embd: 192, intermediate: 512, tie_weights: true}\n"


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def second_batch(words, folder, batch):
    """Its last line, the seconds since the first batch was complete, and stderr."""
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen([str(word) for word in words], cwd=folder, stdout=subprocess.PIPE,
                                                                  stderr=errors, text=True) as run:
        times = [(line, time.perf_counter()) for line in run.stdout]
        run.wait()
        errors.seek(0)
        stderr = errors.read()
    if run.returncode != 0 or len(times) != 2 * batch:
        raise SystemExit(f"bench_generate: {words[0]} ended with {run.returncode}: {stderr[-500:]}")
    return times[-1][0], times[-1][1] - times[batch - 1][1], stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default=str(ROOT / "build/release/bin/trainer"))
    parser.add_argument("--model_type", default="gpt-mini")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_num_threads(args.threads)

    prompt, block = "The ", 256
    with tempfile.TemporaryDirectory() as folder:
        def trainer(*words):
            return subprocess.run([args.trainer, *map(str, words)], cwd=folder, capture_output=True, text=True, check=True)

        Path(folder, "c.yaml").write_text(
            f"data_config: {{path: {ROOT}/data/sample_corpus.txt, block_size: {block}}}\n"
            + (LLAMA if args.model_type == "llama" else
               f"gpt_config: {{model_type: {args.model_type}, activation: gelu_tanh, tie_weights: true}}\n") +
            "trainer_config: {max_steps: 1, batch_size: 1, device: cpu}\n")
        trainer("--config", "c.yaml", "data_config.train_split=1")
        trainer("export", "--snapshot", "snapshot.pt", "--output", "exported")
        model = AutoModelForCausalLM.from_pretrained(folder + "/exported").eval().to(args.device)
        tokenizer = AutoTokenizer.from_pretrained(folder + "/exported")
        ids = tokenizer([prompt] * args.batch, return_tensors="pt")["input_ids"].to(args.device)
        ours, theirs = [], []
        for _ in range(args.rounds):
            text, seconds, stderr = second_batch([args.trainer, "generate", "--snapshot", "snapshot.pt", "--prompt", prompt, "--greedy",
                                                  "--max_new_tokens", args.tokens, "--num_samples", 2 * args.batch, "--batch_size", args.batch,
                                                  "--json", "--device", args.device], folder, args.batch)
            ours.append(args.batch * json.loads(text)["tokens"] / seconds)
            begin = time.perf_counter()
            with torch.inference_mode():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                                     max_new_tokens=args.tokens)
            theirs.append(args.batch * args.tokens / (time.perf_counter() - begin))
        equal = tokenizer.decode(out[0, ids.shape[1]:]) == json.loads(text)["text"]
    graphs = re.search(r"CUDA graphs: .*", stderr)
    print(f"{args.model_type}, batch {args.batch}, {args.tokens} tokens, {args.threads} threads, {cpu_model()}, load "
          f"{os.getloadavg()[0]:.1f}: trainer {statistics.median(ours):.0f} [{min(ours):.0f}-{max(ours):.0f}], transformers "
          f"{statistics.median(theirs):.0f} [{min(theirs):.0f}-{max(theirs):.0f}] tokens/s; texts "
          f"{'equal' if equal else 'differ'}" + (f"; {graphs[0]}" if graphs else ""))


if __name__ == "__main__":
    main()
