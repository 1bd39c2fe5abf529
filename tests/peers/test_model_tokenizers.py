"""Tokenizers with the layouts of published models, trained small, beside Python's `tokenizers`: the same tokens, and the same text of them."""

import functools
import json
import os
import random
import statistics
import tempfile
import time
import unicodedata
import unittest
from pathlib import Path

import tokenizer_peer
from tokenizer_peer import CORPUS, ROOT, TokenizerPeer, ours, probe, tokenizers, wikitext
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# As the models' tokenizer.json have them.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
POOLS = ["'s't're've'm'll'd'S'LL'ſ'K ''", " \t\n\r\r\n\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000\u200b\u180e", "0123\u00b2\u00bd\u0663\u2167\u3007",
         "aZ\u00e9\u00df\u0416\u05d0\u0639\u4e2d\u3042\uac00\U0001d54f", ".,!?-_#\u20ac\u2019\u3002", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u2764\ufe0f",
         "\u0301\u0308\u0327\u05b0\u093c\u1100\u1161\u11a8\u0344\u212b\u2126\ufb1d", "▁▁ ▁a"]
AWKWARD = ["", " ", "  ", "\n", " \n", "\n ", "a", " a", "  a", "a ", "a  b", "a \n b", "a\n\n\n  b", "\r\n\r\n x", "\t\ta", "''s", "'s's", "x's y'll we're",
           "I'VE'd 'ſ'S", "''''ll", "(abc) [def", "!\n\n?", " !\r\n\nx", "a\u00a0b", "\u3000\u3000a", "\u0085a", "e\u0301", "e\u0301\u0327 A\u030a \u1100\u1161\u11a8",
           "1\u00b2\u00bd", "12345678 1 22 333", "a1b22c333", "\x00\x00a\x00", "naïve café", "日本語のテキスト、です。", "مرحبا بالعالم ١٢٣", "👨‍👩‍👧‍👦 👍🏽 🇩🇪❤️",
           "def f(x):\n    return x ** 2  # ok\n\n\tif a!=b: {};\r\n", "<s>a</s>", "<s> <s>", " <s>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "▁", "▁▁a ▁b",
           "a" * 20000, " " * 20000, "ab" * 9999 + "c", "\n" * 999 + "x", "=" * 5000, "1234567890" * 700, "é" * 3000, "日本" * 3000, "\U0010ffff\ufffe\ufdd0",
           "<0x41>", "a <mask> b  <mask>c<mask>", "x <pad>\n <pad> y"]


def random_text(rng, length):
    return tokenizer_peer.random_text(rng, length, POOLS, (1, 1, 1, 2, 5))


@functools.cache
def training_text():
    code = "".join(path.read_text() for path in sorted((ROOT / "tests/peers").glob("*.py")))
    return [CORPUS, code, random_text(random.Random(1), 20000)]


def train(peer, size, alphabet=(), special=()):
    peer.train_from_iterator(training_text(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False, initial_alphabet=list(alphabet)))
    return peer


def byte_level(pre_tokenizer, special, size=3000, **model):
    peer = Tokenizer(models.BPE(**model))
    peer.pre_tokenizer = pre_tokenizer
    peer.decoder = decoders.ByteLevel()
    return train(peer, size, pre_tokenizers.ByteLevel.alphabet(), special)


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_begin(peer, token):
    template = processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, peer.token_to_id(token))])
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), template])


def trained_once(make):
    """Each caller gets one of its own; to train takes a second."""
    text = functools.cache(lambda: make().to_str())
    return functools.wraps(make)(lambda: Tokenizer.from_str(text()))


@trained_once
def llama3():
    peer = byte_level(split_by(LLAMA3), [], ignore_merges=True)
    peer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(250)), "<|eot_id|>"])
    peer.post_processor = with_begin(peer, "<|begin_of_text|>")
    return peer


@trained_once
def qwen():
    peer = byte_level(split_by(QWEN), [])
    peer.normalizer = normalizers.NFC()
    peer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    peer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<name>", normalized=True)])
    return peer


@trained_once
def smollm2():
    words = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return byte_level(words, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"])


def sentencepiece_model():
    return json.loads(trained_sentencepiece())


@functools.cache
def trained_sentencepiece(size=3000):
    alphabet = sorted(set(CORPUS))
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    model = json.loads(train(words, size, alphabet, special).to_str())["model"]
    kept = {token: id for token, id in model["vocab"].items() if len(token) > 1 or ord(token) < 0x250 or token == "▁"}
    vocab = {token: id for id, token in enumerate(sorted(kept, key=kept.get))}
    merges = [pair for pair in model["merges"] if all(part in vocab for part in (*pair, "".join(pair)))]
    model.update(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return json.dumps(model)


def of_model(model, end_is_normalized=True, **parts):
    added = [{"id": model["vocab"][token], "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": True}
             for token, normalized in (("<unk>", True), ("<s>", False), ("</s>", end_is_normalized))]
    decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            "decoder": decoder, "model": model, **parts}
    peer = Tokenizer.from_str(json.dumps(root))
    peer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", peer.token_to_id("<s>"))])
    return peer


PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}


def gemma():
    """As transformers' GemmaTokenizer writes it: marks for spaces, none in front."""
    marks = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return of_model(sentencepiece_model(), normalizer=marks, pre_tokenizer=split,
                    decoder={"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}]})


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


class ModelPeer(TokenizerPeer):
    AWKWARD = AWKWARD
    random_text = staticmethod(random_text)

    def same(self, text, peer=None, path=None):
        wanted = super().same(text, peer, path)
        ids = b"".join(id.to_bytes(4, "little") for id in wanted)
        text_of_ids = probe("decode", path or self.folder, text=ids)
        self.assertEqual(text_of_ids.decode(), (peer or self.peer).decode(wanted, skip_special_tokens=False), f"text: {text[:80]!r}")
        return wanted

    def test_the_same_tokens_for_wikitext(self):
        self.assertGreater(len(self.same(wikitext()[0])), 100_000)  # the other text is test_tokenizers.py's

    def test_random_bytes(self):
        data = random.Random(3).randbytes(50_000)
        self.same(data.decode("latin-1"))
        self.same(data.decode("utf-8", errors="replace"))
        if self.peer.normalizer is None or "NFC" not in str(self.peer.normalizer):
            decoded = probe("decode", self.folder, text=probe("encode", self.folder, text=data))
            self.assertEqual(decoded, data)

    def test_code(self):
        files = [*sorted((ROOT / "trainer/tokenizer").glob("*.cc")), *sorted((ROOT / "tests/peers").glob("*.py"))]
        self.same("\n".join(path.read_text() for path in files))

    def test_what_is_written_again_is_the_same_tokenizer(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tokenizer.json").write_bytes(probe("state", self.folder))
            again = Tokenizer.from_file(folder + "/tokenizer.json")
            wanted = json.loads(self.peer.to_str())
            self.assertEqual({**json.loads(again.to_str()), "model": None}, {**wanted, "model": None})
            self.assertEqual(again.get_vocab(), self.peer.get_vocab())
            for text in AWKWARD:
                self.assertEqual(again.encode(text).ids, self.peer.encode(text).ids)
            self.same("".join(AWKWARD), path=folder)

    def test_the_tokens_in_front_of_a_text(self):
        first = self.peer.encode("x", add_special_tokens=True).ids[:-len(self.peer.encode("x", add_special_tokens=False).ids)]
        self.assertEqual(list(memoryview(probe("beginning", self.folder)).cast("i")), first)

    def test_a_text_cut_in_parts_has_the_same_tokens(self):
        text = CORPUS[:3000] + random_text(random.Random(7), 3000)
        parts = list(memoryview(probe("encode_in_parts", self.folder, text=text)).cast("i"))
        self.assertEqual(parts, ours(self.folder, text))

    def test_not_slower_than_tokenizers(self):
        """Pairs of runs of the same text on one thread; the median of their ratios is below 1."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        text = (CORPUS * (1 + 500_000 // len(CORPUS)))[:500_000]
        lines = text.splitlines(keepends=True)
        ratios = []
        for _ in range(3):
            start = time.process_time()
            self.peer.encode_batch_fast(lines, add_special_tokens=False)
            theirs = time.process_time() - start
            ratios.append(float(probe("bench_lines", self.folder, 1, text=text).split()[1]) / theirs)
        print(f"\n{type(self).__name__}: {statistics.median(ratios):.2f} of the time of tokenizers")
        self.assertLess(statistics.median(ratios), 1.0)


class Llama3(ModelPeer, unittest.TestCase):
    new_peer = staticmethod(llama3)


class Qwen(ModelPeer, unittest.TestCase):
    new_peer = staticmethod(qwen)

    @staticmethod
    def random_text(rng, length):
        """Without accents, and what may be one in another version of Unicode: test_the_normal_form_of_every_character counts those."""
        text = random_text(rng, length)
        known = "".join(POOLS)
        return "".join(c for c in text if c in known or unicodedata.category(c) not in ("Mn", "Mc", "Me", "Cn"))

    def test_the_normal_form_of_every_character(self):
        points = [point for point in range(0x300, 0x30000) if not 0xD800 <= point < 0xE000]
        text = "".join(f"\ne{chr(point)}\u0301!" for point in points)
        decoded = probe("decode", self.folder, text=probe("encode", self.folder, text=text)).decode().split("\n")[1:]
        differing = [point for point, form in zip(points, decoded, strict=True) if form != self.peer.normalizer.normalize_str(f"e{chr(point)}\u0301!")]
        print(f"\ncharacters of another normal form than in tokenizers {tokenizers.__version__}: {[hex(p) for p in differing]}")
        self.assertLess(len(differing), 100)


class SmolLM2(ModelPeer, unittest.TestCase):
    new_peer = staticmethod(smollm2)


class StrippingTokens(ModelPeer, unittest.TestCase):
    @staticmethod
    def new_peer():
        peer = smollm2()
        peer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<pad>", rstrip=True)])
        return peer


class Llama2(ModelPeer, unittest.TestCase):
    @staticmethod
    def new_peer():
        return of_model(sentencepiece_model(), normalizer=PREPEND)


class Llama2WithMetaspace(ModelPeer, unittest.TestCase):
    @staticmethod
    def new_peer():
        return of_model(sentencepiece_model(), pre_tokenizer=metaspace("first", False))


class Gemma(ModelPeer, unittest.TestCase):
    @staticmethod
    def new_peer():
        peer = gemma()
        peer.add_tokens([AddedToken("end of turn", normalized=True, special=False)])
        return peer


class SplitMetaspace(ModelPeer, unittest.TestCase):
    @staticmethod
    def new_peer():
        return of_model(sentencepiece_model(), pre_tokenizer=metaspace("always", True))


class MergesAcrossWords(ModelPeer, unittest.TestCase):
    """Merges that join a word with the mark of the next one: the text is one word."""

    @staticmethod
    def new_peer():
        model = sentencepiece_model()
        for pair in (["e", "▁"], ["e▁", "t"]):
            model["vocab"]["".join(pair)] = len(model["vocab"])
            model["merges"].insert(0 if pair[0] == "e" else 1, pair)
        return of_model(model, normalizer=PREPEND)

    def test_not_slower_than_tokenizers(self):
        self.skipTest("no published model has such merges")


class UnknownCharacters(ModelPeer, unittest.TestCase):
    """Without bytes to fall back to."""

    @staticmethod
    def new_peer():
        model = sentencepiece_model()
        model["byte_fallback"] = False
        decoder = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
                                                    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
        return of_model(model, normalizer=PREPEND, decoder=decoder)

    def test_random_bytes(self):
        self.same(random.Random(3).randbytes(50_000).decode("latin-1"))


if __name__ == "__main__":
    unittest.main()
