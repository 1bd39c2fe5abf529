"""Masked language models beside transformers: weights of a BertForMaskedLM read and written, the same logits, the same tokens."""

import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, LEAVE, PATIENCE, PYTHON, need_torch

need_torch()
TRAINER = DDP_RUN.parent / "trainer"
TEXT = "".join(f"{a} {b} ran below the {c} and baked {d}.\n" for a in ("Anna", "Karl", "Zoë") for b in ("and Tom", "or Eve")
               for c in ("oak", "old oak", "brook") for d in ("bread", "äpfel, unbelievably"))
MASKED = "Anna [MASK] Eve ran [MASK] the old oak."
TOLERANCE = 1e-5

# A BERT with random weights and a tokenizer, as transformers saves them; what it makes of the masks.
MAKE = """
import json, sys, torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast
from tokenizers import BertWordPieceTokenizer
folder, text = sys.argv[1], open(sys.argv[2]).read()
trained = BertWordPieceTokenizer()
trained.train_from_iterator([text], vocab_size=120, show_progress=False)
trained.save_model(folder)
torch.manual_seed(5)
model = BertForMaskedLM(BertConfig(vocab_size=trained.get_vocab_size(), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                   intermediate_size=48, max_position_embeddings=40)).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
model.save_pretrained(folder)
print(json.dumps(trained.get_vocab_size()))
"""

# Log-probabilities of every token at each mask.
FILL = """
import json, sys, torch
from transformers import AutoTokenizer, BertForMaskedLM
model, loading = BertForMaskedLM.from_pretrained(sys.argv[1], output_loading_info=True)
model.eval()
assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(sys.argv[2], return_tensors="pt")["input_ids"]
with torch.no_grad():
    logs = model(ids).logits[0][ids[0] == tokenizer.mask_token_id].double().log_softmax(-1)
names = tokenizer.convert_ids_to_tokens(list(range(logs.shape[1])))
print(json.dumps([{name: log.item() for name, log in zip(names, row)} for row in logs]))
"""


def peer(code, *words):
    run = subprocess.run([PYTHON, "-B", "-c", code + LEAVE, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE * 2,
                         env={**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"})
    if "No module named" in run.stderr:
        raise unittest.SkipTest("transformers is not installed")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


class MaskedLm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_masked_")
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        (self.place / "text.txt").write_text(TEXT * 3)
        (self.place / "bert").mkdir()

    def trainer(self, *words):
        run = subprocess.run([TRAINER, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE * 2, cwd=self.place,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def train(self, *overrides):
        (self.place / "config.yaml").write_text(
            "task: masked_lm\ndata_config: {path: text.txt, block_size: 32, min_characters: 10}\n"
            "trainer_config: {batch_size: 4, max_steps: 3, data_loader_workers: 1, snapshot_path: snapshot.pt}\n")
        self.trainer("--config", "config.yaml", *overrides)

    def compare(self, folder):
        """Probabilities of all tokens, so that logits are equal but for a constant that no one sees."""
        theirs = peer(FILL, self.place / folder, MASKED)
        answer = json.loads(self.trainer("predict", "--snapshot", "snapshot.pt", "--text", MASKED, "--top", 10_000, "--json"))
        self.assertEqual(len(answer["predictions"]), len(theirs))
        for prediction, there in zip(answer["predictions"], theirs):
            ours = {entry["answer"]: math.log(entry["probability"]) for entry in prediction["answers"]}
            self.assertEqual(ours.keys(), there.keys())
            self.assertLess(max(abs(ours[token] - there[token]) for token in ours), TOLERANCE)

    def test_weights_of_transformers_give_the_same_logits(self):
        peer(MAKE, self.place / "bert", self.place / "text.txt")
        self.train("bert_config.init_from=bert", "trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30")
        self.compare("bert")

    def test_what_is_exported_gives_the_same_logits_in_transformers(self):
        self.trainer("tokenize", "--train", "wordpiece", "--vocab_size", 300, "--input", "text.txt", "--output", "vocabulary")
        self.train("data_config.tokenizer=vocabulary", "bert_config.model_type=bert-tiny", "optimizer_config.learning_rate=0.01")
        self.trainer("export", "--snapshot", "snapshot.pt", "--format", "huggingface", "--output", "exported")
        self.compare("exported")
        self.assertEqual(sorted(path.name for path in (self.place / "exported").iterdir()),
                         ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"])

    def test_an_exported_folder_is_where_another_run_starts(self):
        peer(MAKE, self.place / "bert", self.place / "text.txt")
        self.train("bert_config.init_from=bert")
        self.trainer("export", "--snapshot", "snapshot.pt", "--output", "exported")
        self.train("bert_config.init_from=exported", "trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30",
                   "trainer_config.snapshot_path=second.pt")
        (self.place / "snapshot.pt").unlink()
        (self.place / "second.pt").rename(self.place / "snapshot.pt")
        self.compare("exported")


if __name__ == "__main__":
    unittest.main()
