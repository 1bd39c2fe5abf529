"""The wordpiece tokenizer beside Python's `tokenizers`: the same tokens for any text, with a vocabulary of either."""

import json
import random
import tempfile
import unittest
from pathlib import Path

import tokenizer_peer
from tokenizer_peer import CORPUS, TokenizerPeer, ours, probe, wikitext, tokenizers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
POOLS = ["abc XYZ", " \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000\u200b\u180e\x00\x7f\u00ad\ufffd", "0123\u00b2\u00bd\u0663\u2167",
         "\u00e9\u00df\u0130\u0131\u01c5\u03a3\u03c3\u0416\u05d0\u0639\u4e2d\u3042\uac00\U0001d54f\U0002b740\U0002b920",
         "\u0301\u0323\u0308\u0338\u093c\u0345\u302e\U0001d165\U0001d16e", ".,!?-_#$+<=>^`|~\u20ac\u2019\u3002\u00ab\u00bf\u2e5d\u166d",
         "\U0001f600\U0001f468\u200d\U0001f469\u2764\ufe0f\U0001f1e9"]
AWKWARD = ["", " ", "\n", "a", " a ", "A\u0301b", "ÀÉÎ õ ü ñ ç ß ŉ ǆ", "İstanbul IĞDIR", "ΑΣ ΣΑΣ", "日本語のテキスト、です。", "don't stop-it... (now)!?", "a[MASK]b [MASK]",
           "[CLS] [SEP] [PAD] [UNK] [mask] [MAS", "x" * 100, "x" * 101, "é" * 101, "##ing ## #", "the[MASK]", "\x00\x01a\x00b\ufffdc", "가각힣", "é̱́ ụ̈̄", "नमस्ते दुनिया",
           "👨‍👩‍👧‍👦 👍🏽 🇩🇪❤️", "<unk> @-@ 1 @,@ 000", "\u2028\u2029\x85 ", "ﬁ ﬂ ½ ①", "\U0010ffff\ufffe\ufdd0"]


def trained_peer(text, size, **options):
    peer = tokenizers.BertWordPieceTokenizer(**options)
    peer.train_from_iterator([text], vocab_size=size, show_progress=False)
    return peer


def random_text(rng, length):
    return tokenizer_peer.random_text(rng, length, POOLS, (1, 1, 1, 2, 5))


class Peers(TokenizerPeer, unittest.TestCase):
    AWKWARD = AWKWARD
    random_text = staticmethod(random_text)

    @classmethod
    def new_peer(cls):
        return trained_peer(CORPUS + random_text(random.Random(1), 20000) * 2, 4000)

    def test_the_same_tokens_for_every_character(self):
        """Each between letters, and alone, with a vocabulary that has all parts: no class may differ. Planes 4 to 13 are not assigned."""
        for at in (*range(0, 0x40000, 0x4000), 0xE0000, 0xF0000, 0x10C000):
            points = [p for p in range(at, at + 0x4000) if not 0xD800 <= p < 0xE000]
            peer = peer_of_characters(points)
            path = self.folder / "characters.json"
            peer.save(str(path))
            self.same("".join(f"a{chr(p)}b {chr(p)}\n" for p in points), peer, path)

    def test_capitals_and_accents_may_be_kept(self):
        for options in ({"lowercase": False}, {"strip_accents": False}, {"lowercase": False, "strip_accents": True},
                        {"handle_chinese_chars": False}, {"clean_text": False}):
            peer = trained_peer(CORPUS + random_text(random.Random(1), 5000) * 2, 2000, **options)
            path = self.folder / "options.json"
            peer.save(str(path))
            for text in (*AWKWARD, random_text(random.Random(3), 5000)):
                with self.subTest(options=options, text=text[:20]):
                    self.same(text, peer, path)

    def test_a_vocab_txt_means_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            self.peer.save_model(folder)
            for text in (*AWKWARD, CORPUS):
                self.same(text, path=folder)
                self.same(text, path=folder + "/vocab.txt")
            (Path(folder) / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
            cased = tokenizers.BertWordPieceTokenizer(folder + "/vocab.txt", lowercase=False)
            for text in (*AWKWARD, CORPUS):
                self.same(text, cased, folder)


def peer_of_characters(points):
    strip = tokenizers.normalizers.BertNormalizer(strip_accents=True).normalize_str
    parts = sorted({c for p in points for c in strip(chr(p)).strip()} | set("ab"))
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *parts, *("##" + part for part in parts)])}
    peer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    peer.add_special_tokens(SPECIAL)
    peer.normalizer = tokenizers.normalizers.BertNormalizer()
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return peer


class Training(unittest.TestCase):
    def trained(self, text, size):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "tokenizer.json"
        path.write_bytes(probe("train_wordpiece", size, text=text))
        return path

    def test_what_is_written_is_loaded_by_tokenizers(self):
        path = self.trained(CORPUS, 1000)
        peer = tokenizers.Tokenizer.from_file(str(path))
        for text in (*AWKWARD, CORPUS):
            self.assertEqual(ours(path, text), peer.encode(text, add_special_tokens=False).ids)
        self.assertEqual(peer.encode("the").tokens, ["[CLS]", "the", "[SEP]"])
        self.assertEqual([peer.token_to_id(token) for token in SPECIAL], [0, 1, 2, 3, 4])

    def test_the_vocabulary_is_the_same_each_time_and_as_good_as_that_of_tokenizers(self):
        """Among pairs of equal counts `tokenizers` follows ids that differ from run to run, so that no two are the same."""
        text = wikitext()[0]
        mine = self.trained(text, 4000)
        self.assertEqual(mine.read_bytes(), self.trained(text, 4000).read_bytes())
        peer = trained_peer(text, 4000)
        own = set(json.loads(mine.read_text())["model"]["vocab"])
        theirs = set(peer.get_vocab())
        self.assertEqual({t for t in own if len(t) == 1}, {t for t in theirs if len(t) == 1})
        self.assertGreater(len(own & theirs), 0.98 * len(theirs))
        tokens, theirs = len(ours(mine, text)), len(peer.encode(text, add_special_tokens=False).ids)
        self.assertLess(abs(tokens - theirs), 0.002 * theirs)


if __name__ == "__main__":
    unittest.main()
