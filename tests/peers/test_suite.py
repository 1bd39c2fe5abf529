"""`trainer eval --suite` beside a script over transformers with the formulas of lm-eval."""

import json
import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, LEAVE, PATIENCE, PYTHON, ROOT, need_torch

need_torch()
TRAINER = DDP_RUN.parent / "trainer"
CORPUS = (ROOT / "data/sample_corpus.txt").read_text()
SIZES = {"gpt": ["gpt_config.n_layer=2", "gpt_config.n_head=2", "gpt_config.n_embd=32"],
         "llama": ["llama_config.n_layer=2", "llama_config.n_head=2", "llama_config.n_embd=32"]}

# Prompts and choices as hellaswag/utils.py and arc_easy.yaml of lm-eval make them, log-likelihoods as models/huggingface.py and
# api/model.py, metrics as api/task.py and api/metrics.py do; one row at a time, without padding.
LM_EVAL = r"""
import json, re, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, suite = sys.argv[1:3]
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
limit = model.config.max_position_embeddings
encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]

def preprocess(text):
    text = text.strip()
    text = text.replace(" [title]", ". ")
    text = re.sub("\\[.*?\\]", "", text)
    return text.replace("  ", " ")

def document(row):
    if "endings" in row:
        context = row["ctx_a"] + " " + row["ctx_b"].capitalize()
        return preprocess(row["activity_label"] + ": " + context), [preprocess(e) for e in row["endings"]], int(row["label"])
    question, choices = row["question"], row.get("choices")
    if isinstance(question, dict):
        question, choices = question["stem"], {key: [c[key] for c in question["choices"]] for key in ("text", "label")}
    return f"Question: {question}\nAnswer:", choices["text"], choices["label"].index(row["answerKey"])

def log_likelihood(context, continuation):
    spaces = len(context) - len(context.rstrip())
    if spaces > 0:
        continuation, context = context[-spaces:] + continuation, context[:-spaces]
    whole, before = encode(context + continuation), len(encode(context))
    tokens = whole[before:]
    inputs = torch.tensor([whole[-(limit + 1):][:-1]])
    logits = torch.log_softmax(model(inputs).logits[0].float(), -1)[-len(tokens):]
    return logits.gather(1, torch.tensor(tokens)[:, None]).double().sum().item()

def mean_and_stderr(values):
    mean = sum(values) / len(values)
    return mean, (sum((x - mean) ** 2 for x in values) / (len(values) - 1)) ** 0.5 / len(values) ** 0.5

right, right_norm = [], []
with torch.no_grad():
    for line in open(suite, encoding="utf-8"):
        context, choices, gold = document(json.loads(line))
        scores = [log_likelihood(context, " " + choice) for choice in choices]
        norm = [score / len(choice) for score, choice in zip(scores, choices)]
        right.append(float(max(range(len(scores)), key=scores.__getitem__) == gold))
        right_norm.append(float(max(range(len(norm)), key=norm.__getitem__) == gold))
acc, acc_norm = mean_and_stderr(right), mean_and_stderr(right_norm)
print(json.dumps({"items": len(right), "acc": acc[0], "acc_stderr": acc[1], "acc_norm": acc_norm[0], "acc_norm_stderr": acc_norm[1]}))
"""


def words(rng, low, high):
    size, start = rng.randint(low, high), rng.randrange(len(CORPUS) - 400)
    return " ".join(CORPUS[start:start + 400].split()[1:size + 1])


def hellaswag(rng, i):
    endings = [rng.choice(["", "[step] ", "  "]) + words(rng, 1, 12) + rng.choice(["", " [title] " + words(rng, 1, 3)])
               for _ in range(4)]
    return {"ind": i, "activity_label": words(rng, 1, 3), "ctx_a": words(rng, 3, 30) + rng.choice(["", " [header] a [b", " [title]"]),
            "ctx_b": rng.choice(["", "ÉLAN and " + words(rng, 1, 4), words(rng, 1, 4).upper()]),
            "endings": endings, "label": rng.choice([str, int])(rng.randrange(4))}


def arc(rng, i):
    texts, labels = [words(rng, 1, 8) for _ in range(rng.randint(3, 5))], rng.choice(["ABCDE", "12345"])
    labels = list(labels[:len(texts)])
    if i % 2:
        return {"id": i, "answerKey": rng.choice(labels),
                "question": {"stem": words(rng, 4, 20) + "?", "choices": [{"text": t, "label": n} for t, n in zip(texts, labels)]}}
    return {"id": i, "question": words(rng, 4, 60) + "?", "choices": {"text": texts, "label": labels}, "answerKey": rng.choice(labels)}


class Suite(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ddp_suite_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "text.txt").write_text(CORPUS[:20_000])
        cls.run_in_folder(TRAINER, "tokenize", "--tokenizer", "bpe", "--train", "--vocab_size", "400", "--input", "text.txt",
                          "--output", "tokens")
        rng = random.Random(5)
        for name, row in (("hellaswag", hellaswag), ("arc", arc)):
            rows = (json.dumps(row(rng, i), ensure_ascii=i % 3 == 0) for i in range(120))
            (cls.folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")

    @classmethod
    def run_in_folder(cls, *command, fails=False):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([*map(str, command)], cwd=cls.folder, env=env, capture_output=True, text=True, timeout=PATIENCE)
        if "No module named" in done.stderr:
            raise unittest.SkipTest("transformers is not installed")
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    def trained(self, model):
        """A snapshot, and the folder that transformers reads; a short context, so that some rows are cut."""
        snapshot = f"{model}.pt"
        if not (self.folder / snapshot).exists():
            (self.folder / f"{model}.yaml").write_text(
                f"model: {model}\ndata_config: {{path: tokens, block_size: 64, train_split: 1}}\nhydra: {{run: {{dir: {model}}}}}\n"
                "trainer_config: {max_steps: 60, batch_size: 8, data_loader_workers: 0}\noptimizer_config: {learning_rate: 0.01}\n")
            self.run_in_folder(TRAINER, "--config", f"{model}.yaml", f"trainer_config.snapshot_path={snapshot}", *SIZES[model])
            self.run_in_folder(TRAINER, "export", "--snapshot", snapshot, "--output", model + "_folder")
        return snapshot, model + "_folder"

    def scores(self, *arguments, launcher=()):
        return json.loads(self.run_in_folder(*launcher, TRAINER, "eval", "--json", *arguments))

    def test_scores_are_those_of_lm_evals_formulas(self):
        for model in SIZES:
            snapshot, folder = self.trained(model)
            for suite in ("hellaswag", "arc"):
                with self.subTest(model=model, suite=suite):
                    theirs = json.loads(self.run_in_folder(PYTHON, "-B", "-c", LM_EVAL + LEAVE, folder, f"{suite}.jsonl"))
                    self.assertNotEqual(theirs["acc"], theirs["acc_norm"])
                    for name, arguments in ((snapshot, []), (folder, ["--batch_size", "7"]), (snapshot, ["--batch_size", "1"])):
                        ours = self.scores("--snapshot", name, "--suite", f"{suite}.jsonl", *arguments)
                        self.assertEqual(ours["layout"], suite)
                        for key, value in theirs.items():
                            self.assertAlmostEqual(ours[key], value, places=12, msg=key)

    def test_ranks_share_the_rows(self):
        snapshot, _ = self.trained("gpt")
        arguments = ["--snapshot", snapshot, "--suite", "arc.jsonl"]
        launcher = [DDP_RUN, "--standalone", "--nproc_per_node=2"]
        self.assertEqual(self.scores(*arguments, launcher=launcher), self.scores(*arguments))

    def test_the_table_has_both_accuracies_with_their_standard_errors(self):
        snapshot, _ = self.trained("gpt")
        table = self.run_in_folder(TRAINER, "eval", "--snapshot", snapshot, "--suite", "hellaswag.jsonl")
        self.assertRegex(table, r"^items +120 of hellaswag\nacc +0\.\d{4} ± 0\.\d{4}\nacc_norm +0\.\d{4} ± 0\.\d{4}\n$")

    def test_a_row_that_cannot_be_scored_is_named_by_file_and_line(self):
        snapshot, _ = self.trained("gpt")
        good = (self.folder / "hellaswag.jsonl").read_text(encoding="utf-8").splitlines()[0]
        for row, what in (("{}", "expected a row of HellaSwag"), ("[1", "is not a JSON object"),
                          (json.dumps(arc(random.Random(1), 0)), "is a row of arc, the ones before are of hellaswag"),
                          (good.replace('"label"', '"lab"'), "has no label"),
                          (json.dumps({**json.loads(good), "label": 4}), "label is 4, and the endings are 0 to 3"),
                          (json.dumps({**json.loads(good), "label": ""}), "a test set without labels cannot be scored"),
                          (json.dumps({**json.loads(good), "endings": ["a", 3]}), "choice 2 is not a text"),
                          (json.dumps({**json.loads(good), "endings": ["a", "word " * 200], "label": 0}),
                           "more than the model's context of 64")):
            (self.folder / "bad.jsonl").write_text(f"{good}\n\n{row}\n", encoding="utf-8")
            with self.subTest(what=what):
                error = self.run_in_folder(TRAINER, "eval", "--snapshot", snapshot, "--suite", "bad.jsonl", fails=True)
                self.assertRegex(error, rf"^error: --suite: .*bad\.jsonl:3: .*{what}")
                self.assertEqual(error.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
