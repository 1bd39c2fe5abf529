"""Texts of trainer export --format gguf by llama.cpp itself: greedy, the tokens of `trainer generate --greedy` from the same model.

By a Python of your own, as no set-up installs it:  DDP_RUN=build/release/bin/ddp-run PYTHON tests/peers/test_llama_cpp.py
with xllamacpp, transformers and gguf.
"""

import importlib.util
import json
import sys
import unittest

if not all(importlib.util.find_spec(name) for name in ("xllamacpp", "transformers", "gguf")):
    print("[skipped] all of it: no Python with xllamacpp, transformers and gguf")
    sys.exit(0)
import xllamacpp

from support import TrainerTest
from test_gguf import KINDS, save

PROMPTS = ["The old oak stands", "2 + 2 is", "naïve é"]
TOKENS = 24


class LlamaCpp(TrainerTest):
    def ours(self, model):
        (self.folder / "prompts.txt").write_text("".join(prompt + "\n" for prompt in PROMPTS))
        out = self.trainer("generate", "--snapshot", model, "--prompt_file", "prompts.txt", "--prompt_per_line", "--temperature", "0", "--max_new_tokens", TOKENS, "--json",
                           "--device", "cpu")
        return [json.loads(line)["text"] for line in out.split("\n") if line]

    def theirs(self, model, dtype):
        self.trainer("export", "--snapshot", model, "--output", dtype, "--format", "gguf", "--dtype", dtype)
        params = xllamacpp.CommonParams()
        params.model.path = str(self.folder / dtype / "model.gguf")
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity, params.special = 64, 1, False, -1, True
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # f16 otherwise
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        server = xllamacpp.Server(params)
        options = {"max_tokens": TOKENS, "temperature": 0, "top_k": 1, "cache_prompt": False}
        return [server.handle_completions({"prompt": prompt, **options})["choices"][0]["text"] for prompt in PROMPTS]

    def check(self, kind):
        save(self.folder / "base", kind)
        self.assertEqual(self.theirs("base", "f32"), self.ours("base"))

    def test_a_trained_model_writes_the_same_in_eight_bits(self):
        save(self.folder / "base", "llama3")
        text = "The old oak stands below the brook, and the wind is high.\n2 + 2 is 4, and 2 + 3 is 5, as all children know by heart.\n" \
               "naïve é is a word with an accent, which has two bytes in UTF-8.\n"
        (self.folder / "text.txt").write_text(text * 40)
        (self.folder / "c.yaml").write_text("init_from: base\ndata_config: {path: text.txt, block_size: 48}\noptimizer_config: {learning_rate: 0.005}\n"
                                            "trainer_config: {max_steps: 80, batch_size: 8, device: cpu}\nhydra: {run: {dir: .}}\n")
        self.trainer("--config", "c.yaml")
        ours = self.ours("snapshot.pt")
        self.assertIn(" below the brook, and the wind", ours[0])
        self.assertEqual([self.theirs("snapshot.pt", dtype) for dtype in ("f32", "q8_0")], [ours, ours])


for each in KINDS:
    setattr(LlamaCpp, f"test_{each}", lambda self, kind=each: self.check(kind))

if __name__ == "__main__":
    unittest.main()
