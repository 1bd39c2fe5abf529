"""Single operations of a step on one GPU, without trainer: milliseconds each, medians by CUDA events. One JSON object per line.

  suspects.py [--device cuda] [--repeat 20]

Sizes are those of a step of GPT-2's 12 layers of 768 over 16 x 1024 tokens in bfloat16. --device cpu only shows that it works:
sizes are tiny there.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LAYERS, WIDTH, HEADS = 12, 768, 12


class Timer:
    def __init__(self, device, repeat):
        self.device, self.repeat = device, repeat

    def __call__(self, function):
        """Milliseconds of one call, the median; the first three warm up."""
        for _ in range(3):
            function()
        return sorted(self.once(function) for _ in range(self.repeat))[self.repeat // 2]

    def once(self, function):
        if self.device != "cuda":
            began = time.perf_counter()
            function()
            return 1e3 * (time.perf_counter() - began)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def show(name, **figures):
    print(json.dumps({"name": name, **{key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}}),
          flush=True)


def copies(ms, like, count):
    source = torch.randn(count, **like)
    target = torch.empty_like(source)
    took = ms(lambda: target.copy_(source))
    show("copy bandwidth", ms=took, tb_per_s=2 * 4 * count / took / 1e9)


def bias_adds(ms, half, batch, block):
    """What `matmul` followed by `+= bias` costs under autocast beyond the product: bfloat16 += float32."""
    total = 0.0
    for columns in (3 * WIDTH, WIDTH, 4 * WIDTH, WIDTH):
        y = torch.randn(batch, block, columns, **half)
        bias = torch.randn(columns, device=y.device)
        own = bias.to(y.dtype)
        mixed, same = ms(lambda y=y, bias=bias: y.add_(bias)), ms(lambda y=y, own=own: y.add_(own))
        total += mixed
        show(f"bias add, {columns} columns", mixed_ms=mixed, same_type_ms=same, giga_elements_per_s=y.numel() / mixed / 1e6)
    show("bias adds of 12 layers", ms=LAYERS * total, predicted="4.1 to 5.6 ms on an H100 or H200")


def products(ms, half, batch, block):
    rows = batch * block
    for inputs, outputs in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)):
        x, w = torch.randn(batch, block, inputs, **half), torch.randn(outputs, inputs, **half)
        b, dy = torch.randn(outputs, **half), torch.randn(rows, outputs, **half)
        flat, gflop = x.view(rows, inputs), 2 * rows * inputs * outputs / 1e9
        wide = {"out_dtype": torch.float32} if dy.is_cuda else {}
        forward = ms(lambda x=x, w=w, b=b: F.linear(x, w, b))
        to_input = ms(lambda dy=dy, w=w: dy @ w)
        to_weight = ms(lambda dy=dy, flat=flat, wide=wide: torch.mm(dy.t(), flat, **wide))
        show(f"product {inputs} to {outputs}", forward_ms=forward, forward_tflops=gflop / forward,
             input_gradient_tflops=gflop / to_input, weight_gradient_tflops=gflop / to_weight)


def gradients(ms, like, scale):
    shapes = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * LAYERS
    old = [torch.randn(rows // scale, columns, **like) for rows, columns in shapes]
    new = [torch.randn_like(gradient) for gradient in old]

    def by_blocks():
        return torch.cat([torch.linalg.vector_norm(g.view(-1, WIDTH), 2, 1, dtype=torch.float64) for g in old]).square().sum().sqrt()
    show("gradient norm", float64_blocks_ms=ms(by_blocks), foreach_norm_ms=ms(lambda: torch._foreach_norm(old)))
    show("gradients zeroed and accumulated", zero_ms=ms(lambda: torch._foreach_zero_(old)),
         accumulate_ms=ms(lambda: [a.add_(b) for a, b in zip(old, new)]))


def attention(ms, half, batch, block):
    qkv = torch.randn(batch, block, 3, HEADS, WIDTH // HEADS, **half).requires_grad_()
    q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
    gradient = torch.randn(batch, HEADS, block, WIDTH // HEADS, **half)

    def both():
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(gradient, retain_graph=True)
        qkv.grad = None
    figures = {"default_ms": ms(both)}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        if qkv.is_cuda:
            with sdpa_kernel(backend):
                figures[name + "_ms"] = ms(both)
    show("attention, forward and backward", **figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    real = args.device == "cuda"
    ms, like = Timer(args.device, args.repeat), {"device": args.device}
    half = {**like, "dtype": torch.bfloat16}
    batch, block = (16, 1024) if real else (1, 16)
    copies(ms, like, 1 << 29 if real else 1 << 12)
    bias_adds(ms, half, batch, block)
    products(ms, half, batch, block)
    gradients(ms, like, 1 if real else 64)
    attention(ms, half, batch, block)


if __name__ == "__main__":
    main()
