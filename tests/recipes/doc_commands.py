"""The command lines of the documentation, as words."""

import re
import shlex
from pathlib import Path

from support import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "data/README.md", ROOT / "launcher/README.md",
         ROOT / "trainer/README.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), *sorted((ROOT / "configs").glob("*.yaml"))]
PROGRAMS = {"ddp-run", "trainer"}
STARTERS = {"srun", "mpirun", "podman", "perf", "nice"}  # of one of the programs, further on in the line
OTHERS = {"echo", "iconv", "torchrun"}  # lines may begin with these as well; anything else is no command line


def code_lines(page):
    """Lines of code, fenced or indented, continued ones joined; of a YAML file its comments."""
    text = page.read_text()
    if page.suffix == ".yaml":
        text = "\n".join("    " + line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    indented = re.findall(r"(?:^(?: {4}.*|)\n)+", rest + "\n", re.M)
    for block in fenced + indented:
        yield from (line.strip() for line in re.sub(r"\\\n *", " ", block).splitlines() if line.strip())


def code_spans(page):
    """`ddp-run ...` and `trainer ...` inside of sentences."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return [" ".join(span.split()) for span in re.findall(r"`((?:ddp-run|trainer) [^`]+)`", text)]


def words_of(line):
    """The shell's words, one list for each command of the line; comments, redirections, [optional parts] and an explanation
    behind three spaces left out."""
    line = re.sub(r" {3}.*|(?<= )\[(?!MASK)[^]]*\]|\.\.\.", "", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    commands, redirected = [[]], False
    try:
        for word in lexer:
            if set(word) <= set(";|&"):
                commands.append([])
            elif set(word) <= set("<>"):
                redirected = True
            elif redirected:
                redirected = False
            else:
                commands[-1].append(word)
    except ValueError:  # a quotation mark that does not end: no command, but a picture or a message
        return []
    return [command for command in commands if command]


def programs_of(line):
    """(program, its arguments) for each ddp-run and trainer that the line starts; what ddp-run starts is one of its arguments."""
    commands = []
    for words in words_of(line):
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        commands.append([Path(word).name for word in words[:1]] + words[1:])
    if not commands or not commands[0] or commands[0][0] not in PROGRAMS | STARTERS | OTHERS:
        return
    for words in commands:
        first = next((i for i, word in enumerate(words) if Path(word).name in PROGRAMS), None)
        if first == 0 or (first and words[0] in STARTERS and words[1] != "build"):
            yield Path(words[first]).name, words[first + 1:]


def all_commands():
    """(page, line, program, arguments) once for each different command."""
    seen = set()
    for page in PAGES:
        for line in [*code_lines(page), *code_spans(page)]:
            for program, arguments in programs_of(line):
                key = (program, *arguments)
                if key not in seen:
                    seen.add(key)
                    yield page, line, program, arguments
