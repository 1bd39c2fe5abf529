"""For the wheel's metadata: README.md for people who do not have the repository, which has no public address yet.

Pictures are replaced by their descriptions, links to files by their texts; the parts about the repository are left out.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = r"(?![a-z]+:)[^)\s]+"  # not one of the web
END = "\nThe documents that are named here are installed in `share/doc/ddp-run/` of the environment.\n"


def without_files(markdown):
    markdown = re.sub(rf"^!\[([^\]]*)\]\({ADDRESS}\)", r"*(Picture: \1)*", markdown, flags=re.M)
    return re.sub(rf"\[([^\]]*)\]\({ADDRESS}\)", r"\1", markdown)


def dynamic_metadata(_field, _settings=None):
    text, repository, _ = (ROOT / "README.md").read_text().partition("\n## Layout\n")
    assert repository, "README.md has no section Layout"
    return {"content-type": "text/markdown", "text": without_files(text) + END}
