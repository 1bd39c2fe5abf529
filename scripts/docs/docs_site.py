"""Hooks of mkdocs.yml: pages that GitHub shows as they are become pages of the site.

GitHub begins a list or a table without an empty line before it, Markdown does not; links that leave docs/ have no target
on the site; the READMEs of both programs are pages of their own there.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
READMES = {"launcher.md": "launcher/README.md", "trainer.md": "trainer/README.md"}
BLOCK = re.compile(r"([-*] |\d+\. |\|)")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files, config):
    for page, readme in READMES.items():
        files.append(File.generated(config, page, content=(ROOT / readme).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    return with_site_links(with_empty_lines(markdown), page.file.src_uri)


def with_empty_lines(markdown):
    out, fenced = [], False
    for line in markdown.split("\n"):
        before = out[-1] if out else ""
        if not fenced and BLOCK.match(line) and before.strip() and not BLOCK.match(before) and not before.startswith(" "):
            out.append("")
        elif line.startswith("```") and not fenced and before.strip():
            out.append("")
        fenced ^= line.startswith("```")
        out.append(line)
    return "\n".join(out)


def with_site_links(markdown, source):
    """Converts the links of a page, relative to its place in the repository, to links of the site."""
    home = posixpath.dirname(READMES.get(source, "docs/" + source))

    def replaced(match):
        image, words, link = match.groups()
        path, hash_sign, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return match[0]
        target = posixpath.normpath(posixpath.join(home, path))
        if not (ROOT / target).exists():
            raise PluginError(f"{source}: {link} leads nowhere")
        pages = {readme: page for page, readme in READMES.items()} | {"README.md": "index.md"}
        if target in pages or target.startswith("docs/"):
            return f"{image}[{words}]({pages.get(target, target.removeprefix('docs/'))}{hash_sign}{anchor})"
        return words if words.startswith("`") else f"{words} (`{target}`)" if words.strip("/") not in target else f"`{target}`"

    return LINK.sub(replaced, markdown)
