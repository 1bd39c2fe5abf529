"""configs/shakespeare_char.yaml on tiny-shakespeare, all 2,000 steps: its loss, and no sign of a leak.

The text is taken from DDP_TEST_TEXTS (default: ../shared/data) or, as fetch_data.sh writes it, from data/input.txt.
"""

import os
import sys
import unittest
from pathlib import Path

from support import ROOT, RecipeTest

PLACES = [Path(os.environ.get("DDP_TEST_TEXTS", ROOT.parent / "shared/data")) / "tinyshakespeare.txt",
          ROOT / "data/input.txt"]
TEXT = next((path for path in PLACES if path.exists()), None)
if TEXT is None:
    print("[skipped] no tiny-shakespeare at hand")
    sys.exit(0)
REACHED = 1.885  # 1.873 in the recipe; seeds and the CPU's vector width move it by 0.007
LEAK = 1.3


class Shakespeare(RecipeTest):
    def test_the_recipe_reaches_its_loss_in_2000_steps(self):
        self.trainer("--config", "configs/shakespeare_char.yaml", f"data_config.path={TEXT}", "trainer_config.device=cpu",
                     "trainer_config.eval_every_steps=2000", patience=2400)
        last = self.evaluations("outputs/shakespeare_char")[-1]  # before it, the one at the end of the epoch
        print(f"validation loss {last['loss']:.4f} after {last['step']} steps")
        self.assertEqual((last["step"], last["tokens"]), (2000, 111_539))
        self.assertLessEqual(last["loss"], REACHED)
        self.assertGreater(last["loss"], LEAK, "a model that sees the future, or trains on what it is evaluated on")


if __name__ == "__main__":
    unittest.main()
