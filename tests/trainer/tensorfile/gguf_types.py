"""Writes types.gguf for gguf_test.cc with llama.cpp's package gguf 0.19.0 and numpy 2.4.6.

  python gguf_types.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants


def numbers(count):
    return [np.float32((i * 7919 % 2003 - 1001) * 0.0131) for i in range(count)]


def blocks():
    awkward = [np.float32(factor * (127.0 if i == 0 else i - 15.5)) for factor in (0.0, 1e-4, 1e-6, 1e-44, 65504.0) for i in range(32)]
    return np.array(numbers(96) + awkward, np.float32).reshape(4, 64)


def main():
    writer = GGUFWriter(Path(__file__).parent / "types.gguf", "llama")
    writer.add_uint32("a.count", 4_000_000_000)
    writer.add_float32("a.real", 0.1)
    writer.add_bool("a.yes", True)
    writer.add_bool("a.no", False)
    writer.add_array("a.texts", ["one", "", "déjà vu\n"])
    writer.add_array("a.reals", [-1.5, 1e-30])
    writer.add_key_value("a.numbers", [-7, 2_000_000_000], GGUFValueType.ARRAY, GGUFValueType.INT32)
    six = np.array(numbers(6), np.float32)
    for name, values, kind in (("blocks", blocks(), GGMLQuantizationType.Q8_0), ("single", six[:3], GGMLQuantizationType.F32),
                               ("half", six.reshape(2, 3), GGMLQuantizationType.F16), ("brain", six.reshape(3, 2, 1), GGMLQuantizationType.BF16)):
        writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
