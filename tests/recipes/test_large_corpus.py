"""A corpus of 5 GB of rows takes no more memory than a small one: trainer tokenize, and the start of a training that reads rows.

DDP_CORPUS_BYTES in the environment: another size.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAINER = Path(os.environ.get("DDP_TRAINER", ROOT / "build/release/bin/trainer"))
BYTES = int(os.environ.get("DDP_CORPUS_BYTES", "5_000_000_000"))
SMALL_BYTES = 100_000_000
MORE = 64 << 20  # allowed on top of the small corpus: the allocator's, and pages of files that happen to be mapped
CONFIG = """data_config: {block_size: 128, stride: 128, train_split: 0.999, tokenizer: data/chat}
gpt_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 2, batch_size: 4, data_loader_workers: 1, device: cpu}
hydra: {run: {dir: run}}
"""
MASKED = """task: masked_lm
data_config: {path: rows.jsonl, block_size: 32, train_split: 0.999, tokenizer: words}
bert_config: {n_layer: 1, n_head: 2, n_embd: 16}
trainer_config: {max_steps: 2, batch_size: 4, data_loader_workers: 1, device: cpu}
hydra: {run: {dir: run}}
"""
FOLDER = Path(os.environ.get("DDP_CORPUS_FOLDER", ROOT / "build"))  # a disk: /tmp may be memory
if shutil.disk_usage(FOLDER).free < 2.5 * BYTES:
    print("[skipped] all of it: too little disk space for a corpus of 5 GB and its tokens")
    sys.exit(0)


class LargeCorpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="large_corpus_", dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        subprocess.run([sys.executable, ROOT / "scripts/make_conversations.py", self.folder / "data/chat"], check=True)
        (self.folder / "c.yaml").write_text(CONFIG)
        (self.folder / "masked.yaml").write_text(MASKED)
        subprocess.run([TRAINER, "tokenize", "--tokenizer", "wordpiece", "--train", "--vocab_size", "2000", "--input",
                        ROOT / "data/sample_corpus.txt", "--output", self.folder / "words"], check=True, capture_output=True)

    def write_rows(self, size):
        """The same texts again and again, each with words that no other row has: a cache of words would grow."""
        draw = random.Random(1)
        texts = (ROOT / "data/sample_corpus.txt").read_text()
        parts = [json.dumps(texts[i * 400:i * 400 + 2000])[1:-1] for i in range(64)]
        with open(self.folder / "rows.jsonl", "w") as file:
            written = row = 0
            while written < size:
                written += file.write(f'{{"text": "{draw.getrandbits(64):x} {parts[row % len(parts)]}"}}\n')
                row += 1

    def peak(self, *arguments):
        """The peak resident memory of a trainer, in bytes."""
        log = self.folder / "log"
        with open(log, "wb") as out:
            process = subprocess.Popen([TRAINER, *map(str, arguments)], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT,
                                       env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)})
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, log.read_text())
        return usage.ru_maxrss * 1024

    def peaks(self, size):
        self.write_rows(size)
        peaks = {"tokenize": self.peak("tokenize", "--tokenizer", "data/chat", "--input", "rows.jsonl", "--output", "tokens"),
                 "tokens": self.peak("--config", "c.yaml", "data_config.path=tokens"),
                 "rows": self.peak("--config", "c.yaml", "data_config.path=rows.jsonl"),
                 "lines": self.peak("--config", "masked.yaml", "hydra.run.dir=masked")}
        for name in ("tokens", "run", "masked"):
            shutil.rmtree(self.folder / name)
        print(f"{size / 1e9:g} GB:", ", ".join(f"{name} {peak / 1e6:.0f} MB" for name, peak in peaks.items()))
        return peaks

    def test_peak_memory_does_not_grow_with_the_corpus(self):
        small = self.peaks(SMALL_BYTES)
        large = self.peaks(BYTES)
        for name, peak in large.items():
            self.assertLess(peak, small[name] + MORE, name)


if __name__ == "__main__":
    unittest.main()
