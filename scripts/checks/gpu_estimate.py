#!/usr/bin/env python3
"""Compares what `trainer estimate` says of a GPU's memory with the peak of tensors in a real run of the shapes of GPT-2, on fake
GPUs whose kernels compute nothing (tests/support/fake_cuda).

  gpu_estimate.py [WORD]      WORD: only cases with it in their name; exits with 1 if one differs by more than 5 %

Environment: DDP_BUILD (default: build/release).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("DDP_BUILD", ROOT / "build/release")).resolve()
sys.path.insert(0, str(ROOT / "scripts/bench"))
from gpu_account import write_tokenizer, write_tokens  # noqa: E402

TOLERANCE = 0.05
BATCH, BLOCK, LAYERS = 4, 1024, 4
FLOAT32 = ["trainer_config.use_amp=false"]
BFLOAT16 = ["trainer_config.use_amp=true", "trainer_config.amp_dtype=bfloat16"]
CHECKPOINTED = ["gpt_config.activation_checkpointing=true"]
WHOLE_LOSS = ["gpt_config.loss_chunk_size=0"]
GPT = ["--config", ROOT / "configs/gpt2_124m.yaml", "gpt_config.model_type=null", f"gpt_config.n_layer={LAYERS}",
       "gpt_config.n_head=12", "gpt_config.n_embd=768"]
# Queries share keys and values, as in Llama 3.
LLAMA = ["--config", ROOT / "configs/llama_char.yaml", f"llama_config.n_layer={LAYERS}", "llama_config.n_head=12",
         "llama_config.n_kv_head=4", "llama_config.n_embd=768", "llama_config.intermediate=2048", "data_config.train_split=1",
         f"data_config.stride={BLOCK}", "trainer_config.ema_decay=0"]
CASES = {
    "float32": FLOAT32,
    "float32, checkpointed": [*FLOAT32, *CHECKPOINTED],
    "float32, loss in one piece": [*FLOAT32, *WHOLE_LOSS],
    "bfloat16": BFLOAT16,
    "bfloat16, checkpointed": [*BFLOAT16, *CHECKPOINTED],
    "bfloat16, torch's operations": [*BFLOAT16, "trainer_config.fused_gpu_kernels=false"],
    "bfloat16, padded to 65536": [*BFLOAT16, "gpt_config.pad_vocab_to_multiple_of=65536"],
    "Llama, float32": FLOAT32,
    "Llama, bfloat16": BFLOAT16,
    "Llama, bfloat16, checkpointed": [*BFLOAT16, "llama_config.activation_checkpointing=true"],
    "Llama, bfloat16, torch's operations": [*BFLOAT16, "trainer_config.fused_gpu_kernels=false"],
}


def run(folder, *words):
    environment = dict(os.environ, DDP_BUILD=str(BUILD), FAKECUDA_NUMERICS="0", XDG_CACHE_HOME=str(folder / "cache"))
    result = subprocess.run([str(word) for word in (ROOT / "scripts/fake_gpu.sh", "trainer", *words)], env=environment,
                            capture_output=True, text=True, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"gpu_estimate: trainer ended with {result.returncode}:\n{result.stdout[-1000:]}{result.stderr[-1000:]}")
    return result.stdout


def check(name, overrides):
    """Whether the estimate is close."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tokens(folder / "tokens.bin", 4 * BATCH * BLOCK + 1)
        write_tokenizer(folder / "tokenizer.json")
        words = [*(LLAMA if name.startswith("Llama") else GPT), "data_config.path=tokens.bin", "data_config.eval_path=tokens.bin",
                 f"data_config.block_size={BLOCK}", f"trainer_config.batch_size={BATCH}", "trainer_config.global_batch_size=null",
                 "trainer_config.max_steps=3", "optimizer_config.warmup_steps=1", "trainer_config.eval_iters=1",
                 "trainer_config.eval_every_steps=null", "trainer_config.save_every_steps=null",
                 "trainer_config.sample_every_steps=0", "trainer_config.device=cuda", "trainer_config.snapshot_path=snapshot.pt",
                 "hydra.run.dir=run", *overrides]
        estimate = json.loads(run(folder, "estimate", "--json", *words))
        run(folder, *words)
        [peak] = json.loads((folder / "run/run_summary.json").read_text())["peak_device_memory_bytes"]
    ratio = estimate["needed_bytes"] / peak
    kinds = ", ".join(f"{kind} {value / 1e6:.0f}" for kind, value in estimate["memory_per_rank_bytes"].items())
    close = abs(ratio - 1) <= TOLERANCE
    print(f"{name}: estimated {estimate['needed_bytes'] / 1e6:.0f} MB ({kinds}), peak {peak / 1e6:.0f} MB: {ratio:.3f}"
          f"{'' if close else '  TOO FAR'}", flush=True)
    return close


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    results = [check(name, overrides) for name, overrides in CASES.items() if wanted in name]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
