"""A picture in docs/ that a script draws."""

import sys


def update(picture, text, check_only, redraw):
    """Writes `text` to the path `picture`; with `check_only` exits with an error where the file holds something else and
    names `redraw`, the command that updates it."""
    if not check_only:
        picture.write_text(text, encoding="utf-8")
    elif not picture.exists() or picture.read_text(encoding="utf-8") != text:
        sys.exit(f"error: docs/{picture.name} is out of date; tip: python3 scripts/{redraw}")
