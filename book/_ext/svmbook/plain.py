"""MyST Markdown to the plain Markdown that every notebook program shows."""

from __future__ import annotations

import re

OPEN = re.compile(r"^(?P<fence>:{3,}|`{3,}|~{3,})\{(?P<name>[\w:-]+)\}\s*(?P<arg>.*)$")
ROLE = re.compile(r"\{([\w:]+)\}`([^`]+)`")
TARGET = re.compile(r"^(.*?)\s*<([^<>]+)>$", re.DOTALL)
LABELLED = re.compile(r"\$\$ *\(([\w:-]+)\)[ \t]*$", re.MULTILINE)
STATEMENT = "prf:"
NOTES = (
    "note",
    "tip",
    "hint",
    "important",
    "warning",
    "caution",
    "attention",
    "danger",
    "error",
    "seealso",
    "admonition",
)
SITE_ONLY = ("bibliography", "tableofcontents", "contents", "toctree", "glossary", "eval-rst")


class Names:
    """What a label is called and where it leads; each answer is (text, address)."""

    def statement(self, label: str) -> tuple[str, str]:
        return "", ""

    def reference(self, label: str) -> tuple[str, str]:
        return label, ""

    numbered = equation = document = reference


def _link(text: str, url: str) -> str:
    return f"[{text}]({url})" if url else text


def roles(text: str, names: Names) -> str:
    """Replace inline roles by linked text."""

    def one(match: re.Match[str]) -> str:
        role, content = match.groups()
        titled = TARGET.match(content)
        title, target = titled.groups() if titled else ("", content)
        if role in ("prf:ref", "ref"):
            name, url = names.reference(target)
        elif role == "numref":
            name, url = names.numbered(target)
            title = title.replace("%s", name.split()[-1]) if "%s" in title else title
        elif role == "eq":
            name, url = names.equation(target)
        elif role == "doc":
            name, url = names.document(target)
        elif role.startswith("cite"):
            return "[" + ", ".join(k.strip() for k in content.split(",")) + "]"
        elif role == "term":
            return title or target
        elif role == "math":
            return f"${content}$"
        elif role.startswith("py:") or role in ("func", "class", "mod", "code", "kbd", "download"):
            return f"`{(title or target).lstrip('~')}`"
        else:
            return title or target
        return _link(title or name, url)

    return ROLE.sub(one, text)


def _options(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    if lines and lines[0].strip() == "---":
        end = next((i for i, x in enumerate(lines[1:], 1) if x.strip() == "---"), len(lines) - 1)
        for line in lines[1:end]:
            key, _, value = line.partition(":")
            options[key.strip()] = value.strip()
        return options, lines[end + 1 :]
    while lines and re.match(r"^:[\w-]+:", lines[0]):
        key, _, value = lines[0][1:].partition(":")
        options[key] = value.strip()
        lines = lines[1:]
    return options, lines


def _quote(text: str) -> str:
    return "\n".join("> " + line if line else ">" for line in text.strip().split("\n"))


def _tag(label: str, names: Names) -> str:
    number = names.equation(label)[0].strip("()") if label else ""
    return f" \\tag{{{number}}}" if number and number != label else ""


def _directive(name: str, arg: str, body: list[str], names: Names) -> str:
    options, body = _options(body)
    label = options.get("label", "")
    if name == "math":
        return "$$\n" + "\n".join(body).strip() + _tag(label, names) + "\n$$"
    if name in SITE_ONLY or name.endswith("-end"):
        return ""
    arg = roles(arg, names)
    if name.endswith("-start"):
        name = name.removesuffix("-start")
    text = markdown("\n".join(body), names).strip()
    if name == "prf:proof":
        return f"*Proof.* {arg + ' ' if arg else ''}{text} $\\square$"
    if name.startswith(STATEMENT) or name == "exercise":
        kind = names.statement(label)[0] or name.removeprefix(STATEMENT).capitalize()
        head = f"**{kind}{f' ({arg})' if arg else ''}.**"
        return _quote(f"{head}\n\n{text}") if text else head
    if name == "solution":
        return f"**Solution to {names.statement(arg)[0] or arg}.**\n\n{text}"
    if name in NOTES:
        return _quote(f"**{arg or name.capitalize()}**\n\n{text}")
    if name == "dropdown":
        return f"<details><summary>{arg}</summary>\n\n{text}\n\n</details>"
    if name in ("figure", "image"):
        return f"*{text or options.get('alt', '')}*"
    return f"**{arg}**\n\n{text}" if arg and not re.fullmatch(r"[\d ]+", arg) else text


def markdown(text: str, names: Names) -> str:
    """Convert one Markdown cell."""
    lines, i = text.split("\n"), 0
    out: list[str] = []  # finished text
    open_lines: list[str] = []  # lines whose roles are still to be replaced

    def settle() -> None:
        if open_lines:
            joined = "\n".join(open_lines)
            joined = LABELLED.sub(lambda m: _tag(m[1], names) + "$$", joined)
            out.append(roles(joined, names))
            open_lines.clear()

    while i < len(lines):
        line = lines[i]
        opened = OPEN.match(line)
        fence = re.match(r"^(`{3,}|~{3,})", line)
        if opened or fence:
            mark = opened["fence"] if opened else fence[1]  # type: ignore[index]
            end = next((j for j in range(i + 1, len(lines)) if _closes(lines[j], mark)), len(lines))
            settle()
            if opened:
                out.append(_directive(opened["name"], opened["arg"].strip(), lines[i + 1 : end], names))
            else:
                out.append("\n".join(lines[i : end + 1]))
            i = end + 1
        elif re.match(r"^\([\w-]+\)=$", line) or line.startswith("% "):
            i += 1
        else:
            open_lines.append(line)
            i += 1
    settle()
    return "\n".join(out)


def _closes(line: str, mark: str) -> bool:
    line = line.strip()
    return bool(line) and set(line) == {mark[0]} and len(line) >= len(mark)
