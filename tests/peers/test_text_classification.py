"""Text classification beside Python: weights and logits of transformers' BertForSequenceClassification, scores of scikit-learn."""

import csv
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import unittest

from support import ROOT, TrainerTest

NEEDED = ("sklearn", "numpy", "torch", "transformers", "tokenizers")
if not all(importlib.util.find_spec(name) for name in NEEDED):
    print("[skipped] all of it: no Python with scikit-learn, torch, transformers and tokenizers")
    sys.exit(0)
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, matthews_corrcoef, precision_recall_fscore_support
from tokenizers import BertWordPieceTokenizer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification

PROBE = os.environ.get("DDP_METRICS_PROBE", str(ROOT / "build/release/bin/ddp_metrics_probe"))
TOLERANCE = 1e-5
TOPICS = {"film": "the film and its plot were {}", "food": "we ate {}, unbelievable bread", "sport": "a \"{}\" race,\nran by Zoë"}
WORDS = ["long", "short", "lovely", "dull", "Äpfel", "red", "slow", "so slow and so long that nobody stayed"]
CONFIG = """task: text_classification
data_config: {path: texts.csv, block_size: 40, train_split: 0.75}
trainer_config: {batch_size: 4, max_steps: 6, data_loader_workers: 1, snapshot_path: snapshot.pt}
"""


def texts(count, seed=0):
    draw = random.Random(seed)
    labels = sorted(TOPICS)
    return [(TOPICS[label].format(draw.choice(WORDS)) + " " * draw.randrange(3), label)
            for label in (labels[i % len(labels)] for i in range(count))]


class Classifier(TrainerTest):
    def setUp(self):
        super().setUp()
        (self.folder / "config.yaml").write_text(CONFIG)
        self.write("texts.csv", texts(48))

    def write(self, name, rows):
        with open(self.folder / name, "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])

    def train(self, *overrides):
        return self.trainer("--config", "config.yaml", *overrides)

    def start_from(self, name, *overrides):
        """Weights as they are: a learning rate of 1e-30 changes none."""
        return self.train(f"bert_config.init_from={name}", "trainer_config.max_steps=1",
                          "optimizer_config.learning_rate=1e-30", *overrides)

    def make(self, name, model_class, labels=()):
        """A BERT with random weights and a tokenizer, as transformers saves them."""
        vocabulary = BertWordPieceTokenizer()
        vocabulary.train_from_iterator([text for text, _ in texts(48)], vocab_size=150, show_progress=False)
        (self.folder / name).mkdir()
        vocabulary.save_model(str(self.folder / name))
        torch.manual_seed(5)
        named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}} if labels else {}
        model = model_class(BertConfig(
            vocab_size=vocabulary.get_vocab_size(), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=48, max_position_embeddings=40, **named)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(self.folder / name)
        return model

    def theirs(self, name, rows, batch=5):
        """Log-probabilities by transformers, padded by batch."""
        model, loading = BertForSequenceClassification.from_pretrained(self.folder / name, output_loading_info=True)
        self.assertFalse(loading["missing_keys"] or loading["unexpected_keys"], loading)
        tokenizer = AutoTokenizer.from_pretrained(self.folder / name)
        logs = []
        with torch.no_grad():
            for at in range(0, len(rows), batch):
                tokens = tokenizer([text for text, _ in rows[at:at + batch]], return_tensors="pt", padding=True,
                                   truncation=True, max_length=40)
                logs += model.eval()(**tokens).logits.double().log_softmax(-1).tolist()
        return [model.config.id2label[i] for i in range(len(logs[0]))], logs

    def predictions(self, name):
        return json.loads(self.trainer("predict", "--snapshot", "snapshot.pt", "--input", name, "--json"))["predictions"]

    def compare(self, name):
        rows = texts(30, seed=1)
        self.write("new.csv", rows)
        labels, logs = self.theirs(name, rows)
        for prediction, there in zip(self.predictions("new.csv"), logs, strict=True):
            self.assertEqual([answer["answer"] for answer in prediction["answers"]], labels)
            ours = [math.log(answer["probability"]) for answer in prediction["answers"]]
            self.assertLess(max(abs(a - b) for a, b in zip(ours, there)), TOLERANCE)
        return rows

    def test_weights_of_transformers_give_the_same_logits_in_the_order_of_their_labels(self):
        self.make("bert", BertForSequenceClassification, ["sport", "film", "food"])
        self.assertIn("initialized at random: none", self.start_from("bert"))
        self.compare("bert")

    def test_classes_without_names_are_those_of_the_data_in_order(self):
        self.make("bert", BertForSequenceClassification, ["LABEL_0", "LABEL_1", "LABEL_2"])
        self.assertIn("initialized at random: none", self.start_from("bert"))
        self.assertEqual([answer["answer"] for answer in self.predictions("texts.csv")[0]["answers"]], ["film", "food", "sport"])

    def test_an_evaluation_is_that_of_scikit_learn_with_ties_and_missing_classes(self):
        model = self.make("bert", BertForSequenceClassification, ["film", "food", "sport"])
        with torch.no_grad():  # two classes with the same logit for every text, to the last bit
            model.classifier.weight[1:] = 0
            model.classifier.bias[1:] = model.classifier.bias[0] + 0.01
        model.save_pretrained(self.folder / "bert")
        self.start_from("bert")
        everything = texts(60, seed=2)
        for rows in (everything, [row for row in everything if row[1] != "food"], everything[:1]):
            self.write("new.csv", rows)
            report = json.loads(self.trainer("eval", "--snapshot", "snapshot.pt", "--data", "new.csv", "--json"))
            predictions = self.predictions("new.csv")
            truth = [label for _, label in rows]
            answers = [prediction["label"] for prediction in predictions]
            self.assertAlmostEqual(report["accuracy"], accuracy_score(truth, answers), places=9)
            counts = confusion_matrix(truth, answers, labels=["film", "food", "sport"]).tolist()
            self.assertEqual(report["confusion_matrix"], {"labels": ["film", "food", "sport"], "counts": counts})
            macro = precision_recall_fscore_support(truth, answers, average="macro", zero_division=0)
            for name, value in zip(("precision", "recall", "f1"), macro):
                self.assertAlmostEqual(report[name], value, places=9)
            self.assertAlmostEqual(report["f1_macro"], macro[2], places=9)
            self.assertAlmostEqual(report["matthews_correlation"], matthews_corrcoef(truth, answers), places=9)
            loss = log_loss(truth, [[answer["probability"] for answer in p["answers"]] for p in predictions],
                            labels=["film", "food", "sport"])
            self.assertAlmostEqual(report["loss"], loss, places=5)

    def test_of_two_classes_the_scores_are_those_of_the_second(self):
        self.make("bert", BertForMaskedLM)
        rows = [row for row in texts(60) if row[1] != "sport"]
        self.write("texts.csv", rows)
        self.train("bert_config.init_from=bert")
        report = json.loads(self.trainer("eval", "--snapshot", "snapshot.pt", "--data", "texts.csv", "--json"))
        answers = [prediction["label"] for prediction in self.predictions("texts.csv")]
        binary = precision_recall_fscore_support([label for _, label in rows], answers, average="binary", pos_label="food",
                                                 zero_division=0)
        for name, value in zip(("precision", "recall", "f1"), binary):
            self.assertAlmostEqual(report[name], value, places=9)


class Scores(unittest.TestCase):
    def test_scores_of_random_answers_are_those_of_scikit_learn(self):
        draw = random.Random(3)
        cases = []
        for _ in range(400):
            classes = draw.randrange(2, 9)
            occurring = [draw.randrange(classes) for _ in range(draw.randrange(1, classes + 1))]  # some classes are missing
            answered = [draw.randrange(classes) for _ in range(draw.randrange(1, classes + 1))]
            count = draw.randrange(1, 40)
            cases.append((classes, draw.choices(occurring, k=count), draw.choices(answered, k=count)))
        lines = [" ".join(map(str, [classes, *(n for pair in zip(truth, answers) for n in pair)])) for classes, truth, answers in cases]
        done = subprocess.run([PROBE, "--scores"], input="\n".join(lines), text=True, check=True, capture_output=True)
        for (classes, truth, answers), line in zip(cases, done.stdout.splitlines(), strict=True):
            ours = [float(word) for word in line.split()]
            each = precision_recall_fscore_support(truth, answers, labels=range(classes), zero_division=0)
            expected = [each[score][label] for label in range(classes) for score in range(3)]
            for average in ("macro", "micro"):
                expected += precision_recall_fscore_support(truth, answers, average=average, zero_division=0)[:3]
            expected.append(matthews_corrcoef(truth, answers))
            for a, b in zip(ours, expected, strict=True):
                self.assertAlmostEqual(a, b, places=12)


if __name__ == "__main__":
    unittest.main()
