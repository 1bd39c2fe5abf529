"""docs/: messages that are explained exist in the sources, generated pages and pictures are up to date, links lead
somewhere."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "launcher/README.md", ROOT / "trainer/README.md",
         ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "data/README.md"]


def joined_literals(text):
    """Each string of C++ on a line of its own, adjacent ones joined, escaped quotes as they are printed."""
    text = re.sub(r'(?<!\\)"\s*\n\s*"', "", text)
    return "\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)).replace('\\"', '"')


def rows(title):
    section = (ROOT / "docs/troubleshooting.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]


def anchors(page):
    """As GitHub makes them from headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


class Docs(unittest.TestCase):
    def check_messages(self, title, folder):
        sources = "\n".join(joined_literals(path.read_text()) for path in sorted((ROOT / folder).rglob("*.cc")))
        found = rows(title)
        self.assertGreater(len(found), 10)
        for row in found:
            message = re.match(r"\| `([^`]*)`", row[0])[1]
            self.assertTrue(message in sources, f"no such message in {folder}: {message}")

    def test_each_explained_message_is_one_of_ddp_run(self):
        self.check_messages("ddp-run", "launcher")

    def test_each_explained_message_is_one_of_trainer(self):
        self.check_messages("trainer", "trainer")

    def test_foreign_words_are_those_that_explain_knows(self):
        source = (ROOT / "launcher/report/advice.cc").read_text()
        table = source[source.index("kSymptoms[] = {"):]
        known = [joined_literals(entry).splitlines() for entry in table[:table.index("\n};\n")].split("\n    {")[1:]]
        listed = [[row[0].removeprefix("| ").strip("`"), row[1].removesuffix(" |")]
                  for row in rows("Words of PyTorch, Python and NCCL")]
        self.assertGreater(len(known), 10)
        self.assertEqual(listed, known)

    def test_the_walk_through_a_step_names_functions_that_call_each_other_in_this_order(self):
        page = (ROOT / "docs/one-step.md").read_text()
        tables = re.findall(r"\|---.*\n((?:\| .*\n)+)", page)
        self.assertEqual(len(tables), 2)
        for table in tables:
            bodies, last_call = {}, {}
            for line in table.splitlines():
                number, caller, file, function = (cell.strip(" `") for cell in line.strip("|").split("|")[:4])
                source = (ROOT / file).read_text()
                found = re.search(rf"^[^\n/ ][^\n]*\b{function}\(.*?^}}", source, re.M | re.S)
                self.assertTrue(found, f"{file} does not define {function}")
                bodies[number] = found[0].split("{", 1)[1]
                if not caller:
                    continue
                call = re.search(rf"\b{function.split('::')[-1]}\(", bodies[caller][last_call.get(caller, 0):])
                self.assertTrue(call, f"row {caller} does not call {function} after the row before")
                last_call[caller] = last_call.get(caller, 0) + call.start()

    def test_the_tests_of_each_guarantee_exist(self):
        cases = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)) for path in (ROOT / "tests").rglob("*.cc")
                 for literals in re.findall(r'TEST_CASE(?:_METHOD)?\(\s*(?:\w+,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)', path.read_text())]
        rows = re.findall(r"^\| F\d.*", (ROOT / "docs/fault-tolerance.md").read_text(), re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[3])]
        self.assertGreater(len(names), 25)
        for name in names:
            parts = re.sub("^(e2e|runtime): ", "", name).split("...")
            with self.subTest(name=name):
                self.assertTrue(name.startswith("scripts/") or name == "runtime: ..." or
                                re.search(".*".join(map(re.escape, map(str.strip, parts))), "\n".join(cases)))

    def test_every_relative_link_has_a_target(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = page if not path else page.parent / path
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(target))

    def test_installed_pages_link_only_to_what_is_installed(self):
        """As scripts/cmake/InstallLayout.cmake installs them; tests/packages walks the packages themselves."""
        folders = [ROOT / name for name in ("docs", "configs", "examples", "launcher/README.md", "trainer/README.md",
                                            "data/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "README.md", "SECURITY.md")]
        for page in PAGES:
            for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", page.read_text()):
                target = (page.parent / link).resolve()
                with self.subTest(page=page.name, link=link):
                    self.assertTrue(any(target.is_relative_to(folder) for folder in folders) or
                                    target in {page.parent for page in PAGES}, "not installed")

    def test_the_wheels_description_holds_no_link_to_a_file(self):
        sys.path.insert(0, str(ROOT / "scripts/wheel"))
        from long_description import dynamic_metadata
        text = dynamic_metadata("readme")["text"]
        self.assertEqual(re.findall(r"\]\((?!https?:)[^)]*\)", text), [])
        self.assertIn("*(Picture: A terminal: rank 1 of a training fails", text)
        self.assertIn("More figures are in docs/benchmarks.md.", text)
        self.assertNotIn("## Development", text)

    def test_excerpts_of_the_causal_model_are_in_the_file_that_a_test_compiles(self):
        section = (ROOT / "docs/add-a-model.md").read_text().split("## A causal model\n")[1].split("\n## ")[0]
        excerpts = re.findall(r"^```cpp\n(.*?)^```", section, re.M | re.S)
        self.assertTrue(excerpts)
        for excerpt in excerpts:
            self.assertIn(excerpt, (ROOT / "tests/e2e/bigram_model.cc").read_text())

    def test_what_is_generated_is_up_to_date(self):
        for command in (["crash_timeline.py", "draw", "--check"], ["terminal_recording.py", "draw", "--check"],
                        ["option_docs.py", "--check"], ["pipeline_picture.py", "--check"], ["strategy_picture.py", "--check"],
                        ["sharding_picture.py", "draw", "--check"]):
            done = subprocess.run([sys.executable, ROOT / "scripts" / "docs" / command[0], *command[1:]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
