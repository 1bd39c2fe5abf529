"""Parquet and Arrow tables of texts, as pyarrow writes them, next to the same documents in files of tokens."""

import json
import subprocess
import sys
import unittest

from support import ROOT, TrainerTest

try:
    import pyarrow
    from pyarrow import feather, ipc, parquet
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"[skipped] all of it: no {error.name} in this Python (./scripts/setup.sh --test)")
    sys.exit(0)

CORPUS = (ROOT / "data/sample_corpus.txt").read_text()
DOCUMENTS = [CORPUS[i * 150:i * 150 + 20 + i * 7 % 130] for i in range(60)] + ["naïve é \U0001f600 text"]
CONFIG = """data_config: {block_size: 32, train_split: 0.9, stride: 32, tokenizer: byte}
gpt_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 5, batch_size: 4, data_loader_workers: 0, snapshot_every: null}
hydra: {run: {dir: .}}
"""


class Tables(TrainerTest):
    def setUp(self):
        super().setUp()
        (self.folder / "c.yaml").write_text(CONFIG)

    def weights(self, name, path, *more):
        self.trainer("--config", "c.yaml", f"data_config.path={path}", f"trainer_config.snapshot_path={name}.pt", *more)
        return {key: value.tobytes() for key, value in load_file(self.folder / f"{name}.pt").items()}

    def tokens(self):
        for i, document in enumerate(DOCUMENTS):
            (self.folder / f"d{i:03}.txt").write_text(document, encoding="utf-8")
        self.trainer("tokenize", "--tokenizer", "byte", "--append_end_of_text", "--output", "tokens", "--input",
                         *(f"d{i:03}.txt" for i in range(len(DOCUMENTS))))

    def table(self, kind=None, column="text"):
        return pyarrow.table({"id": list(range(len(DOCUMENTS) + 1)), column: pyarrow.array([None, *DOCUMENTS], type=kind)})

    def test_tables_train_as_the_same_documents_in_files_of_tokens(self):
        self.tokens()
        expected = self.weights("tokens", "tokens")
        (self.folder / "many").mkdir()
        for i, part in enumerate((self.table().slice(0, 20), self.table().slice(20))):
            parquet.write_table(part, self.folder / f"many/{i}.parquet")
        parquet.write_table(self.table(pyarrow.large_string()), self.folder / "a.parquet", row_group_size=7, compression="zstd")
        parquet.write_table(self.table(column="story"), self.folder / "b.parquet", use_dictionary=True, compression="snappy")
        feather.write_feather(self.table(), self.folder / "c.feather", compression="lz4", chunksize=9)
        with ipc.new_file(self.folder / "d.arrow", self.table().schema) as writer:
            writer.write_table(self.table(), max_chunksize=11)
        for name, more in (("many", []), ("a.parquet", []), ("b.parquet", ["data_config.text_column=story"]), ("c.feather", []),
                           ("d.arrow", []), ("many/*.parquet", ["data_config.mask_documents=false"])):
            with self.subTest(name=name):
                self.assertEqual(self.weights(name.replace("/", "_").replace("*", "all"), name, *more), expected)

    def test_a_table_is_a_source_and_an_evaluation_set_like_any_other_file(self):
        parquet.write_table(self.table(), self.folder / "a.parquet")
        (self.folder / "b.txt").write_text(CORPUS[:3000])
        out = self.trainer("--config", "c.yaml", "data_config.sources=[{path: a.parquet, weight: 2}, {path: b.txt}]",
                               "data_config.eval_sets={again: a.parquet}", "data_config.mask_documents=true")
        self.assertIn("a.parquet: ", out)
        self.assertRegex(out, r"again_loss \d")

    def shown(self, name, config, *more):
        out = self.trainer("data", "show", "--config", ROOT / "configs" / f"{config}.yaml", f"data_config.path={name}", "--rows", "5", *more)
        return out.replace(name, "FILE")

    def write_rows(self, rows):
        """The same rows in files of each format, of which the first is JSON lines. Returns their names."""
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = pyarrow.Table.from_pylist(rows)
        parquet.write_table(table, self.folder / "rows.parquet", row_group_size=3)
        feather.write_feather(table, self.folder / "rows.feather", chunksize=2)
        with ipc.new_stream(self.folder / "rows.arrow", table.schema) as writer:  # as datasets' save_to_disk()
            writer.write_table(table, max_chunksize=4)
        return ["rows.jsonl", "rows.parquet", "rows.feather", "rows.arrow"]

    def test_rows_of_nested_columns_are_those_of_JSON_lines(self):
        subprocess.run([sys.executable, ROOT / "scripts/make_conversations.py", self.folder / "data/chat"], check=True)
        texts = ["2 + 2 is \"4\"?\n\t\\", "naïve \U0001f600 \x01", "", "c"]
        forms = [[{"messages": [{"role": "user", "content": text, "name": None}, {"role": "assistant", "content": f"<{text}>", "weight": 1}],
                   "score": 1.5, "nan": None, "tags": [], "meta": {"n": i, "ok": True}} for i, text in enumerate(texts)],
                 [{"conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": "b"}]} for text in texts],
                 [{"prompt": text, "completion": "b", "messages": None} for text in texts],
                 [{"instruction": text + "a", "input": text, "output": "b", "history": [["c", "d"]]} for text in texts]]
        for i, rows in enumerate(forms):
            first, *tables = self.write_rows(rows)
            expected, *others = [self.shown(name, "chat") for name in (first, *(tables if i == 0 else [tables[i % 3]]))]
            self.assertIn("[[b", expected) if rows is not forms[0] else self.assertIn("[[<c>", expected)
            for out in others:
                self.assertEqual(out, expected)

    def test_labels_and_their_texts_are_read_from_tables(self):
        words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a the"
        (self.folder / "vocab.txt").write_text("\n".join(words.split()) + "\n")
        rows = [{"text": ["a good film", "the bad film"][i % 2], "label": i % 2, "id": i} for i in range(10)]
        names = self.write_rows(rows)
        more = ["data_config.tokenizer=vocab.txt", "bert_config.init_from=null", "data_config.block_size=16"]
        self.assertEqual(len({self.shown(name, "text_classification", *more) for name in names}), 1)

    def test_a_row_of_a_table_is_refused_or_left_out_by_its_number(self):
        subprocess.run([sys.executable, ROOT / "scripts/make_conversations.py", self.folder / "data/chat"], check=True)
        rows = [{"prompt": "a", "completion": "b"}, {"prompt": "a", "completion": None}, {"prompt": "c", "completion": "d"}] * 1000
        parquet.write_table(pyarrow.Table.from_pylist(rows), self.folder / "a.parquet", row_group_size=1000)
        show = ["data", "show", "--config", ROOT / "configs/chat.yaml", "data_config.path=a.parquet"]
        self.assertRegex(self.trainer(*show, code=2), r"a\.parquet:2: .*'prompt' and 'completion'")
        self.assertIn("1000 unusable conversations left out; the first: ", self.trainer(*show, "data_config.on_bad_sample=skip"))
        data = bytearray((self.folder / "a.parquet").read_bytes())
        middle = parquet.ParquetFile(self.folder / "a.parquet").metadata.row_group(2).column(1).data_page_offset
        data[middle:middle + 12] = b"\xff" * 12
        (self.folder / "a.parquet").write_bytes(data)
        self.assertIn("no row from there on can be read", self.trainer(*show, "data_config.on_bad_sample=skip", code=2))

    def test_a_text_that_is_not_UTF8_or_unknown_is_named_by_its_row(self):
        texts = pyarrow.array([b"text"] * 2500 + [b"\xff"] + [b"text"] * 500, type=pyarrow.binary())
        bad = pyarrow.StringArray.from_buffers(len(texts), *texts.buffers()[1:])
        parquet.write_table(pyarrow.table({"text": bad}), self.folder / "a.parquet")
        feather.write_feather(pyarrow.table({"text": bad}), self.folder / "a.feather")
        for name in ("a.parquet", "a.feather"):
            self.assertRegex(self.trainer("--config", "c.yaml", f"data_config.path={name}", code=2),
                             rf"^error: data_config\.path: .*{name}: row 2501: .*Invalid UTF8 sequence\n$")
        parquet.write_table(pyarrow.table({"text": ["text", None, "", "other"]}), self.folder / "b.parquet")
        (self.folder / "text.txt").write_text("text\n" * 100)
        self.assertRegex(self.trainer("--config", "c.yaml", "data_config.path=text.txt", "data_config.tokenizer=char",
                                          "data_config.eval_path=b.parquet", code=2), r"b\.parquet:4: ")

    def test_a_table_that_cannot_be_read_is_refused_in_one_line(self):
        parquet.write_table(self.table(column="story"), self.folder / "named.parquet")
        parquet.write_table(pyarrow.table({"text": [1, 2]}), self.folder / "numbers.parquet")
        (self.folder / "damaged.parquet").write_bytes((self.folder / "named.parquet").read_bytes()[:-9])
        (self.folder / "no.arrow").write_bytes(b"text")
        for name, what in (("named.parquet", r"has no column 'text', or several; its columns are id, story; set text_column to one"),
                           ("numbers.parquet", "column 'text' is of type int64, not string"), ("damaged.parquet", ""), ("no.arrow", "")):
            with self.subTest(name=name):
                error = self.trainer("--config", "c.yaml", f"data_config.path={name}", code=2)
                self.assertRegex(error, rf"^error: data_config\.path: .*{name}: .*{what}")
                self.assertEqual(error.count("\n"), 1, error)


if __name__ == "__main__":
    unittest.main()
