"""Parquet and Arrow tables of texts, as pyarrow writes them, next to the same documents in files of tokens."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DDP_RUN, PATIENCE, ROOT

try:
    import pyarrow
    from pyarrow import feather, ipc, parquet
    from safetensors.numpy import load_file
except ImportError as error:
    print(f"[skipped] all of it: no {error.name} in this Python (./scripts/setup.sh --test)")
    sys.exit(0)

TRAINER = Path(os.environ.get("DDP_TRAINER", DDP_RUN.parent / "trainer"))
CORPUS = (ROOT / "data/sample_corpus.txt").read_text()
DOCUMENTS = [CORPUS[i * 150:i * 150 + 20 + i * 7 % 130] for i in range(60)] + ["naïve é \U0001f600 text"]
CONFIG = """data_config: {block_size: 32, train_split: 0.9, stride: 32, tokenizer: byte}
gpt_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 5, batch_size: 4, data_loader_workers: 0, snapshot_every: null}
hydra: {run: {dir: .}}
"""


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddp_tables_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "c.yaml").write_text(CONFIG)

    def run_trainer(self, *arguments, fails=False):
        done = subprocess.run([TRAINER, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode != 0, fails, done.stderr)
        return done.stderr if fails else done.stdout

    def weights(self, name, path, *more):
        self.run_trainer("--config", "c.yaml", f"data_config.path={path}", f"trainer_config.snapshot_path={name}.pt", *more)
        return {key: value.tobytes() for key, value in load_file(self.folder / f"{name}.pt").items()}

    def tokens(self):
        for i, document in enumerate(DOCUMENTS):
            (self.folder / f"d{i:03}.txt").write_text(document, encoding="utf-8")
        self.run_trainer("tokenize", "--tokenizer", "byte", "--append_end_of_text", "--output", "tokens", "--input",
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
        out = self.run_trainer("--config", "c.yaml", "data_config.sources=[{path: a.parquet, weight: 2}, {path: b.txt}]",
                               "data_config.eval_sets={again: a.parquet}", "data_config.mask_documents=true")
        self.assertIn("a.parquet: ", out)
        self.assertRegex(out, r"again_loss \d")

    def test_a_table_that_cannot_be_read_is_refused_in_one_line(self):
        parquet.write_table(self.table(column="story"), self.folder / "named.parquet")
        parquet.write_table(pyarrow.table({"text": [1, 2]}), self.folder / "numbers.parquet")
        (self.folder / "damaged.parquet").write_bytes((self.folder / "named.parquet").read_bytes()[:-9])
        (self.folder / "no.arrow").write_bytes(b"text")
        for name, what in (("named.parquet", r"has no column 'text', or several; its columns are id, story; set text_column to one"),
                           ("numbers.parquet", "column 'text' is of type int64, not string"), ("damaged.parquet", ""), ("no.arrow", "")):
            with self.subTest(name=name):
                error = self.run_trainer("--config", "c.yaml", f"data_config.path={name}", fails=True)
                self.assertRegex(error, rf"^error: data_config\.path: .*{name}: .*{what}")
                self.assertEqual(error.count("\n"), 1, error)


if __name__ == "__main__":
    unittest.main()
