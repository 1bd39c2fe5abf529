"""What scripts/bench/bench.sh measures: one entry a row. Gates and aims are ours / peer; less is better unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """Model and batch; `vocabulary` 0 is the text's own."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    block: int = 64
    batch: int = 16
    dropout: float = 0.1
    kv_heads: int = 0  # of a Llama; 0: a GPT
    intermediate: int = 0


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    gate: float | None = None
    aim: float | None = None
    needs: str = ""  # "bf16": a CPU with such instructions; "gpu"
    kind: str = "step"  # step, first_step, or the name of a function in bench.py
    unit: str = "ms/step"
    more_is_better: bool = False
    gate_is_figure: bool = False  # gate and aim are for our own figure, in its unit, not for the ratio
    # Rows of one thread are judged by CPU time, which other load on the machine affects less; "wall" is wall-clock time,
    # or the figure itself where that is not a time.
    judged_by: str = "processor"
    shape: Shape = field(default_factory=Shape)
    ranks: int = 1
    threads: int = 1
    amp: str = ""
    device: str = "cpu"
    bytes: int = 0  # of an all-reduce
    compiled: bool = False  # the peer, with torch.compile
    steps: int = 70
    log_every: int = 10


SMALL = Shape()
PLAIN = Shape(batch=12, dropout=0.0)
DEFAULT = Shape(layers=8, heads=8, width=512, block=128, batch=8)
LLAMA_SMALL = Shape(kv_heads=2, intermediate=384, dropout=0.0)
LLAMA = Shape(layers=8, heads=8, width=512, block=128, batch=8, kv_heads=4, intermediate=1408, dropout=0.0)
GPT2 = {"layers": 12, "heads": 12, "width": 768, "block": 1024, "dropout": 0.0}


def gpu(name, what, shape, gate, **more):
    return Row(name, what, gate, needs="gpu", judged_by="wall", device="cuda", amp="bfloat16", shape=shape, steps=120, **more)


ROWS = [
    Row("cpu_step_1", "a step: 4 layers, 4 heads, 128 wide, block 64, batch 16, dropout 0.1, float32, 1 thread", 0.90, 0.70),
    Row("cpu_step_plain_1", "the same, batch 12, without dropout", 0.90, 0.80, shape=PLAIN),
    Row("cpu_step_plain_2", "the same on 2 threads", 0.90, 0.80, shape=PLAIN, threads=2, judged_by="wall"),
    Row("cpu_ddp_2", "cpu_step_1 on each of 2 Gloo ranks", 0.92, 0.72, ranks=2),
    Row("cpu_ddp_4", "cpu_step_1 on each of 4 Gloo ranks, which share the cores", ranks=4),
    Row("cpu_step_bf16", "cpu_step_1 under bfloat16 autocast", 0.85, needs="bf16", amp="bfloat16"),
    Row("cpu_default", "a step of the default model (8 layers, 512 wide, block 128), batch 8, 2 threads", 0.95, 0.85,
        shape=DEFAULT, threads=2, judged_by="wall", steps=8, log_every=2),
    Row("llama_step_1", "a Llama's step: 4 layers, 4 heads, 2 for keys and values, 128 wide, intermediate 384, block 64, batch 16, 1 thread; "
        "the peer: transformers", 0.80, shape=LLAMA_SMALL),
    Row("llama_step_2", "8 layers, 8 heads, 4 for keys and values, 512 wide, intermediate 1408, block 128, batch 8, 2 threads", 0.80,
        shape=LLAMA, threads=2, judged_by="wall", steps=8, log_every=2),
    Row("memory_rank", "largest resident memory of a rank in cpu_step_1", 0.35, kind="memory", unit="MB",
        judged_by="wall"),
    Row("first_step_2", "command to the first step of 2 ranks", 0.25, kind="first_step", unit="s", judged_by="wall", ranks=2,
        steps=1, log_every=1),
    Row("restart_2", "SIGKILL of a rank to the end of the first new step, 2 ranks (scripts/checks/chaos.sh recovery)", kind="restart",
        unit="s", judged_by="wall"),
    Row("restart_2_spares", "the same with --warm-spares; the peer: without (scripts/bench/bench_spares.py)", 0.45, 0.2, kind="spares",
        unit="s", judged_by="wall", gate_is_figure=True),
    Row("snapshot_stall", "how long a save of 330 MB stalls training (scripts/checks/chaos.sh stall)", kind="stall", unit="ms",
        judged_by="wall"),
    Row("generation", "greedy text from gpt-mini, 1 prompt of 200 tokens (scripts/bench/bench_generate.py)", 2.0, kind="generation",
        unit="tokens/s", more_is_better=True, judged_by="wall", threads=2),
    Row("llama_generation", "the same of a Llama of its width and depth (bench_generate.py --model_type llama)", 2.0, kind="generation",
        unit="tokens/s", more_is_better=True, judged_by="wall", threads=2, shape=LLAMA_SMALL),
    Row("evaluation", "trainer eval of cpu_step_1's model, 1 thread (scripts/bench/peer_eval.py)", 1.2, kind="evaluation",
        unit="tokens/s", more_is_better=True),
    Row("loader", "batches of 16 windows of 64 tokens in training order, made by one thread", 100.0, kind="loader",
        unit="tokens/s", more_is_better=True),
    *(Row(f"all_reduce_{name}", f"all-reduce of {text} between 2 ranks of one machine, of 5 the median (trainer doctor)", 1.5,
          kind="all_reduce", unit="GB/s", more_is_better=True, judged_by="wall", bytes=size)
      for name, text, size in (("4k", "4 KiB", 4 << 10), ("256k", "256 KiB", 256 << 10), ("16m", "16 MiB", 16 << 20))),
    gpu("gpu_gpt2_b16", "GPT-2's 12 layers of 768 over this text's characters (85 M), bfloat16, block 1024, batch 16, one GPU", Shape(**GPT2, batch=16), 1 / 1.2),
    gpu("gpu_gpt2_b32", "the same, batch 32", Shape(**GPT2, batch=32), 1 / 1.2),
    gpu("gpu_gpt2_b64", "the same, batch 64", Shape(**GPT2, batch=64), 1 / 1.2),
    gpu("gpu_gpt2_b32_compiled", "batch 32, the peer under torch.compile", Shape(**GPT2, batch=32), 1.0, compiled=True),
    gpu("gpu_gpt2_medium_b16", "24 layers of 1024 (302 M), bfloat16, block 1024, batch 16",
        Shape(layers=24, heads=16, width=1024, block=1024, batch=16, dropout=0.0), 1 / 1.2),
    gpu("gpu_default", "the default model, bfloat16, batch 216",
        Shape(layers=8, heads=8, width=512, block=128, batch=216), 1 / 1.2),
    gpu("gpu_small", "cpu_step_1's model on a GPU", SMALL, 1 / 1.2),
]
