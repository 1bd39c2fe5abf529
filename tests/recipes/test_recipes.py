"""Every file in configs/ says what it is for and what it reached, and takes two steps on data that stand in for its own."""

import json
import re
import struct
import unittest

from support import CORPUS, ROOT, RecipeTest

# Each kind of task and model is planned in tests/e2e/plan_test.cc.
LONG = {"Recipes.test_each_recipe_is_planned"}
RECIPES = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
SHORT = ["trainer_config.max_steps=2", "optimizer_config.warmup_steps=1", "trainer_config.eval_iters=1",
         "trainer_config.device=cpu"]
# Smaller where the recipe is meant for more than a test's machine; everything else is as in the file.
STAND_INS = {
    "gpt2_train_cfg.yaml": ["data_config.path=text.txt", "data_config.truncate=0.1", "trainer_config.batch_size=2"],
    "quickstart.yaml": ["data_config.path=text.txt"],
    "shakespeare_char.yaml": ["data_config.path=text.txt"],
    "llama_char.yaml": ["data_config.path=text.txt"],
    "wikitext2_bpe.yaml": ["data_config.path=tokens", "data_config.eval_path=tokens"],
    "gpt2_124m.yaml": ["data_config.path=tokens", "data_config.eval_path=tokens", "gpt_config.model_type=gpt-nano",
                       "data_config.block_size=64", "trainer_config.batch_size=2", "trainer_config.global_batch_size=4"],
    "masked_lm.yaml": ["data_config.path=text.txt", "data_config.eval_path=text.txt", "data_config.test_path=text.txt",
                       "data_config.tokenizer=wordpieces", "data_config.min_characters=10", "data_config.block_size=64",
                       "trainer_config.batch_size=2", "trainer_config.global_batch_size=4"],
    "text_classification.yaml": ["data_config.path=texts.csv", "data_config.tokenizer=wordpieces", "data_config.block_size=32",
                                 "trainer_config.batch_size=2", "trainer_config.global_batch_size=4"],
    "digits.yaml": ["data_config.path=digits-images", "data_config.eval_path=digits-images", "trainer_config.batch_size=4"],
    "chat.yaml": [],
    "finetune_chat.yaml": ["init_from=chats", "data_config.path=data/chat/eval.jsonl", "data_config.block_size=128"],
    "preference.yaml": ["init_from=chats", "data_config.path=pairs.jsonl", "data_config.block_size=128", "trainer_config.batch_size=2",
                        "trainer_config.grad_accumulation_steps=2"],
    "qlora.yaml": ["init_from=chats", "data_config.path=data/chat/train.jsonl", "data_config.block_size=128", "trainer_config.grad_accumulation_steps=2"],
    "finetune.yaml": ["data_config.path=text.txt", "init_from=pretrained"],
}
GPT2_WITHOUT_TOKENS = 124_439_808 - 50_257 * 768


class Recipes(RecipeTest):
    def prepare(self):
        self.write("text.txt", CORPUS[:20_000])
        self.write("texts.csv", "text,label\n" + "".join(f"{'so' if i % 2 else 'not'} good,{i % 2}\n" for i in range(40)))
        self.write("pairs.jsonl", "".join(json.dumps({"prompt": [{"role": "user", "content": f"What is {i} + 1?"}], "chosen": f"{i + 1}", "rejected": f"{i}"}) + "\n"
                                          for i in range(40)))
        self.write("digits-images", b"\0\0\x08\x03" + struct.pack(">3I", 8, 8, 8) + bytes(range(256)) * 2)
        self.write("digits-labels", b"\0\0\x08\x01" + struct.pack(">I", 8) + bytes(range(8)))
        self.trainer("tokenize", "--tokenizer", "bpe", "--train", "--vocab_size", "300", "--input", "text.txt",
                     "--output", "tokens")
        self.trainer("tokenize", "--tokenizer", "wordpiece", "--train", "--vocab_size", "300", "--input", "text.txt",
                     "--output", "wordpieces")

    def train(self, recipe):
        return self.trainer("--config", f"configs/{recipe}", *STAND_INS[recipe], *SHORT, f"hydra.run.dir=runs/{recipe}",
                            f"trainer_config.snapshot_path=runs/{recipe}/snapshot.pt")

    def pretrain(self):
        done = self.run_command("python3", str(ROOT / "scripts/make_conversations.py"), "data/chat")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.train("chat.yaml")
        self.trainer("export", "--snapshot", "runs/chat.yaml/snapshot.pt", "--output", "chats")
        self.train("wikitext2_bpe.yaml")
        self.trainer("export", "--snapshot", "runs/wikitext2_bpe.yaml/snapshot.pt", "--output", "pretrained")

    def test_each_recipe_is_estimated_and_takes_two_steps(self):
        self.assertEqual(sorted(STAND_INS), RECIPES, "each recipe needs a stand-in for its data here")
        self.prepare()
        self.pretrain()
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                estimate = self.trainer("estimate", "--config", f"configs/{recipe}", *STAND_INS[recipe], "--json")
                self.assertGreater(json.loads(estimate)["steps_per_epoch"], 0)
                if recipe not in ("wikitext2_bpe.yaml", "chat.yaml"):  # those have run
                    self.train(recipe)
                self.assertEqual([record["step"] for record in self.evaluations(f"runs/{recipe}")], [2])
        # What the recipe's head adds for a GPT-2.
        more = re.search("For a GPT-2 add: (.*)", (ROOT / "configs/qlora.yaml").read_text())[1].split()
        self.trainer("--config", "configs/qlora.yaml", *more, "init_from=pretrained", "data_config.format=text", "data_config.path=text.txt",
                     "data_config.block_size=64", *SHORT)
        # A pretrained model of another size than the recipe's.
        sizes = ["bert_config.n_layer=1", "bert_config.n_head=2", "bert_config.n_embd=32", "hydra.run.dir=runs/small"]
        masked = ["--config", "configs/masked_lm.yaml", *STAND_INS["masked_lm.yaml"]]
        self.trainer(*masked, *SHORT, *sizes)
        self.trainer("estimate", *masked, "bert_config.init_from=runs/small/snapshot.pt")
        estimate = json.loads(self.trainer("estimate", "--config", "configs/gpt2_124m.yaml", "data_config.path=tokens",
                                           "data_config.eval_path=null", "--json"))
        parameters = estimate["parameters"]
        self.assertEqual(parameters["total"] - parameters["token_embedding"], GPT2_WITHOUT_TOKENS)

    def test_each_recipe_is_planned(self):
        self.prepare()
        self.pretrain()
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                plan = self.trainer("plan", "--config", f"configs/{recipe}", *STAND_INS[recipe], "--gpus", "2", "--memory", "80",
                                    "--json")
                self.assertTrue(json.loads(plan)["choice"]["fits"])

    def test_each_recipe_says_what_it_reached(self):
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                header = (ROOT / "configs" / recipe).read_text().split("\n\n")[0]
                for part in ("trainer --config configs/" + recipe, "\n# Result: ", r"commit\W+[0-9a-f]{7}\b"):
                    self.assertRegex(header, part)


if __name__ == "__main__":
    unittest.main()
