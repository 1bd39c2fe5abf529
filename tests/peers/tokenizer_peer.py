"""What the peers of the tokenizers share: Python's `tokenizers`, the probe, texts, and the tests of every kind.

DDP_TOKENIZER_PROBE names the probe (default: build/dev/bin/ddp_tokenizer_probe), DDP_PEER_PYTHON a Python with
`tokenizers` (default: .venv). WikiText-2 is taken from DDP_TEST_TEXTS (default: ../shared/data) where it is there.
"""

import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT, need_here

PROBE = os.environ.get("DDP_TOKENIZER_PROBE", str(ROOT / "build/dev/bin/ddp_tokenizer_probe"))
TEXTS = Path(os.environ.get("DDP_TEST_TEXTS", ROOT.parent / "shared/data"))

need_here("tokenizers")
import tokenizers

CORPUS = (ROOT / "data/sample_corpus.txt").read_text()


def wikitext():
    files = [path for path in (TEXTS / "wikitext2-valid.txt", TEXTS / "wikitext2-test.txt") if path.exists()]
    if not files:
        raise unittest.SkipTest(f"no wikitext2-valid.txt in {TEXTS}")
    return [path.read_text() for path in files]


def probe(*arguments, text=b""):
    data = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([PROBE, *map(str, arguments)], input=data, capture_output=True, timeout=300, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def ours(folder, text):
    return list(memoryview(probe("encode", folder, text=text)).cast("i"))


def random_text(rng, length, pools, repeats):
    """Of all scripts, from the pools, and with what is not assigned yet."""
    out = []
    for _ in range(length):
        if rng.random() < 0.1:
            point = rng.randrange(0x110000 if rng.random() < 0.5 else 0x20000)
            out.append("x" if 0xD800 <= point < 0xE000 else chr(point))
        else:
            out.append(rng.choice(rng.choice(pools)) * rng.choice(repeats))
    return "".join(out)


class TokenizerPeer:
    """Tests of every kind of tokenizer. A class that has them gives AWKWARD texts, random_text() and new_peer()."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.peer = cls.new_peer()
        cls.peer.save(str(cls.folder / "tokenizer.json"))

    def same(self, text, peer=None, path=None):
        wanted = (peer or self.peer).encode(text, add_special_tokens=False).ids
        self.assertEqual(ours(path or self.folder, text), wanted, f"text: {text[:80]!r}")
        return wanted

    def test_the_same_tokens_for_awkward_texts(self):
        for text in self.AWKWARD:
            with self.subTest(text=text[:20]):
                self.same(text)

    def test_the_same_tokens_for_random_texts_of_all_scripts(self):
        rng = random.Random(2)
        for _ in range(5):
            self.same(self.random_text(rng, 20000))

    def test_the_same_tokens_for_wikitext(self):
        for text in wikitext():
            self.assertGreater(len(self.same(text)), 100_000)
