#!/usr/bin/env python3
"""Finds phrases that a native engineer would not write: in pages, help texts, and the comments of code and configurations.

  check_words.py [ROOT]     prints file:line: "phrase": suggestion, for each finding; exit 1 if there is any

Code is skipped, comments in code are read. Where a phrase is right, a comment on its line or on the line before permits it:
<!-- words: beside --> in Markdown, "words: beside" in the comments of other files.
"""

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from pathlib import Path

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md", "launcher/**/*.md", "trainer/**/*.md",
         "data/*.md", "tests/**/*.md"]
COMMENTS = ["configs/*.yaml", "examples/**/*.sh", "examples/**/*.sbatch", "examples/**/*.yaml", "scripts/**/*.sh"]
PYTHON = ["examples/**/*.py", "scripts/**/*.py"]
CPP = [f"{room}/**/*.{suffix}" for room in ("launcher", "trainer", "tests") for suffix in ("h", "cc", "cu")]
HELP = ["tests/**/help.golden"]

START = r"(?:^|(?<=[.;:|] ))"  # of a sentence or of a table's cell
PROGRAM = r"(?:ddp-run|trainer|doctor|estimate|snapshot|report|log|line|message|error|warning|page|header|script|file|it)"

# (pattern, suggestion); a space matches any space between words, line breaks included.
RULES = [(re.compile(re.sub(r" (?!\))", " +", pattern), re.M), better) for pattern, better in [
    # one verb instead of another language's two
    (r"\b(?:go|goes|went|going) on(?! (?:top|to|the|a|an|one|CPUs?|GPUs?)\b)\b", "continue, resume"),
    (r"\b(?:come|comes|came|coming) back\b", "return, recur, resume"),
    (r"\b(?:is|are|was|were|be) taken in(?= by\b|[.,;])", "is parsed, is accepted"),
    (r"\b(?:is|are|was|were|be) gone\b", "has failed, has exited, was removed"),
    (r"\b[Mm]end(?:s|ed|ing)?\b", "fix"),
    (r"\bhears? of\b", "learns of, is notified of"),
    (r"\bstands? (?:in|at|behind|before|beside|there|where|still|next)\b", "is, appears"),
    (r"\bl(?:ie|ies|ay) (?:in|at|under|beside|next to|there)\b", "is in"),
    # what programs do
    (r"\b(?:says?|said) (?:so|why|what|which|how|who|where|whether|that|nothing|in (?:one|a) line)\b", "report, log, print, explain"),
    (rf"\b{PROGRAM} (?:says?|tells?)\b", "reports, logs, prints, explains"),
    (r"\b(?:is|are|was|were|be) told\b(?! apart)", "is given, is notified, learns"),
    (r"\btells? (?:once|parameters|what|which|how|who|why|each other)\b", "report, print"),
    (r"\b(?:is|are|be) answered\b", "is rejected, gets the reply"),
    (rf"\b{PROGRAM} knows?\b|\bknown by\b", "supports, recognizes, stores"),
    (rf"\b(?:that|which|and|{PROGRAM}) names? (?:the|it|a|an|its|both|what|which|who|each)\b", "identifies, reports, shows"),
    # where and how much
    (r"\bbeside\b", "next to, alongside"),
    (r"(?<!fall )(?<!falls )(?<!left )(?<!is )(?<!are )(?<!steps )(?<!furthest )(?<!hidden )(?<!hides )\bbehind "
     r"(?!the scenes|a NAT|a proxy|a firewall)(?=[\w`\[])", "after"),
    (rf"{START}(?:Most|Least) [a-z]+ (?:that|of|per|in|for)\b", "Maximum, Minimum"),
    (r"\bto the most\b|\bat the most\b", "at most"),
    # sentences
    (rf"{START}Of (?!course\b)", "start with the subject, or with For or Among"),
    (rf"{START}(?:Those|That) of\b", "name the noun"),
    (r"\bfor who\b", "when, for users who"),
    (r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b|better\b|worse\b|need\b|different\b|less\b|fewer\b|other\b)"
     r"[a-z]+", "is not a"),
    (r"\bby (?:itself|themselves)\b", "on its own, automatically"),
    # terms
    (r"\b[Uu]nbroken\b|\b[Uu]ndisturbed\b|\bnobody (?:has )?disturbed\b", "uninterrupted"),
    (r"\b[Nn]obody has run\b", "unverified"),
    (r"\bin the bits of\b", "bitwise identical to"),
    (r"\bready to run\b|\b(?:is|are|was|were) not let\b", "runnable but not scheduled"),
    (r"\btoo few of them\b", "oversubscribed"),
    (r"\btaken for hung\b", "considered hung"),
    (r"\b[Rr]eady-made\b", "prebuilt"),
    (r"\b[Tt]ime-outs?\b", "timeout"),
    (r"\bfor ever\b", "forever"),
    (r"\b[Pp]rocessor time\b", "CPU time"),
    (r"\b[Rr]emed(?:y|ies)\b", "fix"),
    (r"\b[Ff]itting\b", "matching, compatible"),
    (r"\b[Gg]uessing:", "Majority-class baseline"),
    (r"\bdo(?:es)? not weigh\b", "unweighted"),
    (r"\bmatrix units?\b", "tensor cores"),
    (r"\bhave not led\b", "made no progress"),
    (r"\bthat did not come\b", "that never arrived, that never entered it"),
    (r"\b[Cc]orrect what\b", "fix the error"),
]]

LINE_OF_ITS_OWN = re.compile(r"\s*(?:\||#|[-*] |\d+\. |$)")  # table row, heading, list item, empty line
ALLOWED = re.compile(r"words: ([^>\n]*?)\s*(?:-->|$)", re.M)


def blank(match):
    return re.sub(r"[^\n]", "_", match[0])


def without_code(markdown):
    """Code replaced by as many characters; its comments stay."""
    out, fenced, before = [], False, ""
    for line in markdown.split("\n"):
        fence = line.startswith("```")
        indented = line.startswith("    ") and not re.match(r"\s*(?:[-*] |\d+\. )", line) and (not before.strip() or before == "    ")
        if fence or fenced or indented:
            code, mark, comment = line.partition("# ")
            out.append("_" * len(code + mark) + comment)
        else:
            out.append(line)
        before = "    " if indented else line
        fenced ^= fence
    text = "\n".join(out)
    text = re.sub(r"(`+)(?!`).*?\1", blank, text, flags=re.S)
    return re.sub(r"(?<=\])\([^)\s]*\)", blank, text)


def shown(lines, comments):
    """The comments as prose, without quotations and code in backticks; one next to code is a sentence of its own.

    comments: (line, column, text), in this order.
    """
    out = [""] * len(lines)
    for number, column, text in comments:
        for i, line in enumerate(text.split("\n")):
            aside = not i and lines[number][:column].strip()
            out[number + i] += ("| " if aside else "") + line.strip()
    return re.sub(r'(`+)(?!`).*?\1|"[^"\n]*"', blank, "\n".join(out), flags=re.S)


def hash_comments(text):
    lines = text.split("\n")
    found = [(i, re.search(r"(?:^|(?<=\s))#(?!!)", line)) for i, line in enumerate(lines)]
    return shown(lines, [(i, match.start(), lines[i][match.end():]) for i, match in found if match])


CPP_TOKEN = re.compile(r"""//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/
  |R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"
  |(?<![\da-fA-F])'(?:\\.|[^'\\\n])+'""", re.S | re.X)


def cpp_comments(text):
    found = []
    for match in CPP_TOKEN.finditer(text):
        comment = match["line"] or match["block"]
        if comment and comment.strip():
            before = text[:match.start()]
            found.append((before.count("\n"), match.start() - before.rfind("\n") - 1, comment.strip("/<")))
    return shown(text.split("\n"), found)


def python_comments(text):
    found = [(token.start[0] - 1, token.start[1], token.string[1:]) for token in tokenize.generate_tokens(io.StringIO(text).readline)
             if token.type == tokenize.COMMENT and not token.string.startswith("#!")]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            found.append((node.body[0].lineno - 1, node.body[0].col_offset, node.body[0].value.value))
    return shown(text.split("\n"), sorted(found))


def newest_version(changelog):
    end = [match.start() for match in re.finditer(r"^## ", changelog, re.M)][1:2]
    return changelog[:end[0]] if end else changelog


def joined(text):
    """Each sentence on one line, and where in it each line of the text begins."""
    lines = text.split("\n")
    out, starts = lines[0], [0]
    for before, line in zip(lines, lines[1:]):
        alone = LINE_OF_ITS_OWN.match(line) or re.match(r"\s*(?:#|$)", before)
        out += "\n" if alone else " "
        starts.append(len(out))
        out += line if alone else re.sub(r"^_*# ", "", line.lstrip())
    return out, starts


def findings(text, whole):
    """(line number, phrase, suggestion); permissions are looked up in the whole text."""
    lines, (sentences, starts) = whole.split("\n"), joined(text)
    for pattern, better in RULES:
        for match in pattern.finditer(sentences):
            number = bisect_right(starts, match.start())
            allowed = ALLOWED.findall("\n".join(lines[max(0, number - 2):number]))
            phrase = " ".join(match[0].split())
            if phrase not in allowed:
                yield number, phrase, better


def check_tree(root):
    errors, files = [], 0
    for globs, prose in ((PAGES, without_code), (COMMENTS, hash_comments), (PYTHON, python_comments), (CPP, cpp_comments), (HELP, str)):
        for path in sorted({path for glob in globs for path in root.glob(glob)}):
            files += 1
            whole = path.read_text(encoding="utf-8")
            text = prose(newest_version(whole) if path.name == "CHANGELOG.md" else whole)
            errors += [f'{path.relative_to(root).as_posix()}:{number}: "{phrase}": {better}'
                       for number, phrase, better in sorted(findings(text, whole))]
    return files, errors


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]).resolve()
    files, errors = check_tree(root)
    for error in errors:
        print(error)
    if not files:
        print(f"error: no page under {root}", file=sys.stderr)
        return 2
    if errors:
        print(f"{len(errors)} phrases to rewrite", file=sys.stderr)
        return 1
    print(f"words: {files} files, no findings")
    return 0


if __name__ == "__main__":
    sys.exit(main())
