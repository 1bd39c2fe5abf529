#!/usr/bin/env python3
"""Writes docs/ddp-run-options.md, the reference of ddp-run's options, from its --help as a test keeps it.

  option_docs.py [--check]     --check writes nothing and exits with 1 if the page is out of date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HELP, PAGE = ROOT / "tests/launcher/cli/help.golden", ROOT / "docs/ddp-run-options.md"


def escaped(text):
    return re.sub(r"([|<>*_`])", r"\\\1", text).replace("$", "&#36;")


def option_row(lines):
    """The lines of one option -> a row of the table."""
    name, *texts = re.split(r" {2,}", lines[0].strip(), maxsplit=1)
    meaning = " ".join(text.strip() for text in texts + lines[1:])
    default = re.search(r" \(default: ([^()]*)\)$", meaning)
    if default:
        meaning = meaning[:default.start()]
    name = name.replace("|", "\\|")
    return f"| `{name}` | {f'`{default[1]}`' if default else ''} | {escaped(meaning)} |"


def group_tables(text):
    out, option = [], []

    def close():
        if option:
            out.append(option_row(option))
            option.clear()

    for line in text.splitlines():
        title = re.fullmatch(r" ([A-Z][a-z]+) options:", line)
        if title:
            close()
            out += ["", f"## {title[1]} options", "", "| option | default | meaning |", "|---|---|---|"]
        elif re.match(r"  (-\w,|   ) --", line):
            close()
            option.append(line)
        elif line.strip():
            option.append(line)
    close()
    return "\n".join(out)


def page():
    text = HELP.read_text()
    usage, rest = text.split("\nExamples:\n")
    examples, rest = rest.split("\n\n Worker options:\n")
    options, codes = (" Worker options:\n" + rest).split("\nExit codes:\n")
    usage = "\n\n".join(escaped(part) for part in usage.split("\n\n")[2:])
    return ("# Options of ddp-run\n\n<!-- scripts/docs/option_docs.py writes this page from ddp-run --help -->\n"
            "`ddp-run [options] PROGRAM [arguments of PROGRAM...]`\n\n"
            f"{usage}\n\n```\n{examples.rstrip()}\n```\n{group_tables(options)}\n\n## Exit codes\n\n```\n{codes.rstrip()}\n```\n")


def main(arguments):
    if arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit("docs/ddp-run-options.md is out of date: python3 scripts/docs/option_docs.py")
    elif arguments:
        sys.exit(__doc__)
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
