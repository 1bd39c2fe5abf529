"""The tokenizers beside Python's `tokenizers` and `tiktoken`: the same tokens for any text, vocabularies trained alike."""

import json
import os
import random
import tempfile
import time
import unittest
from pathlib import Path

import tokenizer_peer
from tokenizer_peer import CORPUS, TokenizerPeer, ours, probe, wikitext, tokenizers

try:
    import tiktoken
except ImportError:
    tiktoken = None

END = "<|endoftext|>"
POOLS = ["'s't're've'm'll'd'S'LL ' ''", " \t\n\r\x0b\x0c\x1c\x1d\x85\xa0\u2003\u2028\u3000\u200b\u180e", "0123\u00b2\u00bd\u0663\u2167\u3007",
         "aZ\u00e9\u00df\u0416\u05d0\u0639\u4e2d\u3042\uac00\U0001d54f", ".,!?-_#\u20ac\u2019\u3002", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u2764\ufe0f\U0001f1e9"]
AWKWARD = ["", " ", "  ", "\n", " \n", "\n ", "a", " a", "  a", "a ", "a  b", "a \n b", "\t\ta", "''s", "'s's", "x's y'll we're", "I'VE'd", "''''ll",
           "a\u00a0b", "\u3000\u3000a", "\u0085a", "e\u0301", "1\u00b2\u00bd", "\x00\x00a\x00", "\x1c\x1da", "naïve café", "日本語のテキスト、です。", "مرحبا بالعالم ١٢٣",
           "👨‍👩‍👧‍👦 👍🏽 🇩🇪❤️", f"a{END}b", f"{END}{END} x", "<|endoftext", "endoftext|>", f"<|{END}|>", "a" * 20000, " " * 20000, "ab" * 9999 + "c", "\n" * 999 + "x",
           "=" * 5000, "1234567890" * 700, "é" * 3000, "\U0010ffff\ufffe\ufdd0"]


def new_peer(prefix_space=False):
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    peer.decoder = tokenizers.decoders.ByteLevel()
    return peer


def trained_peer(text, size, prefix_space=False):
    peer = new_peer(prefix_space)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    peer.train_from_iterator([text], trainer)
    return peer


def random_text(rng, length):
    return tokenizer_peer.random_text(rng, length, POOLS, (1, 1, 1, 2, 5))


class Peers(TokenizerPeer, unittest.TestCase):
    AWKWARD = AWKWARD
    random_text = staticmethod(random_text)

    @classmethod
    def new_peer(cls):
        return trained_peer(CORPUS + random_text(random.Random(1), 20000), 3000)

    def test_the_same_tokens_for_random_bytes_read_as_text(self):
        data = random.Random(3).randbytes(200_000)
        self.same(data.decode("latin-1"))
        self.same(data.decode("utf-8", errors="replace"))

    def test_any_bytes_come_back(self):
        data = random.Random(4).randbytes(300_000) + b"\xff\xfe\xc3\xe2\x82" + "é€".encode() + b"\xf0\x9f\x98"
        self.assertEqual(probe("decode", self.folder, text=probe("encode", self.folder, text=data)), data)

    def test_wikitext_comes_back(self):
        for text in wikitext():
            data = probe("decode", self.folder, text=probe("encode", self.folder, text=text))
            self.assertEqual(data.decode(), text)

    def test_every_character_is_of_the_same_class(self):
        """What `tokenizers` and this trainer take for letter, number and space may differ by Unicode version."""
        points = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000]
        differing = [p for at in range(0, len(points), 0x1000) for p in differing_classes(points[at:at + 0x1000])]
        print(f"characters of another class than in tokenizers {tokenizers.__version__}: {len(differing)} "
              f"{[hex(p) for p in differing[:20]]}")
        self.assertEqual(differing, [])

    def test_vocab_and_merges_files_mean_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            self.peer.model.save(folder)
            for text in [*AWKWARD, CORPUS]:
                self.same(text, path=folder)

    def test_merges_as_lines_or_as_pairs(self):
        root = json.loads((self.folder / "tokenizer.json").read_text())
        root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_text(json.dumps(root))
            self.same(CORPUS, path=folder)

    def test_a_space_before_the_text(self):
        peer = trained_peer(CORPUS, 600, prefix_space=True)
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            for text in AWKWARD:
                self.same(text, peer, folder)

    def test_words_of_the_vocabulary_without_merging(self):
        root = json.loads((self.folder / "tokenizer.json").read_text())
        root["model"]["ignore_merges"] = True
        root["model"]["merges"] = root["model"]["merges"][:300]
        peer = tokenizers.Tokenizer.from_str(json.dumps(root))
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            self.same(CORPUS, peer, folder)

    def test_added_tokens_of_several_kinds(self):
        peer = tokenizers.Tokenizer.from_str(self.peer.to_str())
        peer.add_special_tokens(["<|a|>", "<|a|>b", "the"])
        peer.add_tokens([tokenizers.AddedToken("<|a", normalized=True), tokenizers.AddedToken("hen", normalized=False)])
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            for text in ("<|a|>b<|a|><|a", "then the hen there", f"x<|<|a|>{END}the", CORPUS[:50000]):
                self.same(text, peer, folder)

    def test_many_added_tokens_that_begin_alike(self):
        rng = random.Random(5)
        peer = tokenizers.Tokenizer.from_str(self.peer.to_str())
        parts = ["<", "a", "ab", "\u00e9", ">", "the"]
        texts = sorted({"".join(rng.choices(parts, k=rng.randint(2, 6))) for _ in range(3000)})
        peer.add_tokens([tokenizers.AddedToken(text, normalized=rng.random() < 0.3, lstrip=rng.random() < 0.1, rstrip=rng.random() < 0.1) for text in texts])
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            self.same("".join(rng.choices([*parts, " ", "x"], k=50_000)), peer, folder)


def differing_classes(points):
    """Each character between a letter, a number, spaces and a sign: where words end shows its class."""
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str

    def differ(text):
        return list(memoryview(probe("words", text=text)).cast("i")) != [len(word) for word, _ in split(text)]

    def text(point):
        return f"a{chr(point)}a1{chr(point)}1  {chr(point)}-{chr(point)}-\n"

    if not differ("".join(map(text, points))):
        return []
    return [point for point in points if differ(text(point))]


class Training(unittest.TestCase):
    def both(self, text, size):
        peer = json.loads(trained_peer(text, size).to_str())["model"]
        mine = json.loads(probe("train", size, text=text))["model"]
        self.assertEqual(mine["merges"], peer["merges"])
        self.assertEqual(mine["vocab"], peer["vocab"])

    def test_the_same_vocabulary_from_the_sample_corpus(self):
        self.both(CORPUS, 2000)

    def test_the_same_vocabulary_from_random_text(self):
        for seed in range(5):
            self.both(random_text(random.Random(seed), 5000), 1500)

    def test_the_same_vocabulary_from_runs(self):
        self.both("aaaa aaaaa aaaaaaaa aaaaaaaaaaaaaaaaa abababab bababa aabaab " * 7 + "a" * 999, 320)

    def test_the_same_vocabulary_when_no_pair_is_left(self):
        self.both("one two three", 5000)

    def test_the_same_vocabulary_from_wikitext(self):
        self.both(wikitext()[0], 8192)

    def test_what_is_written_is_loaded_by_tokenizers(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            path.write_bytes(probe("train", 1000, text=CORPUS))
            peer = tokenizers.Tokenizer.from_file(str(path))
            text = CORPUS[:50000] + "".join(AWKWARD)
            tokens = peer.encode(text).ids
            self.assertEqual(ours(folder, text), tokens)
            self.assertEqual(peer.decode(tokens, skip_special_tokens=False), text)
            self.assertEqual(peer.token_to_id(END), 0)


class Tiktoken(unittest.TestCase):
    """tiktoken's own vocabularies must be fetched; it takes one that was trained here as well."""

    def test_the_same_tokens(self):
        if tiktoken is None:
            self.skipTest("no Python package tiktoken")
        peer = trained_peer(CORPUS, 2000)
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            encoding = tiktoken_of(peer)
            for text in [CORPUS, random_text(random.Random(5), 50000)] + [t for t in AWKWARD if END not in t]:
                self.assertEqual(ours(folder, text), encoding.encode_ordinary(text), f"text: {text[:40]!r}")


def tiktoken_of(peer):
    """The same vocabulary: tiktoken's ranks are its ids."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {chr(b): b for b in printable}
    symbols.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in printable)})
    ranks = {bytes(symbols[c] for c in token): id for token, id in peer.get_vocab().items() if token != END}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    return tiktoken.Encoding("trained", pat_str=pattern, mergeable_ranks=ranks, special_tokens={END: 0})


class Speed(unittest.TestCase):
    def test_tokens_per_second_beside_the_peers(self):
        """No bound: figures of a shared machine are printed, not judged."""
        text = wikitext()[0]
        peer = trained_peer(text, 8192)
        lines = text.splitlines(keepends=True)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        with tempfile.TemporaryDirectory() as folder:
            peer.save(folder + "/tokenizer.json")
            tokens, seconds = probe("bench", folder, 5, text=text).split()
            print(f"\ntrainer:             {int(tokens) / float(seconds) / 1e6:6.2f} M tokens/s per core")
            self.assertEqual(int(tokens), len(peer.encode(text).ids))
        report("tokenizers, lines:  ", lambda: sum(len(e.ids) for e in peer.encode_batch_fast(lines)))
        report("tokenizers, whole:  ", lambda: len(peer.encode(text).ids))
        if tiktoken is not None:
            encoding = tiktoken_of(peer)
            report("tiktoken, whole:    ", lambda: len(encoding.encode_ordinary(text)))


def report(name, encode):
    best, tokens = 1e9, 0
    for _ in range(3):
        start = time.perf_counter()
        tokens = encode()
        best = min(best, time.perf_counter() - start)
    print(f"{name} {tokens / best / 1e6:6.2f} M tokens/s per core")


if __name__ == "__main__":
    unittest.main()
