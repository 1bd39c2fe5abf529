#!/usr/bin/env python3
"""Generates everything derived from the table of configuration keys: the reference in docs/config.md,
configs/schema.json and the lines of configs/gpt2_train_cfg.yaml.

  config_docs.py [--check] [PROGRAM]     PROGRAM: trainer or ddp_config_show (default: build/release/bin/ddp_config_show)

--check writes nothing and exits with 1 if a file is out of date.
"""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMENT_COLUMN, WIDTH = 30, 116


def described(program, form):
    return subprocess.run([program, "--help-config", "--format", form], check=True, capture_output=True, text=True).stdout


def reference(text, table):
    begin, end = "<!-- reference begin -->\n", "<!-- reference end -->"
    return text[:text.index(begin) + len(begin)] + table + text[text.index(end):]


def given_values(text):
    """Path -> value for each key that the file sets."""
    given, parents = {}, []
    for line in text.splitlines():
        match = re.match(r"( *)(\w+):(?: +([^#\s][^#]*?))?\s*(?:#.*)?$", line)
        if not match:
            continue
        parents[len(match[1]) // 2:] = [match[2]]
        if match[3] is not None:
            given[".".join(parents)] = match[3]
    return given


def with_comment(line, text):
    lines = textwrap.wrap(text, WIDTH - COMMENT_COLUMN - 2, break_long_words=False, break_on_hyphens=False)
    first = f"{line:<{COMMENT_COLUMN - 2}}  # {lines[0]}\n"
    return first + "".join(" " * COMMENT_COLUMN + f"# {more}\n" for more in lines[1:])


def key_lines(name, schema, path, given, depth):
    path = f"{path}.{name}" if path else name
    if "properties" not in schema:
        meaning, default = re.fullmatch(r"(.*) Default: (.*)\.", schema["description"]).groups()
        start = "null" if " " in default and not default.startswith("[") else default
        sign = "" if path in given else "# "
        return with_comment(f"{'  ' * depth}{sign}{name}: {given.get(path, start)}", meaning)
    sign = "" if any(key.startswith(path + ".") for key in given) else "# "
    body = "".join(key_lines(key, value, path, given, depth + 1) for key, value in schema["properties"].items())
    return f"{'  ' * depth}{sign}{name}:\n{body}"


def yaml_file(text, schema):
    head = text[:text.index("\n\n") + 2]
    sections = [key_lines(name, value, "", given_values(text), 0)
                for name, value in schema["properties"].items() if "properties" in value or "description" in value]
    return head + "\n".join(sections)


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    program = words[0] if words else str(ROOT / "build/release/bin/ddp_config_show")
    text, schema = described(program, "json"), json.loads(described(program, "json"))
    made = {
        "docs/config.md": lambda old: reference(old, described(program, "markdown")),
        "configs/schema.json": lambda _: text,
        "configs/gpt2_train_cfg.yaml": lambda old: yaml_file(old, schema),
    }
    stale = []
    for name, make in made.items():
        old = (ROOT / name).read_text(encoding="utf-8")
        new = make(old)
        if new == old:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            (ROOT / name).write_text(new, encoding="utf-8")
    print("\n".join(("out of date: " if "--check" in sys.argv else "written: ") + name for name in stale) or "all up to date")
    if stale and "--check" in sys.argv:
        print("run ./scripts/docs/config_docs.py to update them", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
