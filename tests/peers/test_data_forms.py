"""The table of docs/fine-tune.md: each form of data that people bring, with what the page writes for it."""

import json
import math
import os
import pty
import re
import subprocess
import sys
import unittest
from datetime import date

from support import ROOT, TRAINER, TrainerTest

PAGE = ROOT / "docs/fine-tune.md"
TURNS = [("user", "What is 2 + 3?"), ("assistant", "2 + 3 is 5.")]
CHAT = [{"messages": [{"role": role, "content": text} for role, text in TURNS]}] * 3
PARTS = [{"messages": [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in TURNS]}]
SHAREGPT = [{"conversations": [{"from": {"user": "human", "assistant": "gpt"}[role], "value": text} for role, text in TURNS]}] * 3
ALPACA = [{"instruction": "What is 2 + 3?", "input": "", "output": "2 + 3 is 5."}] * 3
NESTED = [{"messages": [{"role": role, "content": text, "weight": 1 if role == "assistant" else None} for role, text in TURNS], "id": i, "score": 0.5,
           "source": {"name": "a \"b\"\n", "tags": ["x", None]}, "seen": date(2026, 1, 2)} for i in range(3)]
PROMPTS = [{"prompt": "What is 2 + 3?", "completion": "2 + 3 is 5."}, {"prompt": CHAT[0]["messages"][:1], "completion": CHAT[0]["messages"][1:]}] * 2
TEXTS = ["The old oak stands below the brook, and the wind is high.", "Anna baked \"bread\",\nand Karl looked on."] * 5


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(texts):
    return "id,body\n" + "".join(f'{i},"{text.replace(chr(34), chr(34) * 2)}"\n' for i, text in enumerate(texts))


def bodies(key):
    return [{"id": i, key: text} for i, text in enumerate(TEXTS)]


# By the first words of a row: the files that it needs.
FORMS = {
    "`messages`": {"my-chats.jsonl": lines(CHAT + PARTS)},
    "`conversations`": {"my-chats.jsonl": lines(SHAREGPT)},
    "`instruction`": {"my-chats.json": json.dumps(ALPACA, indent=2)},
    "`prompt`": {"my-chats.jsonl": lines(PROMPTS)},
    "conversations in a JSON array": {"my-chats.json": json.dumps(CHAT)},
    "conversations in Parquet": {"my-chats.parquet": NESTED},
    "a folder of conversations": {"my-data/train-0.parquet": NESTED[:1], "my-data/train-1.parquet": NESTED[1:]},
    "some rows": {"my-chats.jsonl": lines(CHAT) + "{\"messages\": [\n" + lines(CHAT)},
    "a text in each row": {"my-texts.jsonl": lines(bodies("text"))},
    "a text in each element": {"my-texts.json": json.dumps(bodies("body"), indent=1)},
    "a table": {"my-texts.csv": table(TEXTS)},
    "Parquet": {"my-texts.parquet": bodies("body")},
    "a folder of such": {"my-folder/1.jsonl": lines(bodies("body")[:3]), "my-folder/2.jsonl": lines(bodies("body")[3:])},
    "texts with": {"my-texts.jsonl": lines(bodies("text")) + "{\"id\": 7}\n"},
    "plain texts": {"my-folder/a.txt": "\n".join(TEXTS)},
}


class DataForms(TrainerTest):
    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, ROOT / "scripts/make_conversations.py", self.folder / "data/chat"], check=True)

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
            return
        import pyarrow
        from pyarrow import parquet
        parquet.write_table(pyarrow.Table.from_pylist(content), path, row_group_size=2)

    def show(self, options, config=None):
        config = config or ("chat" if "format=chat" in options else "quickstart")
        more = ["data_config.tokenizer=byte", "data_config.block_size=64"] if config == "quickstart" else []
        return self.trainer("data", "show", "--config", ROOT / f"configs/{config}.yaml", "--rows", "1", *more, *options.split())

    def test_every_row_of_the_page_shows_its_data(self):
        rows = re.findall(r"^\| (.+) \| `(data_config\.[^`]+)` \|$", PAGE.read_text(), re.MULTILINE)
        self.assertEqual(len(rows), len(FORMS))
        for have, options in rows:
            form = [name for name in FORMS if have.startswith(name)]
            self.assertEqual(len(form), 1, have)
            with self.subTest(have=have):
                if any(name.endswith(".parquet") for name in FORMS[form[0]]) and not list(TRAINER.parents[1].glob("lib/libtrainer_arrow.so")):
                    continue
                for path in self.folder.glob("my-*/*"):
                    path.unlink()
                for name, content in FORMS[form[0]].items():
                    self.write(name, content)
                out = self.show(options)
                if "format=chat" in options:
                    self.assertIn("<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n[[2 + 3 is 5.<|im_end|>]]\nTokens: ", out)
                else:
                    self.assertIn("T[[he old oak stands below the brook, and the wind is high.", out)
                    self.assertNotRegex(out, r"\"(text|body)\"|\bid,body\b")
                    if form[0] != "plain texts":
                        self.assertIn("Lengths: 10 training texts, in tokens: 49 on average, at most 58; ", out)
                        self.assertRegex(out, r"      32 to 63 +10  #{50}\n")
                if "skip" in options:
                    self.assertRegex(out, r"Left out: 1 unusable (row|conversation) left out; the first: .*my-\w+\.jsonl:(4|11): ")

    def test_the_forms_of_a_conversation_are_reported(self):
        self.write("my-chats.jsonl", lines(CHAT + SHAREGPT + ALPACA + PROMPTS))
        out = self.show("data_config.format=chat data_config.path=my-chats.jsonl")
        self.assertIn("Rows: conversations (ShareGPT) in 3 rows, instruction, input and output (Alpaca) in 3 rows, messages (OpenAI) in 43 rows, "
                      "prompt and completion in 4 rows\n", out)

    def test_the_tokens_that_end_rows_have_no_characters(self):
        texts = ["7 oaks", *TEXTS]  # the first token, 7, is not a target
        self.write("rows.jsonl", lines({"text": text} for text in texts))
        self.trainer("--config", ROOT / "configs/quickstart.yaml", "data_config.path=rows.jsonl", "data_config.tokenizer=data/chat", "hydra.run.dir=.",
                     "data_config.block_size=16", "trainer_config.batch_size=1", "trainer_config.max_steps=1")
        scores = json.loads(self.trainer("eval", "--snapshot", "snapshot.pt", "--data", "rows.jsonl", "--json"))
        self.assertEqual(round(scores["loss"] * scores["tokens"] / math.log(2) / scores["bits_per_character"]), len("".join(texts)) - 1)
        out = self.trainer("--config", ROOT / "configs/quickstart.yaml", "data_config.path=rows.jsonl", "hydra.run.dir=characters",
                           "data_config.block_size=16", "data_config.truncate=0.9", "trainer_config.batch_size=1", "trainer_config.max_steps=1")
        self.assertIn(f" of {len(''.join(texts)) + len(texts)} characters (data_config.truncate", out)  # a line end ends a row

    def test_on_a_terminal_targets_are_green_unless_NO_COLOR_is_set(self):
        self.write("my-chats.jsonl", lines(CHAT))
        command = [TRAINER, "data", "show", "--config", ROOT / "configs/chat.yaml", "data_config.path=my-chats.jsonl", "--rows", "1"]
        for setting, expected in (("", "\x1b[32m2 + 3 is 5.<|im_end|>\x1b[0m"), ("1", "[[2 + 3 is 5.<|im_end|>]]")):
            leader, follower = pty.openpty()
            with subprocess.Popen(list(map(str, command)), cwd=self.folder, stdout=follower, env={**os.environ, "NO_COLOR": setting}) as run:
                os.close(follower)
                out = b""
                while True:
                    try:
                        part = os.read(leader, 65536)
                    except OSError:  # the other end is closed
                        break
                    if not part:
                        break
                    out += part
            os.close(leader)
            self.assertEqual(run.returncode, 0)
            self.assertIn(expected, out.decode())

    def test_masked_lines_and_classes_are_shown_as_well(self):
        words = "[PAD] [UNK] [CLS] [SEP] [MASK] the old oak stands below brook and wind is high anna baked bread karl looked on . , \""
        self.write("vocab.txt", "\n".join(words.split()) + "\n")
        self.write("rows.jsonl", lines(bodies("story")))
        self.write("lines.txt", "\n".join(text.replace("\n", " ") for text in TEXTS))
        masked = "data_config.tokenizer=vocab.txt data_config.block_size=32 ~data_config.eval_path ~data_config.test_path data_config.min_characters=0 "
        of_rows = self.show(masked + "data_config.path=rows.jsonl data_config.text_column=story", "masked_lm")
        of_lines = self.show(masked + "data_config.path=lines.txt", "masked_lm")
        self.assertRegex(of_rows, r"\[\[\[MASK\]=[a-z]+")
        self.assertEqual(of_rows.split("Data: ")[0], of_lines.split("Data: ")[0])
        self.write("reviews.json", json.dumps([{"text": text, "label": "good" if i % 2 else "bad"} for i, text in enumerate(TEXTS)]))
        out = self.show("data_config.path=reviews.json data_config.tokenizer=vocab.txt bert_config.init_from=null", "text_classification")
        self.assertRegex(out, r"tokens; label: (good \(1\)|bad \(0\))\n\[CLS\] \S+ \S+ ")


if __name__ == "__main__":
    unittest.main()
