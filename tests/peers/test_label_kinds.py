"""Regression, several labels and pairs of texts beside transformers, scikit-learn and scipy: logits, steps of training, metrics."""

import csv
import json
import unittest

from test_bert_families import FAMILIES, LABELS, TOLERANCE, UNCHANGED, WORDS, Families, texts

import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, precision_score, recall_score
from transformers import AutoTokenizer

ROOM = 36
SECOND = "data_config.text_pair_column=second"
SLOW = "optimizer_config.learning_rate=0.02"
LONG = " and so on" * 12


def pairs(count, seed=0):
    """Of unequal lengths: some are cut in the first text, some in the second, some in both."""
    rows = []
    for i, (text, label) in enumerate(texts(count, seed)):
        second = f"{WORDS[i * 5 % len(WORDS)]} and {WORDS[i % len(WORDS)]}"
        rows.append((text + LONG * (i % 4 in (1, 3)), second + LONG * (i % 4 in (2, 3)), label))
    return rows


def score(text):
    return round(len(text) / 20 - text.count("o") / 7, 3)


def tags(text):
    return [label for label, sign in zip(LABELS, "oer") if text.count(sign) % 2]


class Kinds(Families):
    def table(self, name, header, rows):
        with open(self.folder / name, "w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    def pair_batch(self, folder, rows):
        tokenizer = AutoTokenizer.from_pretrained(self.folder / folder)
        return tokenizer([row[0] for row in rows], [row[1] for row in rows], return_tensors="pt", padding=True,
                         truncation=True, max_length=ROOM)

    def predictions(self, table):
        return json.loads(self.trainer("predict", "--snapshot", "snapshot.pt", "--input", table, "--json"))["predictions"]

    def evaluation(self, table, batch=7):
        return json.loads(self.trainer("eval", "--snapshot", "snapshot.pt", "--data", table, "--batch_size", batch, "--json"))

    def descend(self, model, batch, loss_of, rate, count=10):
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        losses = []
        for _ in range(count):
            loss = loss_of(model(**batch).logits)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.assertGreater(losses[0] - losses[-1], 0.001)  # they learn
        return losses

    def check_near(self, ours, theirs, tolerance=TOLERANCE):
        self.assertLess((torch.tensor(ours, dtype=torch.float64) - theirs.double()).abs().max().item(), tolerance)

    def problem_type(self, folder):
        return json.loads((self.folder / folder / "config.json").read_text())["problem_type"]

    def test_pairs_have_the_tokens_types_logits_and_losses_of_transformers(self):
        self.table("texts.csv", ("text", "second", "label"), pairs(24))
        rows = pairs(21, seed=1)
        self.table("new.csv", ("text", "second", "label"), rows)

        def check(model, folder):
            with torch.no_grad():
                theirs = model.eval()(**self.pair_batch(folder, rows)).logits.double().log_softmax(-1)
            ours = [[answer["probability"] for answer in each["answers"]] for each in self.predictions("new.csv")]
            self.check_near(torch.tensor(ours, dtype=torch.float64).log().tolist(), theirs)

        for family in FAMILIES:
            with self.subTest(family):
                model = self.make(family)
                start = (f"bert_config.init_from={family}", SECOND)
                self.train(*start, *UNCHANGED)
                check(model, family)
                self.train(*start)
                targets = torch.tensor([LABELS.index(label) for *_, label in pairs(24)])
                batch = self.pair_batch(family, pairs(24))
                self.check_losses(self.descend(model, batch, lambda logits, t=targets: torch.nn.functional.cross_entropy(logits, t), 0.1))
                self.trainer("export", "--snapshot", "snapshot.pt", "--output", f"exported-{family}")
                check(self.theirs(f"exported-{family}"), f"exported-{family}")
                one = json.loads(self.trainer("predict", "--snapshot", f"exported-{family}", "--text", rows[3][0],
                                              "--text_pair", rows[3][1], "--json"))["predictions"][0]
                there = self.predictions("new.csv")[3]
                self.check_near([each["probability"] for each in one["answers"]],
                                torch.tensor([each["probability"] for each in there["answers"]]))

    def test_a_pair_is_shown_as_transformers_tokenizes_it(self):
        self.make("bert")
        rows = pairs(8)
        self.table("texts.csv", ("text", "second", "label"), rows)
        shown = self.trainer("data", "show", "--config", "config.yaml", "--rows", "8", "bert_config.init_from=bert", SECOND)
        ours = [line.removeprefix("Tokens: ").split() for line in shown.splitlines() if line.startswith("Tokens: ")]
        batch = self.pair_batch("bert", rows)
        for mine, ids, seen in zip(ours, batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True):
            self.assertEqual([int(token) for token in mine], [token for token, here in zip(ids, seen) if here])

    def test_a_regression_has_the_numbers_losses_and_metrics_of_its_peers(self):
        rows = [(text, score(text)) for text, _ in texts(24)]
        self.table("texts.csv", ("text", "label"), rows)
        new = [(text, score(text)) for text, _ in texts(40, seed=1)]
        self.table("new.csv", ("text", "label"), new)
        for family in FAMILIES:
            for written in ("regression", None):  # transformers concludes it from the only label
                if written is None and family != "bert":
                    continue
                with self.subTest(family, written=written):
                    model = self.make(family, labels=("LABEL_0",), problem_type=written)
                    start = (f"bert_config.init_from={family}", SLOW)
                    self.assertIn("initialized at random: none", self.train(*start))
                    targets = torch.tensor([number for _, number in rows])
                    self.check_losses(self.descend(model, self.batch(family, rows),
                                                   lambda logits, t=targets: torch.nn.functional.mse_loss(logits[:, 0], t), 0.02))
                    values = [each["value"] for each in self.predictions("new.csv")]
                    with torch.no_grad():
                        self.check_near(values, model.eval()(**self.batch(family, new)).logits[:, 0])
                    truth = [number for _, number in new]
                    scores = {"loss": mean_squared_error(truth, values), "mse": mean_squared_error(truth, values),
                              "pearson": pearsonr(values, truth)[0], "spearman": spearmanr(values, truth)[0]}
                    report = self.evaluation("new.csv", 64)  # the batch of the predictions: the same numbers
                    for name, theirs in scores.items():
                        self.assertAlmostEqual(report[name], theirs, delta=1e-7, msg=name)
                    self.assertEqual(report["texts"], len(new))
                    self.assertAlmostEqual(self.evaluation("new.csv", 7)["pearson"], scores["pearson"], places=4)
                    self.trainer("export", "--snapshot", "snapshot.pt", "--output", f"exported-{family}-{written}")
                    exported = self.theirs(f"exported-{family}-{written}")
                    self.assertEqual((exported.config.problem_type, exported.config.num_labels), ("regression", 1))

    def test_several_labels_have_the_probabilities_losses_and_metrics_of_their_peers(self):
        rows = [(text, tags(text)) for text, _ in texts(24)]
        self.table("texts.csv", ("text", "label"), [(text, "|".join(labels)) for text, labels in rows])
        new = [(text, tags(text)) for text, _ in texts(40, seed=1)]
        (self.folder / "new.jsonl").write_text("".join(json.dumps({"text": text, "label": labels}) + "\n" for text, labels in new))
        self.assertGreater(len({tuple(labels) for _, labels in new}), 3)
        matrix = [[float(label in labels) for label in LABELS] for _, labels in rows]
        for family in FAMILIES:
            with self.subTest(family):
                model = self.make(family, problem_type="multi_label_classification")
                self.assertIn("initialized at random: none", self.train(f"bert_config.init_from={family}", "data_config.label_separator=|"))
                loss = torch.nn.BCEWithLogitsLoss()
                self.check_losses(self.descend(model, self.batch(family, rows), lambda logits: loss(logits, torch.tensor(matrix)), 0.1))
                predictions = self.predictions("new.jsonl")
                with torch.no_grad():
                    theirs = model.eval()(**self.batch(family, new)).logits.double().sigmoid()
                self.check_near([[answer["probability"] for answer in each["answers"]] for each in predictions], theirs)
                report = self.evaluation("new.jsonl")
                truth = [[int(label in labels) for label in LABELS] for _, labels in new]
                answers = [[int(label in each["labels"]) for label in LABELS] for each in predictions]
                self.assertAlmostEqual(report["exact_match"], accuracy_score(truth, answers), places=9)
                self.assertAlmostEqual(report["precision_micro"], precision_score(truth, answers, average="micro", zero_division=0), places=9)
                self.assertAlmostEqual(report["recall_micro"], recall_score(truth, answers, average="micro", zero_division=0), places=9)
                for average in ("micro", "macro"):
                    self.assertAlmostEqual(report[f"f1_{average}"], f1_score(truth, answers, average=average, zero_division=0), places=9)
                for label, theirs_of_label in zip(LABELS, f1_score(truth, answers, average=None, zero_division=0)):
                    self.assertAlmostEqual(report[f"f1/{label}"], theirs_of_label, places=9)
                self.trainer("export", "--snapshot", "snapshot.pt", "--output", f"exported-{family}")
                self.assertEqual(self.theirs(f"exported-{family}").config.problem_type, "multi_label_classification")


if __name__ == "__main__":
    unittest.main()
