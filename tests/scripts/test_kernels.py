"""The GPU's kernels compile for the GPUs that people have, by the NVRTC that torch brings along; no GPU is needed."""

import ctypes
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = b"".join((ROOT / "trainer/model/ops/cuda" / name).read_bytes() for name in ("kernels.cu", "coded.cu", "llama.cu"))
FOUND = sorted((ROOT / ".venv").glob("lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*"))
COMPUTE_CAPABILITIES = [80, 86, 89, 90, 100, 120]  # A100, RTX 30, RTX 40, H100, B200, RTX 50


def compiled(nvrtc, source, architecture):
    """The size of the machine code, and the compiler's messages."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{architecture}".encode())
    result = nvrtc.nvrtcCompileProgram(program, 1, options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    return (size.value if result == 0 else 0), log.value.decode()


@unittest.skipUnless(FOUND, "no NVRTC here")
class Kernels(unittest.TestCase):
    def test_they_compile_for_each_generation_without_a_word(self):
        nvrtc = ctypes.CDLL(str(FOUND[-1]))
        for architecture in COMPUTE_CAPABILITIES:
            with self.subTest(architecture=architecture):
                size, log = compiled(nvrtc, SOURCE, architecture)
                self.assertGreater(size, 1000, log)
                self.assertEqual(log, "")

    def test_a_mistake_in_them_would_be_found(self):
        size, log = compiled(ctypes.CDLL(str(FOUND[-1])), SOURCE.replace(b"blockIdx.x", b"blockIdx.w", 1), 90)
        self.assertEqual(size, 0)
        self.assertIn("kernels.cu", log)


if __name__ == "__main__":
    unittest.main()
