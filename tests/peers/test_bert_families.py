"""BERT, RoBERTa and DistilBERT beside transformers and peft: logits, steps of training, adapters, both ways."""

import csv
import importlib.util
import json
import math
import os
import random
import sys
import unittest

from support import PEERS, TrainerTest

sys.path.append(PEERS)
if not all(importlib.util.find_spec(name) for name in ("numpy", "torch", "transformers", "tokenizers")):
    print("[skipped] all of it: no Python with scikit-learn, torch, transformers and tokenizers")
    sys.exit(0)
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
import torch
import transformers
from safetensors.torch import load, load_file
from tokenizers import AddedToken, BertWordPieceTokenizer, ByteLevelBPETokenizer
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

TOLERANCE = 1e-5
LABELS = ["film", "food", "sport"]
TOPICS = {"film": "the film and its plot were {}", "food": "we ate {}, unbelievable bread", "sport": "a \"{}\" race, ran by Zoë"}
WORDS = ["long", "short", "lovely", "dull", "Äpfel", "red", "slow", "so slow and so long that nobody stayed"]
COMMON = {"max_position_embeddings": 40}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
FAMILIES = {
    "bert": ("Bert", {**SIZES, "layer_norm_eps": 1e-6}),
    "roberta": ("Roberta", {**SIZES, "layer_norm_eps": 1e-5, "type_vocab_size": 1}),
    "distilbert": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
}
# What trainer calls two layers of each, by the ends of their names.
TARGETS = {"bert": ["query", "value"], "roberta": ["query", "value"], "distilbert": ["q_lin", "v_lin"]}
HEADS = {"bert": ["pooler", "classifier"], "roberta": ["classifier"], "distilbert": ["pre_classifier", "classifier"]}
CONFIG = """task: text_classification
data_config: {path: texts.csv, block_size: 36, train_split: 1.0}
bert_config: {hidden_pdrop: 0, attn_pdrop: 0}
optimizer_config: {name: sgd, learning_rate: 0.1, weight_decay: 0}
trainer_config: {batch_size: 24, max_steps: 10, log_every_steps: 1, grad_norm_clip: 0, data_loader_workers: 1, snapshot_path: snapshot.pt}
hydra: {run: {dir: .}}
"""
UNCHANGED = ("trainer_config.max_steps=1", "optimizer_config.learning_rate=1e-30")


def texts(count, seed=0):
    draw = random.Random(seed)
    return [(TOPICS[label].format(draw.choice(WORDS)), label) for label in (LABELS[i % 3] for i in range(count))]


class Families(TrainerTest):
    def setUp(self):
        super().setUp()
        (self.folder / "config.yaml").write_text(CONFIG)
        self.write("texts.csv", texts(24))

    def write(self, name, rows):
        with open(self.folder / name, "w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])

    def train(self, *overrides, code=0):
        for path in (*self.folder.glob("snapshot.pt*"), self.folder / "metrics.jsonl"):
            path.unlink(missing_ok=True)
        return self.trainer("--config", "config.yaml", *overrides, code=code)

    def losses(self):
        records = map(json.loads, (self.folder / "metrics.jsonl").read_text().splitlines())
        return [record["loss"] for record in records if record["split"] == "train"]

    def make(self, family, head="ForSequenceClassification", labels=tuple(LABELS), **more):
        """Random weights and a tokenizer, as transformers saves them."""
        place = self.folder / family
        place.mkdir(exist_ok=True)
        corpus = [text for text, _ in texts(48)]
        if family == "roberta":
            trained = ByteLevelBPETokenizer()
            trained.train_from_iterator(corpus, vocab_size=320, min_frequency=1, show_progress=False,
                                        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
            trained.save_model(str(place))
            merges = [tuple(line.split()) for line in (place / "merges.txt").read_text().splitlines()[1:]]
            transformers.RobertaTokenizerFast(vocab=trained.get_vocab(), merges=merges,
                                              mask_token=AddedToken("<mask>", lstrip=True)).save_pretrained(place)
        else:
            trained = BertWordPieceTokenizer()
            trained.train_from_iterator(corpus, vocab_size=150, show_progress=False)
            trained.save_model(str(place))
        torch.manual_seed(5)
        name, sizes = FAMILIES[family]
        if head == "ForSequenceClassification":
            more["id2label"] = dict(enumerate(labels))
        model = getattr(transformers, name + head)(getattr(transformers, name + "Config")(
            vocab_size=trained.get_vocab_size(), **{**COMMON, **sizes, **more})).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(place)
        return model

    def batch(self, family, rows):
        tokenizer = AutoTokenizer.from_pretrained(self.folder / family)
        tokens = tokenizer([text for text, _ in rows], return_tensors="pt", padding=True, truncation=True, max_length=36)
        return {name: tokens[name] for name in ("input_ids", "attention_mask")}

    def check_predictions(self, model, family):
        rows = texts(20, seed=1)
        self.write("new.csv", rows)
        with torch.no_grad():
            theirs = model.eval()(**self.batch(family, rows)).logits.double().log_softmax(-1)
        predictions = json.loads(self.trainer("predict", "--snapshot", "snapshot.pt", "--input", "new.csv", "--json"))
        for prediction, there in zip(predictions["predictions"], theirs.tolist(), strict=True):
            ours = {answer["answer"]: math.log(answer["probability"]) for answer in prediction["answers"]}
            self.assertLess(max(abs(ours[label] - value) for label, value in zip(LABELS, there)), TOLERANCE)

    def steps(self, model, family, smoothing=0.0, count=10):
        """The losses of as many steps of SGD on all rows at once."""
        rows = texts(24)
        targets = torch.tensor([LABELS.index(label) for _, label in rows])
        batch = self.batch(family, rows)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        losses = []
        for _ in range(count):
            loss = torch.nn.functional.cross_entropy(model(**batch).logits, targets, label_smoothing=smoothing)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses

    def check_losses(self, theirs, tolerance=TOLERANCE):
        ours = self.losses()
        self.assertEqual(len(ours), len(theirs))
        self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs)), tolerance, (ours, theirs))

    def theirs(self, folder, auto=AutoModelForSequenceClassification):
        model, loading = auto.from_pretrained(self.folder / folder, output_loading_info=True)
        self.assertFalse(loading["missing_keys"] or loading["unexpected_keys"], loading)
        return model.eval()

    def check_masks(self, ours, model, tokenizer, text):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logs = model(ids).logits[0][ids[0] == tokenizer.mask_token_id].double().log_softmax(-1)
        answer = json.loads(self.trainer("predict", "--snapshot", ours, "--text", text, "--top", 10_000, "--json"))
        self.assertEqual(len(answer["predictions"]), len(logs))
        for prediction, there in zip(answer["predictions"], logs):
            here = sorted(math.log(entry["probability"]) for entry in prediction["answers"])
            self.assertLess(max(abs(a - b) for a, b in zip(here, sorted(there.tolist()), strict=True)), TOLERANCE)


class Networks(Families):
    def test_weights_of_transformers_give_the_same_logits_and_steps_and_are_exported_again(self):
        for family in FAMILIES:
            with self.subTest(family):
                model = self.make(family)
                self.assertIn("initialized at random: none", self.train(f"bert_config.init_from={family}", *UNCHANGED))
                self.check_predictions(model, family)
                self.train(f"bert_config.init_from={family}")
                theirs = self.steps(model, family)
                self.assertGreater(theirs[0] - theirs[-1], 0.02)  # they learn
                self.check_losses(theirs)
                self.check_predictions(model, family)
                self.trainer("export", "--snapshot", "snapshot.pt", "--output", f"exported-{family}")
                self.check_predictions(self.theirs(f"exported-{family}"), family)
                self.assertEqual(self.batch(f"exported-{family}", texts(9))["input_ids"].tolist(),
                                 self.batch(family, texts(9))["input_ids"].tolist())

    def test_masked_language_models_fill_masks_alike_and_lend_their_encoders(self):
        for family in FAMILIES:
            with self.subTest(family):
                model = self.make(family, "ForMaskedLM")
                tokenizer = AutoTokenizer.from_pretrained(self.folder / family)
                text = f"we {tokenizer.mask_token} long, unbelievable {tokenizer.mask_token}"
                (self.folder / "text.txt").write_text("".join(line + "\n" for line, _ in texts(48)))
                self.train("task=masked_lm", "data_config.path=text.txt", f"bert_config.init_from={family}",
                           "data_config.train_split=0.9", "data_config.min_characters=5", "trainer_config.max_steps=3")
                self.trainer("export", "--snapshot", "snapshot.pt", "--output", f"exported-{family}")
                written = self.theirs(f"exported-{family}", AutoModelForMaskedLM)
                self.check_masks("snapshot.pt", written, tokenizer, text)
                self.check_masks(family, model, tokenizer, text)
                out = self.train(f"bert_config.init_from={family}", *UNCHANGED)
                self.assertIn("initialized at random: pooler and classifier", out)

    def test_a_masked_language_model_with_word_pieces_of_trainer_is_read_by_transformers(self):
        (self.folder / "text.txt").write_text("".join(line + "\n" for line, _ in texts(48)))
        self.trainer("tokenize", "--train", "wordpiece", "--vocab_size", 300, "--input", "text.txt", "--output", "vocabulary")
        self.train("task=masked_lm", "data_config.path=text.txt", "data_config.tokenizer=vocabulary", "bert_config.model_type=bert-tiny",
                   "data_config.train_split=0.9", "data_config.min_characters=5", "trainer_config.max_steps=3")
        self.trainer("export", "--snapshot", "snapshot.pt", "--format", "huggingface", "--output", "exported")
        self.check_masks("snapshot.pt", self.theirs("exported", AutoModelForMaskedLM),
                         AutoTokenizer.from_pretrained(self.folder / "exported"), "we [MASK] long, unbelievable [MASK]")
        self.assertEqual(sorted(path.name for path in (self.folder / "exported").iterdir()),
                         ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"])

    def test_a_smoothed_loss_is_that_of_torch(self):
        model = self.make("bert")
        self.train("bert_config.init_from=bert", "trainer_config.label_smoothing=0.1")
        self.check_losses(self.steps(model, "bert", smoothing=0.1), 1e-6)

    def test_what_changes_the_meaning_of_a_configuration_is_named(self):
        for family, changed, named in (
                ("roberta", {"hidden_act": "relu"}, "hidden_act is relu"), ("bert", {"is_decoder": True}, "is_decoder is true"),
                ("distilbert", {"activation": "relu"}, "activation is relu"),
                ("roberta", {"tie_word_embeddings": False}, "tie_word_embeddings is false"),
                ("distilbert", {"problem_type": "regression"}, "problem_type is regression of 3 numbers, not of 1")):
            with self.subTest(named):
                self.make(family, **changed)
                self.assertIn(named, self.train(f"bert_config.init_from={family}", code=2))
        self.make("bert")
        self.assertIn("family is bert there, distilbert here",
                      self.train("bert_config.init_from=bert", "bert_config.family=distilbert", code=2))


class Adapters(Families):
    def setUp(self):
        if not importlib.util.find_spec("peft"):
            self.skipTest("peft is not in .cache/peers: bash .ci/run setup")
        super().setUp()

    def adapted(self, model, family, **more):
        from peft import LoraConfig, get_peft_model
        torch.manual_seed(3)
        options = {"r": 4, "lora_alpha": 10, "target_modules": TARGETS[family], "modules_to_save": HEADS[family], **more}
        model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", **options))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name or "lora_embedding_A" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        return model

    def test_adapters_of_peft_are_continued_step_by_step_and_exported_again(self):
        from peft import PeftModel
        for family, more in (("bert", {}), ("roberta", {"use_rslora": True}), ("distilbert", {}), ("bert", {"target_modules": ["query", "word_embeddings"]})):
            with self.subTest(family, **more):
                model = self.adapted(self.make(family), family, **more)
                model.save_pretrained(self.folder / "adapter")
                start = (f"bert_config.init_from={family}", "lora.init_from=adapter")
                self.assertIn("LoRA: rank 4, alpha 10", self.train(*start, *UNCHANGED))
                self.check_predictions(model, family)
                self.train(*start)
                self.check_losses(self.steps(model, family))
                self.check_predictions(model, family)
                self.trainer("export", "--snapshot", "snapshot.pt", "--format", "peft", "--output", "ours")
                read = PeftModel.from_pretrained(self.theirs(family), self.folder / "ours")
                self.check_predictions(read, family)
                self.trainer("export", "--snapshot", "snapshot.pt", "--merge", "--output", "merged")
                self.check_predictions(self.theirs("merged"), family)

    def test_virtual_tokens_of_peft_are_continued_step_by_step_and_exported_again(self):
        from peft import PeftModel, PromptTuningConfig, get_peft_model
        for family in FAMILIES:
            with self.subTest(family):
                self.make(family)
                torch.manual_seed(3)
                model = get_peft_model(self.theirs(family), PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2, token_dim=32, num_attention_heads=4,
                                                                                    modules_to_save=HEADS[family][:]))
                model.save_pretrained(self.folder / "prompt")
                start = (f"bert_config.init_from={family}", "prompt_tuning.init_from=prompt")
                self.assertIn("Prompt tuning: 2 virtual tokens, from ", self.train(*start, *UNCHANGED))
                self.check_predictions(model, family)
                self.train(*start, "trainer_config.max_steps=4")
                self.trainer("--config", "config.yaml", *start)  # resumes
                theirs = self.steps(model, family)
                self.assertGreater(theirs[0] - theirs[-1], 0.01)  # they learn
                self.check_losses(theirs)
                self.check_predictions(model, family)
                resumed = (self.folder / "snapshot.pt").read_bytes()
                self.train(*start)
                self.assertEqual(load_file(self.folder / "snapshot.pt").keys(), load(resumed).keys())
                for name, tensor in load(resumed).items():
                    self.assertTrue(torch.equal(load_file(self.folder / "snapshot.pt")[name], tensor), name)
                self.trainer("export", "--snapshot", "snapshot.pt", "--format", "peft", "--output", "ours")
                self.check_predictions(PeftModel.from_pretrained(self.theirs(family), self.folder / "ours"), family)

    def test_virtual_tokens_in_front_of_an_encoder_without_a_head_are_read_by_peft(self):
        from peft import PeftModel
        self.make("bert", "ForMaskedLM")
        start = ("bert_config.init_from=bert", "prompt_tuning.tokens=3", "prompt_tuning.text=a lovely film")
        self.train(*start)
        self.assertLess(self.losses()[-1], self.losses()[0])
        self.trainer("export", "--snapshot", "snapshot.pt", "--format", "peft", "--output", "ours")
        base = AutoModelForSequenceClassification.from_pretrained(self.folder / "bert", num_labels=3)
        self.check_predictions(PeftModel.from_pretrained(base, self.folder / "ours"), "bert")
        self.assertIn("after prompt_tuning.tokens=9", self.train("bert_config.init_from=bert", "prompt_tuning.tokens=9", code=2))
        self.assertIn("virtual tokens need a pretrained model; set bert_config.init_from", self.train("prompt_tuning.tokens=2", code=2))

    def test_all_linear_layers_take_adapters_that_peft_reads_on_an_encoder_without_a_head(self):
        from peft import PeftModel
        for family in FAMILIES:
            with self.subTest(family):
                self.make(family, "ForMaskedLM")
                self.train(f"bert_config.init_from={family}", "lora.rank=4", "lora.targets=all-linear")
                self.trainer("export", "--snapshot", "snapshot.pt", "--format", "peft", "--output", "ours")
                base = AutoModelForSequenceClassification.from_pretrained(self.folder / family, num_labels=3)
                self.check_predictions(PeftModel.from_pretrained(base, self.folder / "ours"), family)

    def test_adapters_that_compute_something_else_are_named(self):
        self.make("bert")
        for more, named in (({"use_dora": True}, "use_dora is true"), ({"rank_pattern": {"query": 2}}, "rank_pattern is"),
                            ({"bias": "all"}, "bias is all"), ({"ensure_weight_tying": True}, "ensure_weight_tying is true"), ({"init_lora_weights": "pissa"}, "init_lora_weights is pissa")):
            with self.subTest(named):
                self.adapted(self.theirs("bert"), "bert", **more).save_pretrained(self.folder / "adapter")
                message = self.train("bert_config.init_from=bert", "lora.init_from=adapter", code=2)
                self.assertIn(named, message)
                self.assertEqual(len(message.strip().splitlines()), 1)
        # Layers trained whole, which this task does not train.
        (self.folder / "text.txt").write_text("".join(line + "\n" for line, _ in texts(48)))
        self.adapted(self.theirs("bert"), "bert").save_pretrained(self.folder / "adapter")
        message = self.train("task=masked_lm", "data_config.path=text.txt", "bert_config.init_from=bert", "lora.init_from=adapter", code=2)
        self.assertRegex(message, r"lora.init_from=adapter: .*modules_to_save is .classifier, pooler, score.: layers trained in full.*start from that folder")
        for targets in ("[position_embeddings]", "[classifier]"):
            message = self.train("bert_config.init_from=bert", "lora.rank=4", f"lora.targets={targets}", code=2)
            self.assertIn("matches no layer that takes adapters", message)
            self.assertIn("word_embeddings, query, key, value, dense", message)

    def test_a_masked_language_model_learns_by_adapters(self):
        from peft import PeftModel
        (self.folder / "text.txt").write_text("".join(line + "\n" for line, _ in texts(48)))
        for family in FAMILIES:
            with self.subTest(family):
                self.make(family, "ForMaskedLM")
                self.train("task=masked_lm", "data_config.path=text.txt", f"bert_config.init_from={family}", "lora.rank=4",
                           "data_config.train_split=0.9", "data_config.min_characters=5", "lora.targets=[word_embeddings, 'attention*']")
                self.assertIn("the output layer of a masked", self.trainer("export", "--snapshot", "snapshot.pt", "--merge", "--output", "merged", code=2))
                self.trainer("export", "--snapshot", "snapshot.pt", "--format", "peft", "--output", "ours")
                tokenizer = AutoTokenizer.from_pretrained(self.folder / family)
                read = PeftModel.from_pretrained(self.theirs(family, AutoModelForMaskedLM), self.folder / "ours")
                self.check_masks("snapshot.pt", read, tokenizer, f"we ate {tokenizer.mask_token}, red bread")


if __name__ == "__main__":
    unittest.main()
