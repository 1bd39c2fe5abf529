"""What a training step asks of a GPU, by operator: calls, bytes of device memory, FLOPs, and the time that a GPU's data sheet
allows for them. Counted on a fake GPU, which computes nothing, so the sizes can be real ones and no GPU is needed.

  scripts/bench.sh gpu_account [--batch N] [--block N] [--json FILE] [--all] [KEY=VALUE ...]

A model, not a measurement: each operator takes max(bytes / bandwidth, FLOPs / peak), at the shares of them that kernels
attain in practice; launches, gaps and communication take none. Bytes are those of the arguments and results, as if nothing
stayed in a cache between two operators. KEY=VALUE changes configs/gpt2_124m.yaml, as for trainer.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GPU = "H100 SXM"  # NVIDIA's data sheet: dense bfloat16, HBM3
BANDWIDTH, PEAK = 3.35e12, 989e12
ATTAINED_BANDWIDTH, ATTAINED_PEAK = 0.85, 0.65  # of large element-wise kernels; of cuBLAS at these shapes
VOCABULARY = 50257
LAYERS, WIDTH = 12, 768


def write_tokens(path, count):
    """A file of llm.c's layout; which tokens does not matter."""
    header = struct.pack("<256i", 20240520, 1, count, *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{count}H", *(i * 7919 % VOCABULARY for i in range(count))))


def write_tokenizer(path):
    """As many tokens as GPT-2 has, without merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    tokens = alphabet + [f"token{i}" for i in range(VOCABULARY - len(alphabet))]
    path.write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": []}}))


class Runs:
    """Runs of some steps on the fake GPU, as ledgers."""

    def __init__(self, folder, batch, block, overrides):
        self.folder, self.batch, self.block, self.overrides = folder, batch, block, overrides
        self.tokens = folder / "tokens.bin"
        write_tokens(self.tokens, 8 * batch * block + 1)
        write_tokenizer(folder / "tokenizer.json")

    def ledger(self, steps):
        report = self.folder / f"ledger-{steps}.json"
        command = [ROOT / "scripts/fake_gpu.sh", "--report", report, "trainer", "--config", ROOT / "configs/gpt2_124m.yaml",
                   f"data_config.path={self.tokens}", "data_config.eval_path=null", "data_config.train_split=1",
                   f"data_config.block_size={self.block}",
                   f"trainer_config.max_steps={steps}", f"trainer_config.batch_size={self.batch}",
                   f"trainer_config.global_batch_size={self.batch}", "trainer_config.eval_every_steps=null",
                   "trainer_config.save_every_steps=null", "data_config.stride=1", "optimizer_config.warmup_steps=1",
                   f"hydra.run.dir={self.folder}/run-{steps}", *self.overrides]
        environment = dict(os.environ, FAKECUDA_NUMERICS="0", FAKECUDA_ACCOUNT="1")
        result = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"gpu_account: trainer failed with {result.returncode}:\n{result.stdout[-1500:]}{result.stderr[-1500:]}")
        return json.loads(report.read_text().splitlines()[-1])


def operators(ledger):
    """{name: (calls, bytes, flops)}"""
    flops = ledger["flops"]
    return {name: (count["calls"], count["bytes"], flops.get(name, {"bytes": 0})["bytes"])
            for name, count in ledger["operators"].items()}


def difference(more, less):
    names = more.keys() | less.keys()
    nothing = (0, 0, 0)
    rows = {name: tuple(a - b for a, b in zip(more.get(name, nothing), less.get(name, nothing))) for name in names}
    return {name: row for name, row in rows.items() if any(row)}


def seconds(row):
    _, size, flops = row
    return max(size / (BANDWIDTH * ATTAINED_BANDWIDTH), flops / (PEAK * ATTAINED_PEAK))


def total(rows):
    return {"calls": sum(row[0] for row in rows.values()), "bytes": sum(row[1] for row in rows.values()),
            "flops": sum(row[2] for row in rows.values()), "seconds": sum(seconds(row) for row in rows.values())}


def model_flops(tokens, block):
    """6 N + 12 L H T per token, as `trainer estimate` counts."""
    parameters = 12 * LAYERS * WIDTH * WIDTH + (VOCABULARY + block) * WIDTH
    return tokens * (6 * parameters + 12 * LAYERS * WIDTH * block)


def print_table(title, rows, everything):
    sums = total(rows)
    print(f"\n{title}: {sums['calls']} operators, {sums['bytes'] / 1e9:.2f} GB, {sums['flops'] / 1e12:.2f} TFLOP, "
          f"{sums['seconds'] * 1e3:.2f} ms")
    print(f"  {'operator':44} {'calls':>6} {'GB':>8} {'TFLOP':>8} {'ms':>8}")
    ordered = sorted(rows.items(), key=lambda item: -seconds(item[1]))
    for name, row in ordered if everything else ordered[:15]:
        print(f"  {name.removeprefix('aten::'):44} {row[0]:6} {row[1] / 1e9:8.3f} {row[2] / 1e12:8.3f} {seconds(row) * 1e3:8.3f}")
    if len(ordered) > 15 and not everything:
        rest = total(dict(ordered[15:]))
        print(f"  {f'{len(ordered) - 15} more':44} {rest['calls']:6} {rest['bytes'] / 1e9:8.3f} {'':8} {rest['seconds'] * 1e3:8.3f}")


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench.sh gpu_account", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16, help="sequences in a step (16)")
    parser.add_argument("--block", type=int, default=1024, help="tokens in a sequence (1024)")
    parser.add_argument("--all", action="store_true", help="print every operator, not only the 15 that take longest")
    parser.add_argument("--json", type=Path, help="write the account there as well")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    return parser.parse_args()


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), args.batch, args.block, args.overrides)
        two, three = runs.ledger(2), runs.ledger(3)
    step = difference(operators(three), operators(two))
    launches = three["launches"] - two["launches"]
    print(f"GPT-2 124M, {args.batch} x {args.block} tokens in bfloat16 on a {GPU}: {BANDWIDTH / 1e12:.2f} TB/s, {PEAK / 1e12:.0f} "
          f"TFLOP/s, {ATTAINED_BANDWIDTH:.0%} and {ATTAINED_PEAK:.0%} of them attained. A model, not a measurement.")
    print_table("A step", step, args.all)
    sums = total(step)
    utilization = model_flops(args.batch * args.block, args.block) / (sums["seconds"] * PEAK)
    print(f"\nA step: {launches} launches, {sums['bytes'] / 1e9:.2f} GB, {sums['seconds'] * 1e3:.1f} ms; model FLOPs utilization "
          f"{utilization:.1%}")
    if args.json:
        args.json.write_text(json.dumps({"launches": launches, **sums, "mfu": utilization, "operators": step}, indent=1) + "\n")


if __name__ == "__main__":
    main()
