"""What the tests of the book read: its pages, its code cells, its prose."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(os.environ.get("SVMBOOK_SITE", ROOT / "_build" / "test" / "html"))

FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,}|~{3,})\{(?P<name>[\w:-]+)\}[ ]*(?P<arg>.*)$")


def pages(numbered: bool = False) -> list[str]:
    """The pages of _toc.yml without suffix; with `numbered` only the chapters."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    parts = [p for p in toc["parts"] if p.get("numbered") or not numbered]
    listed = [chapter["file"] for part in parts for chapter in part["chapters"]]
    return listed if numbered else [toc["root"], *listed]


@dataclass(frozen=True)
class Directive:
    name: str
    argument: str
    body: str
    line: int

    def option(self, key: str) -> str | None:
        found = re.search(rf"^:{key}:[ ]*(.*)$", self.body, re.MULTILINE)
        return found[1] if found else None


def directives(text: str, first: int = 1) -> list[Directive]:
    """All MyST directives of a text, nested ones too, in order."""
    lines, found, i = text.split("\n"), [], 0
    while i < len(lines):
        opened = FENCE.match(lines[i])
        if not opened:
            i += 1
            continue
        mark = opened["fence"]
        end = i + 1
        while end < len(lines) and not (lines[end].startswith(mark) and set(lines[end].strip()) == {mark[0]}):
            end += 1
        body = "\n".join(lines[i + 1 : end])
        found.append(Directive(opened["name"], opened["arg"].strip(), body, first + i))
        if opened["name"] != "code-cell":
            found += directives(body, first + i + 1)
        i = end + 1
    return found


def options_and_code(cell: Directive) -> tuple[dict, str]:
    """A code cell's options and its source."""
    lines = cell.body.split("\n")
    if lines and lines[0].strip() == "---":
        end = next(i for i in range(1, len(lines)) if lines[i].strip() == "---")
        return yaml.safe_load("\n".join(lines[1:end])) or {}, "\n".join(lines[end + 1 :])
    options: dict = {}
    while lines and re.match(r"^:[\w-]+:", lines[0]):
        key, _, value = lines.pop(0)[1:].partition(":")
        options[key] = yaml.safe_load(value)
    return options, "\n".join(lines)


def prose(text: str) -> str:
    """A page without front matter, code and mathematics; lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    text = re.sub(r"\A---\n.*?\n---\n", blank, text, flags=re.DOTALL)
    text = re.sub(
        r"^(`{3,})(\{code-cell\}|\{math\}|[a-z]*$).*?^\1\s*$", blank, text, flags=re.DOTALL | re.MULTILINE
    )
    text = re.sub(r"\$\$.*?\$\$", blank, text, flags=re.DOTALL)
    text = re.sub(r"(?<!\$)\$[^$\n]+(?:\n[^$\n]+)?\$", blank, text)
    return re.sub(r"(?<!`)`[^`\n]+`(?!`)", "", text)


def source(page: str) -> str:
    return (ROOT / f"{page}.md").read_text("utf-8")
