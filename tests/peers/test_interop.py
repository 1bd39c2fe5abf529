"""trainer beside transformers: generate, export, init_from and scripts/convert_checkpoint.py."""

import json
import math
import os
import re
import subprocess
import sys
import unittest

from support import LEAVE, PATIENCE, PYTHON, ROOT, TrainerTest, need_torch

need_torch()
CONVERT = ROOT / "scripts/convert_checkpoint.py"
TEXT = "".join(chr(ord("a") + (i * i + i // 7) % 26) + (" \n" [i % 9 == 0] if i % 5 == 0 else "") for i in range(4000))
SIZES = ["gpt_config.n_layer=2", "gpt_config.n_head=2", "gpt_config.n_embd=32"]


def peer(code, *words):
    """Runs `code` in the Python with transformers; what it prints, as JSON."""
    run = subprocess.run([PYTHON, "-B", "-c", code + LEAVE, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE * 2,
                         env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"})
    if "No module named" in run.stderr:
        raise unittest.SkipTest("transformers is not installed")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


CONTINUE = """
import json, sys, torch
from transformers import AutoTokenizer, GPT2LMHeadModel
model, tokenizer = GPT2LMHeadModel.from_pretrained(sys.argv[1]).eval(), AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2], return_tensors="pt")["input_ids"]
out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=int(sys.argv[3]), pad_token_id=0)
print(json.dumps(tokenizer.decode(out[0])))
"""

# Mean loss of the evaluation part as trainer cuts it: consecutive windows, each token but the first a target once.
EVALUATE = """
import json, sys, torch
from transformers import AutoTokenizer, GPT2LMHeadModel
folder, path, split, block = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
model, tokenizer = GPT2LMHeadModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
ids = torch.tensor(tokenizer(open(path, newline="").read())["input_ids"])
part = ids[int(len(ids) * split):]
total = 0.0
with torch.no_grad():
    for start in range(0, len(part) - 1, block):
        x, y = part[start:start + block][:len(part) - 1 - start], part[start + 1:start + 1 + block]
        total += torch.nn.functional.cross_entropy(model(x[None]).logits[0], y, reduction="sum").item()
print(json.dumps(total / (len(part) - 1)))
"""

# A GPT-2 with random weights and a tokenizer of one token per character, as transformers saves them.
MAKE = """
import json, sys, torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
folder, text = sys.argv[1], open(sys.argv[2], newline="").read()
characters = sorted(set(text))
tokenizer = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\\\s\\\\S]"), "isolated")
tokenizer.decoder = decoders.Fuse()
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
torch.manual_seed(5)
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(characters), n_positions=32, n_embd=32, n_layer=2, n_head=2,
                                   bos_token_id=None, eos_token_id=None))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
model.save_pretrained(folder)
print(json.dumps(len(characters)))
"""

# nanoGPT's checkpoint of the model in a folder: weights [out, in], under the names of a compiled model.
AS_NANOGPT = """
import json, sys, torch
from transformers import GPT2LMHeadModel
model = GPT2LMHeadModel.from_pretrained(sys.argv[1])
conv = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
state = {"_orig_mod." + n: (t.t().contiguous() if n.endswith(conv) else t) for n, t in model.state_dict().items()}
torch.save({"model": state, "optimizer": {}, "iter_num": 7, "best_val_loss": torch.tensor(1.0), "config": {"dropout": 0.0},
            "model_args": {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 32, "bias": True, "vocab_size": 27}}, sys.argv[2])
print(json.dumps(True))
"""

# The example's model (minGPT-ddp/model.py) with a mask that hides the future, its snapshot and its logits.
AS_EXAMPLE = """
import json, sys, torch
from torch import nn
from transformers import GPT2LMHeadModel
C, H, T, V, L = 32, 2, 16, 27, 2
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_proj = nn.Linear(C, C)
        self.register_buffer("mask", torch.triu(torch.full((T, T), float("-inf")), 1))
        self.attn = nn.MultiheadAttention(C, H, batch_first=True)
    def forward(self, x):
        return self.c_proj(self.attn(x, x, x, attn_mask=self.mask[:x.size(1), :x.size(1)])[0])
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2, self.attn = nn.LayerNorm(C), nn.LayerNorm(C), Attention()
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(0.0))
    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))
class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_emb, self.pos_emb = nn.Embedding(V, C), nn.Parameter(torch.randn(1, T, C))
class Example(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb_stem, self.blocks = Stem(), nn.Sequential(*[Block() for _ in range(L)])
        self.ln_f, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)
    def forward(self, idx):
        return self.head(self.ln_f(self.blocks(self.emb_stem.tok_emb(idx) + self.emb_stem.pos_emb)))
torch.manual_seed(1)
model, idx = Example().eval(), torch.randint(0, V, (2, T))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
if sys.argv[1] == "save":
    torch.save({"model_state": model.state_dict(), "optimizer_state": {"state": {}}, "finished_epoch": 3}, sys.argv[2])
    print(json.dumps(True))
else:
    with torch.no_grad():
        theirs, ours = model(idx), GPT2LMHeadModel.from_pretrained(sys.argv[2]).eval()(idx).logits
    print(json.dumps((theirs - ours).abs().max().item()))
"""


class InteropTest(TrainerTest):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text(TEXT, encoding="utf-8")
        (self.folder / "c.yaml").write_text(
            "data_config: {path: text.txt, block_size: 32}\ntrainer_config: {max_steps: 30, batch_size: 4, device: cpu}\n")

    def convert(self, *words):
        run = subprocess.run([PYTHON, "-B", CONVERT, *map(str, words)], cwd=self.folder, capture_output=True, text=True,
                             timeout=PATIENCE)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run

    def test_a_trained_and_exported_model_continues_as_here(self):
        for more in ([], ["gpt_config.activation=gelu_tanh", "gpt_config.tie_weights=true"]):
            with self.subTest(more):
                (self.folder / "snapshot.pt").unlink(missing_ok=True)
                self.trainer("--config", "c.yaml", *SIZES, *more)
                written = self.trainer("export", "--snapshot", "snapshot.pt", "--output", "exported")
                self.assertIn("exported/model.safetensors", written)
                here = self.trainer("generate", "--snapshot", "snapshot.pt", "--prompt", "ab\nc", "--greedy",
                                        "--max_new_tokens", 28)
                self.assertEqual(peer(CONTINUE, self.folder / "exported", "ab\nc", 28), here)

    def test_a_gpt2_of_transformers_evaluates_to_the_same_loss(self):
        source = self.folder / "gpt2"
        peer(MAKE, source, self.folder / "text.txt")
        log = self.trainer("--config", "c.yaml", f"gpt_config.init_from={source}", "optimizer_config.learning_rate=1e-30",
                               "trainer_config.max_steps=1", "trainer_config.eval_every_steps=1")
        found = re.findall(r"Eval Loss ([\d.]+)", log)
        self.assertTrue(found, log)
        expected = peer(EVALUATE, source, self.folder / "text.txt", 0.9, 32)
        self.assertTrue(math.isclose(float(found[-1]), expected, abs_tol=1e-4), f"{found} {expected}")

    def test_checkpoints_of_nanogpt_are_converted(self):
        source = self.folder / "gpt2"
        peer(MAKE, source, self.folder / "text.txt")
        peer(AS_NANOGPT, source, self.folder / "ckpt.pt")
        self.convert("ckpt.pt", "converted", "--data", "text.txt", "--activation", "gelu_new")
        self.assertEqual(peer(CONTINUE, self.folder / "converted", "ab", 20), peer(CONTINUE, source, "ab", 20))

    def test_snapshots_of_the_example_are_converted(self):
        peer(AS_EXAMPLE, "save", self.folder / "snapshot_of_example.pt")
        run = self.convert("snapshot_of_example.pt", "converted", "--n_head", 2)
        self.assertIn("does not hide the future", run.stderr)
        self.assertLess(peer(AS_EXAMPLE, "compare", self.folder / "converted"), 1e-4)

    def test_bad_input_of_generate_is_one_line(self):
        self.trainer("--config", "c.yaml", *SIZES, "trainer_config.max_steps=1")
        for words, part in ((["--prompt", ""], "--prompt is empty"), (["--prompt", "a\u20ac"], "--prompt: "),
                            (["--prompt", "a", "--stop", "a" * 33], "33 tokens are longer than the model's context of 32"),
                            (["--prompt", "a", "--stop", "\u20ac"], "--stop: "),
                            (["--prompt_file", "none.txt"], "--prompt_file: none.txt: No such file"),
                            (["--prompt_file", "c.yaml", "--prompt_per_line"], "--prompt_file: line 1: ")):
            with self.subTest(words):
                error = self.trainer("generate", "--snapshot", "snapshot.pt", *words, code=2)
                self.assertIn(part, error)
                self.assertEqual(error.count("\n"), 1, error)

    def test_prompts_by_line_and_samples_as_json(self):
        self.trainer("--config", "c.yaml", *SIZES)
        (self.folder / "prompts.txt").write_text("ab\ncd e\n")
        words = ["generate", "--snapshot", "snapshot.pt", "--prompt_file", "prompts.txt", "--prompt_per_line",
                 "--num_samples", 2, "--max_new_tokens", 20, "--top_p", 0.9, "--json"]
        lines = [json.loads(line) for line in self.trainer(*words, "--batch_size", 3).splitlines()]
        self.assertEqual([(line["prompt_index"], line["sample"]) for line in lines], [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual({line["finish_reason"] for line in lines}, {"length"})
        self.assertNotEqual(lines[0]["text"], lines[1]["text"])
        again = [json.loads(line) for line in self.trainer(*words, "--batch_size", 1).splitlines()]
        self.assertEqual(lines, again)
        stop = lines[0]["text"][5:8]
        stopped = json.loads(self.trainer(*words, "--stop", stop).splitlines()[0])
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["text"], lines[0]["text"][:lines[0]["text"].index(stop)])


if __name__ == "__main__":
    sys.exit(unittest.main())
