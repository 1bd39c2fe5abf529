"""docs/own-text.md as it is written, and texts of all kinds with the quickstart's configuration."""

import re
import unittest

from support import CORPUS, ROOT, RecipeTest

PAGE = ROOT / "docs/own-text.md"
HAIKU = "An old silent pond...\nA frog jumps into the pond,\nsplash! Silence again.\n"
# 101 MB.
LONG = {"Texts.test_a_large_text_is_told_how_to_start_faster"}
ADVICE = r"\b(?:data_config|trainer_config)\.\w+=\S+\b"


class Page(RecipeTest):
    def test_its_commands_run_in_their_order(self):
        self.shorten(max_steps=3)
        self.write("my.txt", CORPUS[:3_000])
        self.write("held-out.txt", CORPUS[1_000:1_500])
        said = self.run_page(PAGE, ("max_steps=8000", "max_steps=5"), ("warmup_steps=100", "warmup_steps=1"))
        self.assertGreaterEqual(len(said), 10)
        self.assertEqual([record["step"] for record in self.evaluations("outputs/my")], [3, 5])
        self.assertEqual([record["step"] for record in self.evaluations("outputs/my-two")], [3])
        for made in ("my.html", "compared.html", "outputs/my-gpt2/config.json"):
            self.assertTrue((self.folder / made).exists(), made)


class Texts(RecipeTest):
    def on(self, path, *further):
        return ("--config", "configs/quickstart.yaml", f"data_config.path={path}", "trainer_config.max_steps=1",
                "gpt_config.n_embd=32", "trainer_config.eval_iters=1", *further)

    def test_texts_of_all_scripts_and_sizes_train(self):
        texts = {
            "haiku.txt": HAIKU * 2,
            "chinese.txt": "".join(chr(0x4E00 + 7 * i % 3000) for i in range(3_000)),
            "emoji.txt": "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f389" * 200,
            "crlf.txt": CORPUS[:5_000].replace("\n", "\r\n"),
            "one character.txt": "a" * 2_000,
            "more/a.txt": CORPUS[:3_000],
            "more/b.txt": CORPUS[3_000:6_000],
            "more/c.md": "# left out of the folder",
        }
        for name, text in texts.items():
            self.write(name, text)
        for name, characters in (("haiku.txt", 2 * len(HAIKU)), ("chinese.txt", 3_000),
                                 ("emoji.txt", 1_400), ("one character.txt", 2_000), ("more", 6_000), ("'more/*.txt'", 6_000)):
            with self.subTest(text=name):
                out = self.trainer(*self.on(name, "hydra.run.dir=" + re.sub(r"\W", "", name)))
                self.assertIn(f": {characters} characters, ", out)
        self.assertIn(" characters, ", self.trainer(*self.on("crlf.txt", "hydra.run.dir=crlf")))

    def test_a_short_text_is_seen_at_more_positions(self):
        self.write("haiku.txt", HAIKU * 2)
        self.write("long.txt", CORPUS)
        self.assertIn("data_config.stride=auto, here 1,", self.trainer(*self.on("haiku.txt", "hydra.run.dir=a")))
        self.assertIn("data_config.stride=auto, here 32,", self.trainer(*self.on("long.txt", "hydra.run.dir=b")))

    def test_what_a_refusal_advises_works(self):
        for length in (3, 30):
            with self.subTest(length=length):
                self.write("tiny.txt", HAIKU[:length])
                advice = re.findall(ADVICE, self.refused(*self.on("tiny.txt")).split("; use ")[1])
                self.trainer(*self.on("tiny.txt", *advice, f"hydra.run.dir=tiny{length}"))

    def test_what_is_no_text_is_refused_with_the_file_and_the_fix(self):
        latin1 = ("Gr\u00fc\u00dfe aus K\u00f6ln. " * 200).encode("latin-1")
        self.write("mixed/a.txt", CORPUS[:3_000])
        self.write("mixed/b.txt", latin1)
        self.write("markdown/a.md", CORPUS[:3_000])
        for name, content, said in (
                ("empty.txt", "", "empty.txt: holds no text"),
                ("latin1.txt", latin1, "latin1.txt: is not valid UTF-8 at byte 2; convert it, for example with iconv"),
                ("bom.txt", b"\xef\xbb\xbfab\xff" * 100, "bom.txt: is not valid UTF-8 at byte 5; "),
                ("utf16.txt", CORPUS[:3_000].encode("utf-16"), "it looks like UTF-16: convert it with iconv -f UTF-16"),
                ("binary", bytes(range(256)) * 20, "it looks like a binary file"),
                ("mixed", None, "mixed/b.txt: is not valid UTF-8 at byte 2; "),
                ("markdown", None, "markdown/*.md'"),
                ("/dev/zero", None, "/dev/zero: is not a regular file"),
                ("nowhere.txt", None, "nowhere.txt: No such file")):
            with self.subTest(text=name):
                if content is not None:
                    self.write(name, content)
                line = self.refused(*self.on(name))
                self.assertTrue(line.startswith("error: ") and "data_config.path" in line, line)
                self.assertIn(said, line)
        self.trainer(*self.on("binary", "data_config.tokenizer=byte", "hydra.run.dir=bytes"))

    def test_a_byte_order_mark_is_no_part_of_the_text(self):
        self.write("marked.txt", b"\xef\xbb\xbf" + CORPUS[:3_000].encode())
        self.write("plain.txt", CORPUS[:3_000])
        for name in ("marked", "plain"):
            self.trainer(*self.on(f"{name}.txt", f"hydra.run.dir={name}"))
            self.trainer("tokenize", "--tokenizer", "char", "--input", f"{name}.txt", "--output", f"{name}-tokens")
        self.assertEqual(self.evaluations("marked")[0]["loss"], self.evaluations("plain")[0]["loss"])
        for file in ("tokenizer.json", "tokens_000000.bin"):
            self.assertEqual(*((self.folder / f"{name}-tokens" / file).read_bytes() for name in ("marked", "plain")))

    def test_a_large_text_is_told_how_to_start_faster(self):
        self.write("large.txt", CORPUS * 540)
        out = self.trainer(*self.on("large.txt"))
        self.assertRegex(out, r"Text: 101 MB are encoded now .*trainer tokenize --tokenizer char --input \S+/large.txt ")
        self.write("small.txt", CORPUS)
        self.assertNotIn("Text: ", self.trainer(*self.on("small.txt", "hydra.run.dir=small")))


if __name__ == "__main__":
    unittest.main()
