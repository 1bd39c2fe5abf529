"""Models that trainer has taught to chat beside transformers and peft: the exported folder says the same, greedily, in transformers' pipeline, and
the tokens of a Llama's folder with SentencePiece and with byte-level BPE are trained on, talked with, exported and read back."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, LEAVE, PATIENCE, PEERS, PYTHON, ROOT, need_torch

need_torch()
TRAINER = DDP_RUN.parent / "trainer"
if subprocess.run([PYTHON, "-c", "import transformers"], capture_output=True, check=False).returncode != 0:
    print(f"[skipped] all of it: no Python with transformers at {PYTHON}")
    sys.exit(0)

CONFIG = """
data_config: {format: chat, path: chats/train.jsonl, eval_path: chats/eval.jsonl, tokenizer: chats, block_size: 256}
model: llama
llama_config: {n_layer: 2, n_head: 4, n_kv_head: 2, n_embd: 64, intermediate: 128}
trainer_config: {max_steps: 60, batch_size: 8, device: cpu}
optimizer_config: {name: adamw, learning_rate: 0.005, warmup_steps: 0}
hydra: {run: {dir: .}}
"""
QUESTIONS = ["Hello, my name is Emma.", "What is the capital of France?", "What is my name?"]

# A conversation as users of transformers have it: the pipeline keeps the messages and stops by the folder's generation_config.
PIPELINE = r"""
import json, sys, torch
from transformers import pipeline
torch.set_num_threads(1)
chat = pipeline("text-generation", model=sys.argv[1], device="cpu")
messages = []
for question in json.loads(sys.argv[2]):
    messages.append({"role": "user", "content": question})
    messages = chat(messages, max_new_tokens=40, do_sample=False)[0]["generated_text"]
print(json.dumps([m["content"] for m in messages if m["role"] == "assistant"]))
""" + LEAVE

# Adapters on the model that they belong to, with the tokenizer and the template that lie next to them.
ADAPTERS = r"""
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
base, adapters, question = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(adapters)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapters).eval()
ids = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
out = model.generate(**ids, max_new_tokens=40, do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id)
print(json.dumps(tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)))
""" + LEAVE

# Folders with the tokenizers of published models, trained small, as test_model_tokenizers.py makes them. A normalized </s> behind a normalizer that
# prepends "▁" is the token "▁</s>" to transformers, which skip_special_tokens then leaves in an answer's text.
TOKENIZERS = r"""
import json, sys
sys.path.insert(0, sys.argv[2])
import test_chat_templates as templates, test_model_tokenizers as made
from test_chat_data import TOKENS, folder_with
kind, source, special = {"sentencepiece": (made.of_model(made.sentencepiece_model(), end_is_normalized=False, normalizer=made.PREPEND), templates.LLAMA2, "llama2"),
                         "llama3": (made.llama3(), templates.LLAMA3, "llama3"), "qwen": (made.qwen(), templates.QWEN3, "chatml")}[sys.argv[3]]
folder_with(kind, source, TOKENS[special], sys.argv[1], as_file=False)
""" + LEAVE


class ChatModels(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "config.yaml").write_text(CONFIG)
        self.call(sys.executable, ROOT / "scripts/make_conversations.py", "chats")

    def call(self, *command, text="", **environment):
        done = subprocess.run([str(word) for word in command], cwd=self.folder, capture_output=True, text=True, input=text, timeout=PATIENCE, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def train(self, *overrides):
        return self.call(TRAINER, "--config", "config.yaml", *overrides)

    def answers(self, model, questions=QUESTIONS):
        text = "".join(question + "\n" for question in questions)
        said = self.call(TRAINER, "generate", "--snapshot", model, "--chat", "--greedy", "--json", "--max_new_tokens", "40", "--device", "cpu", text=text)
        return [json.loads(line)["content"] for line in said.splitlines()]

    def pipeline(self, folder, questions=QUESTIONS):
        return json.loads(self.call(PYTHON, "-c", PIPELINE, folder, json.dumps(questions)).splitlines()[-1])

    def export(self, *options):
        self.call(TRAINER, "export", "--snapshot", "snapshot.pt", *options)

    def test_a_conversation_in_the_pipeline_of_transformers(self):
        self.train()
        self.export("--output", "tuned")
        ours = self.answers("snapshot.pt")
        self.assertTrue(all(0 < len(answer) < 120 for answer in ours), ours)
        self.assertEqual(ours, self.answers("tuned"))
        self.assertEqual(ours, self.pipeline("tuned"))
        self.assertEqual((self.folder / "tuned/chat_template.jinja").read_bytes(), (self.folder / "chats/chat_template.jinja").read_bytes())
        config, generation = (json.loads((self.folder / "tuned" / name).read_text()) for name in ("tokenizer_config.json", "generation_config.json"))
        self.assertEqual((config["eos_token"], generation["eos_token_id"]), ("<|im_end|>", [2, 0]))

    def test_folders_with_the_tokenizers_of_published_models(self):
        for kind in ("sentencepiece", "llama3", "qwen"):
            with self.subTest(tokenizer=kind):
                self.call(PYTHON, "-c", TOKENIZERS, "chats", ROOT / "tests/peers", kind)
                (self.folder / "chats/chat_template.jinja").unlink(missing_ok=True)
                self.train("trainer_config.max_steps=40", f"trainer_config.snapshot_path={kind}.pt", "data_config.block_size=512", "trainer_config.batch_size=2")
                self.call(TRAINER, "export", "--snapshot", f"{kind}.pt", "--output", kind)
                self.assertEqual(self.answers(kind), self.pipeline(kind))
                # The folder is a model to start from, with its own tokenizer and template.
                log = self.train("~llama_config", f"+llama_config.init_from={kind}", "data_config.tokenizer=null", "trainer_config.max_steps=2",
                                 f"trainer_config.snapshot_path={kind}_again.pt", "trainer_config.batch_size=2")
                self.assertIn(" ends an assistant's turn", log)

    def test_adapters_with_peft(self):
        if not (Path(PEERS) / "peft").exists():
            print("[skipped] peft is not in .cache/peers: bash .ci/run setup")
            self.skipTest("a package is missing")
        self.train()
        self.export("--output", "base")
        self.train("~llama_config", "+llama_config.init_from=base", "lora.rank=4", "data_config.tokenizer=null", "trainer_config.max_steps=20",
                   "trainer_config.snapshot_path=adapters.pt")
        self.call(TRAINER, "export", "--snapshot", "adapters.pt", "--output", "adapters", "--format", "peft")
        theirs = json.loads(self.call(PYTHON, "-c", ADAPTERS, "base", "adapters", QUESTIONS[1], PYTHONPATH=PEERS).splitlines()[-1])
        self.assertEqual(self.answers("adapters.pt", QUESTIONS[1:2]), [theirs])

    def test_a_tokenizer_with_more_tokens_than_the_model(self):
        self.train("trainer_config.max_steps=1")
        self.export("--output", "base")
        path = self.folder / "base/tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": len(tokenizer["model"]["vocab"]), "content": "<|new|>"})
        path.write_text(json.dumps(tokenizer))
        done = subprocess.run([TRAINER, "--config", "config.yaml", "~llama_config", "+llama_config.init_from=base", "data_config.tokenizer=null",
                               "trainer_config.snapshot_path=other.pt"], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertRegex(done.stderr, r"model\.embed_tokens\.weight.*\[535, 64\].*\[536, 64\].*tokenizer")

    def test_at_a_terminal(self):
        self.train("trainer_config.max_steps=1")
        main, other = pty.openpty()
        self.addCleanup(os.close, main)
        child = subprocess.Popen([TRAINER, "generate", "--snapshot", "snapshot.pt", "--chat", "--max_new_tokens", "100000", "--device", "cpu"], cwd=self.folder,
                                 stdin=other, stdout=other, stderr=other, start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
                                 preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        os.close(other)
        said = b""

        def until(*ends):
            nonlocal said
            while not any(said.endswith(end) for end in ends):
                self.assertTrue(select.select([main], [], [], PATIENCE)[0], said)
                said += os.read(main, 4096)
            before, said = said, b""
            return before.decode(errors="replace")

        self.assertIn("/reset forgets", until(b"\r\n> "))
        os.write(main, b"Hello\n")
        self.assertIn("Hello", until(b"\r\n> "))
        os.write(main, ("7" * 600 + "\n").encode())
        self.assertIn("chat: this message makes", until(b"\r\n> "))
        os.write(main, b"\x04")
        self.assertEqual(child.wait(PATIENCE), 0)


if __name__ == "__main__":
    unittest.main()
