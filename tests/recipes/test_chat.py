"""docs/chat.md as it stands: its recipe trained to the end, and the answers that the page shows."""

import re
import unittest

from support import ROOT, RecipeTest

REACHED = 0.13  # 0.102 in the recipe; the CPU's vector width moves it
PAGE = ROOT / "docs/chat.md"


class Chat(RecipeTest):
    def test_the_documented_conversation_is_what_the_model_answers(self):
        done = self.run_command("ln", "-s", str(ROOT / "scripts"), "scripts")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = "".join(self.run_page(PAGE, patience=2400))
        shown = [line for block in re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
                 for line in block.splitlines()]
        self.assertGreaterEqual(len(shown), 4)
        for line in shown:
            self.assertIn(line + "\n", said)
        self.assertLess(self.evaluations("outputs/chat")[-1]["loss"], REACHED)
        self.assertTrue((self.folder / "my-chat/chat_template.jinja").exists())


if __name__ == "__main__":
    unittest.main()
