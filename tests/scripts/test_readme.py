"""The commands in daily use of trainer/README.md, in their order after the quickstart, each have something to train."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "configs/quickstart.yaml"


def commands():
    """Lines of the section's code, continued ones joined, comments left out."""
    section = (ROOT / "trainer/README.md").read_text().split("## In daily use\n")[1].split("\n## ")[0]
    code = "\n".join(line.strip() for line in section.splitlines() if line.startswith("    "))
    return [line for line in code.replace("\\\n", "").splitlines() if not line.startswith("#")]


def value(text, key, otherwise):
    found = re.search(rf"{key}[=:]\s*(\S+)", text)
    return found[1] if found else otherwise


class Readme(unittest.TestCase):
    def test_no_command_after_the_quickstart_has_nothing_to_train(self):
        config = (ROOT / CONFIG).read_text()
        self.assertNotIn("snapshot_path", config)  # it is in hydra.run.dir: one key moves both
        usual_folder, usual_epochs = value(config, " dir", ""), int(value(config, "max_epochs", "0"))
        epochs_made = {usual_folder: usual_epochs}  # by the quickstart
        trainings = [line for line in commands() if f"trainer --config {CONFIG}" in line]
        self.assertGreaterEqual(len(trainings), 3)
        for line in trainings:
            folder, epochs = value(line, "hydra.run.dir", usual_folder), int(value(line, "max_epochs", usual_epochs))
            self.assertGreater(epochs, epochs_made.get(folder, 0), line)
            epochs_made[folder] = epochs


if __name__ == "__main__":
    unittest.main()
