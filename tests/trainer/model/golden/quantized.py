"""Writes quantized.safetensors, which tests/trainer/model/quantized_weight_test.cc compares with: weights, and what
bitsandbytes' CPU backend makes of them. Made with bitsandbytes 0.50.2 and torch 2.15.0.

  python quantized.py
"""

from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file


def edges():
    """Blocks of zeros, denormals, infinitesimal and huge numbers, bounds between two codes, and their neighbours."""
    table = bnb.get_4bit_type("nf4", device="cpu")
    bounds = (table[1:] + table[:-1]) / 2
    rows = torch.zeros(12, 64)
    rows[1] = -0.0
    rows[2, 5] = 1e-45
    rows[3] = torch.linspace(-3e-39, 3e-39, 64)
    rows[4] = torch.linspace(-1, 1, 64) * 1e-37
    rows[5] = torch.linspace(-1, 1, 64) * 3e38
    rows[6, :61] = torch.cat([table, bounds, bounds.nextafter(table[1:]), bounds.nextafter(table[:-1])])
    rows[7] = rows[6] * 3
    rows[8] = 1
    rows[9] = -7
    rows[10, 63] = -1e-3
    rows[11] = torch.arange(64) % 2 * 2.0 - 1
    return rows


def sums_of_bits(numbers):
    return numbers.float().view(torch.int32).long().sum(1)


def main():
    torch.manual_seed(5)
    tensors = {}
    # The second block of absmax is short. Sums of bits stand for numbers.
    for name, values in (("edges", edges()), ("random", (torch.randn(80, 256) * torch.logspace(-3, 1, 80).view(-1, 1)).bfloat16())):
        codes, state = bnb.quantize_4bit(values.float(), blocksize=64, compress_statistics=True, quant_type="nf4")
        int8, rows, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(values.float())
        tensors |= {
            f"{name}.values": values, f"{name}.codes": codes.view(-1), f"{name}.absmax": state.absmax,
            f"{name}.absmax_scales": state.state2.absmax, f"{name}.absmax_mean": state.offset.view(1),
            f"{name}.sums": sums_of_bits(bnb.dequantize_4bit(codes, state).view(values.shape)),
            f"{name}.int8": int8, f"{name}.int8_absmax": rows,
            f"{name}.int8_sums": sums_of_bits(bnb.int8_vectorwise_dequant(int8, rows))}
    tensors["random.int8"] = tensors["random.int8"][:20]
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, Path(__file__).with_suffix(".safetensors"))


main()
