"""trainer's own kernels on this GPU: their results against float64, how long they take, and at what rate they move memory.

  kernel_numbers.py libtrainer_kernels.so [--rows 16384] [--repeat 20]

One JSON object per kernel and line; exit code 1 if a result is off by more than its rounding.
"""

import argparse
import ctypes
import json
import sys

import torch
import torch.nn.functional as F

from suspects import Timer

HALF = 2 ** -8  # half a unit in the last place of bfloat16, relative
WIDTH, CLASSES, STRIDE = 768, 50257, 50304


def load(path):
    """Registers ddp_run's operators with torch."""
    torch.zeros(1, device="cuda")
    start = ctypes.CDLL(path).ddp_trainer_load_operators
    start.argtypes, start.restype = [ctypes.c_char_p], ctypes.c_char_p
    why = start(b"")
    if why:
        sys.exit(f"error: {path}: {why.decode()}")


def error(found, exact, floor):
    """The largest difference relative to |exact| + floor."""
    exact = exact.double()
    return float(((found.double() - exact).abs() / (exact.abs() + floor)).max())


class Report:
    def __init__(self, ms):
        self.ms, self.bad = ms, False

    def __call__(self, name, limit, errors, function, moved):
        largest = max(errors.values())
        bad = not largest <= limit  # NaN is bad
        self.bad |= bad
        took = self.ms(function)
        print(json.dumps({"name": name, "ms": round(took, 4), "tb_per_s": round(moved / took / 1e9, 3),
                          "errors": {key: float(f"{value:.3g}") for key, value in errors.items()}, "limit": limit,
                          "verdict": "wrong" if bad else "right"}), flush=True)


def cross_entropy(report, rows):
    logits = (torch.randn(rows, STRIDE, device="cuda") * 4).bfloat16()
    targets = torch.randint(CLASSES, (rows,), device="cuda")
    targets[1] = -1
    few = slice(0, 64)
    exact = logits[few, :CLASSES].double().requires_grad_()
    losses = F.cross_entropy(exact, targets[few], ignore_index=-1, reduction="none")
    losses.sum().backward()
    gradient = logits[few].clone()
    found = torch.ops.ddp_run.cross_entropy_(gradient, targets[few], CLASSES)
    report("cross_entropy_", HALF, {"loss": error(found, losses.detach(), 1e-1), "gradient": error(gradient[:, :CLASSES], exact.grad, 1e-5)},
           lambda: torch.ops.ddp_run.cross_entropy_(logits, targets, CLASSES), 2 * logits.nbytes)


def norms(report, rows):
    for bias in (True, False):
        residual = torch.randn(rows, WIDTH, device="cuda")
        branch, dy = (torch.randn(rows, WIDTH, device="cuda").bfloat16() for _ in range(2))
        weight, shift = torch.randn(WIDTH, device="cuda"), torch.randn(WIDTH, device="cuda") if bias else None
        others = torch.randn(rows, WIDTH, device="cuda")
        ops = torch.ops.ddp_run
        total, y, statistics = ops.add_norm(residual, branch, weight, shift, 1e-5)
        name = "LayerNorm" if bias else "RMSNorm"
        x = (residual + branch).double().requires_grad_()
        w, b = weight.double().requires_grad_(), shift.double().requires_grad_() if bias else None
        exact = F.layer_norm(x, (WIDTH,), w, b, 1e-5) if bias else F.rms_norm(x, (WIDTH,), w, 1e-5)
        exact.backward(dy.double())
        report(f"add_norm, {name}", HALF, {"sum": error(total, x.detach(), 1e-3), "y": error(y, exact.detach(), 1e-2)},
               lambda: ops.add_norm(residual, branch, weight, shift, 1e-5), residual.numel() * (4 + 2 + 4 + 2))
        dx, dbranch, parts = ops.add_norm_backward(dy, others, total, weight, statistics, bias, True)
        sums = parts.double().sum(0)
        floor = rows ** 0.5  # sums of as many random terms
        errors = {"dx": error(dx, x.grad + others, 1e-2), "dbranch": error(dbranch, x.grad + others, 1e-2),
                  "dweight": error(sums[0], w.grad, floor)}
        if bias:
            errors["dbias"] = error(sums[1], b.grad, floor)
        report(f"add_norm_backward, {name}", HALF, errors,
               lambda: ops.add_norm_backward(dy, others, total, weight, statistics, bias, True),
               residual.numel() * (2 + 4 + 4 + 4 + 2))


def gelu(report, rows):
    for tanh in (False, True):
        x, dy = (torch.randn(rows, 4 * WIDTH, device="cuda").bfloat16() for _ in range(2))
        exact = x.double().requires_grad_()
        exact_y = F.gelu(exact, approximate="tanh" if tanh else "none")
        exact_y.backward(dy.double())
        report(f"gelu{', tanh' if tanh else ''}", HALF, {"y": error(torch.ops.ddp_run.gelu(x, tanh), exact_y.detach(), 1e-3)},
               lambda: torch.ops.ddp_run.gelu(x, tanh), 2 * x.nbytes)
        dx, parts = torch.ops.ddp_run.gelu_backward(dy, x, tanh)
        report(f"gelu_backward{', tanh' if tanh else ''}", HALF,
               {"dx": error(dx, exact.grad, 1e-3), "dbias": error(parts.double().sum(0), dx.double().sum(0), rows ** 0.5)},
               lambda: torch.ops.ddp_run.gelu_backward(dy, x, tanh), 3 * x.nbytes)


def column_sums(report, rows):
    x = torch.randn(rows, 3 * WIDTH, device="cuda").bfloat16()
    sums = torch.ops.ddp_run.column_sums(x).double().sum(0)
    report("column_sums", 1e-6, {"sums": error(sums, x.double().sum(0), rows ** 0.5)}, lambda: torch.ops.ddp_run.column_sums(x), x.nbytes)


def join_thirds(report, rows):
    thirds = [torch.randn(rows, WIDTH, device="cuda").bfloat16() for _ in range(3)]
    joined, parts = torch.ops.ddp_run.join_thirds(*thirds)
    exact = torch.cat(thirds, 1).double()
    report("join_thirds", 1e-6, {"joined": error(joined, exact, 1.0), "sums": error(parts.double().sum(0), exact.sum(0), rows ** 0.5)},
           lambda: torch.ops.ddp_run.join_thirds(*thirds), 2 * joined.nbytes)


def sums_of_squares(report, count):
    gradients = [torch.randn(count // 4 + extra, device="cuda") for extra in (0, 1, 2, 3)]
    exact = torch.cat([F.pad(gradient.double(), (0, -len(gradient) % 1024)).view(-1, 1024).square().sum(1) for gradient in gradients])
    report("sums_of_squares", 1e-13, {"sums": error(torch.ops.ddp_run.sums_of_squares(gradients), exact, 0.0)},
           lambda: torch.ops.ddp_run.sums_of_squares(gradients), count * 4)


def adam(report, count):
    def four():
        return [torch.randn(count, device="cuda") for _ in range(2)] + [torch.rand(count, device="cuda") for _ in range(2)]
    weight, gradient, average, square = four()
    copy = torch.empty(count, device="cuda", dtype=torch.bfloat16)
    step, no = torch.tensor(3.0, device="cuda"), torch.tensor(0.0, device="cuda")
    rate, one, two, decay, epsilon = 1e-3, 0.9, 0.95, 0.1, 1e-8
    w, g, m, v = (tensor.double() for tensor in (weight, gradient, average, square))
    m, v = one * m + (1 - one) * g, two * v + (1 - two) * g * g
    exact = w * (1 - rate * decay) - rate / (1 - one ** 3) * m / ((v / (1 - two ** 3)).sqrt() + epsilon)

    def update():
        torch.ops.ddp_run.adam_([weight], [gradient], [average], [square], [copy], step, no, None, rate, one, two, decay, epsilon, True)
    update()
    errors = {"weight": error(weight, exact, 1e-2), "exp_avg": error(average, m, 1e-1), "exp_avg_sq": error(square, v, 1e-1)}
    report("adam_", 1e-5, errors, update, count * (7 * 4 + 2))


NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)


def codes(report, rows):
    """A matrix [rows / 4, 4096] in NF4 with scales in 8 bits, and in int8."""
    count, width, ops = rows // 4, 4096, torch.ops.ddp_run
    table = [*NF4, *torch.linspace(-1, 1, 256).tolist()]
    values = torch.tensor(table, device="cuda").double()
    four = torch.randint(256, (count, width // 2), device="cuda").byte()
    blocks = torch.randint(256, (count * width // 64,), device="cuda").byte()
    scales, mean = torch.rand((len(blocks) + 255) // 256, device="cuda"), torch.tensor(2.0, device="cuda")
    numbers = values[torch.stack([four >> 4, four & 15], -1).long()].view(-1, 64)
    absmax = values[16 + blocks.long()] * scales.double().repeat_interleave(256)[:len(blocks)] + mean.double()
    nf4 = ("NF4", (four, blocks, scales, mean, table), (numbers * absmax[:, None]).view(count, width), four.nbytes + blocks.nbytes)
    eight, of_row = torch.randint(-127, 128, (count, width), device="cuda", dtype=torch.int8), torch.rand(count, device="cuda")
    int8 = ("int8", (eight, of_row, None, None, table), eight.double() * of_row.double()[:, None] / 127, eight.nbytes)
    for name, matrix, exact, size in (nf4, int8):
        for kind, limit in ((torch.bfloat16, HALF), (torch.float16, HALF / 8), (torch.float32, 1e-6)):
            report(f"dequantize, {name} to {str(kind)[6:]}", limit, {"values": error(ops.dequantize(*matrix, 0, count, kind), exact, 1e-3)},
                   lambda kind=kind: ops.dequantize(*matrix, 0, count, kind), size + exact.numel() * kind.itemsize)
        for kind, limit in ((torch.bfloat16, HALF), (torch.float32, 3e-4)):
            for few in (1, 4):
                x = torch.randn(few, width, device="cuda").to(kind)
                report(f"coded_product, {few} x {name}, {str(kind)[6:]}", limit,
                       {"y": error(ops.coded_product(x, *matrix), x.double() @ exact.t(), 1.0)},
                       lambda x=x: ops.coded_product(x, *matrix), size)


def llama(report, rows):
    ops = torch.ops.ddp_run
    gate, up, dy = (torch.randn(rows, 2048, device="cuda").bfloat16() for _ in range(3))
    g, u = gate.double().requires_grad_(), up.double().requires_grad_()
    exact = F.silu(g) * u
    exact.backward(dy.double())
    report("swiglu", HALF, {"y": error(ops.swiglu(gate, up), exact.detach(), 1e-3)}, lambda: ops.swiglu(gate, up), 3 * gate.nbytes)
    dgate, dup = ops.swiglu_backward(dy, gate, up)
    report("swiglu_backward", HALF, {"dgate": error(dgate, g.grad, 1e-2), "dup": error(dup, u.grad, 1e-3)},
           lambda: ops.swiglu_backward(dy, gate, up), 5 * gate.nbytes)
    angles = torch.rand(1024, 32, device="cuda") * 6
    q, k = (torch.randn(rows // 1024, 1024, heads, 64, device="cuda").bfloat16() for heads in (12, 4))
    cos, sin = angles.cos(), angles.sin()
    for backward in (False, True):
        errors, c, s = {}, cos.double()[:, None], sin.double()[:, None] * (-1 if backward else 1)
        for name, heads, found in zip("qk", (q, k), ops.rotate(q, k, cos, sin, backward), strict=True):
            a, b = heads.double().chunk(2, -1)
            errors[name] = error(found, torch.cat([a * c - b * s, b * c + a * s], -1), 1e-2)
        report(f"rotate{', backward' if backward else ''}", HALF, errors,
               lambda backward=backward: ops.rotate(q, k, cos, sin, backward), 2 * (q.nbytes + k.nbytes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    load(args.library)
    report = Report(Timer("cuda", args.repeat))
    norms(report, args.rows)
    gelu(report, args.rows)
    column_sums(report, args.rows)
    join_thirds(report, args.rows)
    sums_of_squares(report, args.rows * WIDTH)
    adam(report, args.rows * WIDTH)
    cross_entropy(report, args.rows)
    codes(report, args.rows)
    llama(report, args.rows)
    sys.exit(1 if report.bad else 0)


if __name__ == "__main__":
    main()
