"""docs/first-run.md as it is written, with fewer steps of a smaller model."""

import unittest

from support import ROOT, RecipeTest

SHORT = [("max_steps=200", "max_steps=6"), ("max_steps=300", "max_steps=8"), ("step=150", "step=5"),
         ("snapshot_every=50", "snapshot_every=2"), ("max_new_tokens 200", "max_new_tokens 20")]


class FirstRun(RecipeTest):
    def test_the_page_ends_where_it_says(self):
        self.shorten()
        (self.folder / "data").symlink_to(ROOT / "data")
        first, key, killed, compared, further, look = self.run_page(ROOT / "docs/first-run.md", *SHORT)
        for line in ("Data: ", "Batch: ", "Train Loss", "Snapshot saved", "Next: "):
            self.assertIn(line, first)
        self.assertIn("learning_rate: 0.001", key)
        self.assertRegex(killed, r"rank 1 .*killed by SIGKILL; restart 1 of 3")
        self.assertIn("at epoch 1, step 4", killed)
        digests = set(compared.splitlines())
        self.assertEqual(len(compared.splitlines()), 2)
        self.assertEqual(len(digests), 1, compared)
        self.assertRegex(further, r"Resuming training from snapshot .*, step 6\n.*learning_rate 0.002 -> 0.001")
        self.assertIn("In the morning", look)
        self.assertIn("SIGKILL", (self.folder / "first.html").read_text())


if __name__ == "__main__":
    unittest.main()
