"""Notebooks for download: executed, in plain Markdown, runnable from any folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from . import plain

INSTALL = '''\
# Where svmlib is missing (on Colab, for instance) this installs it; elsewhere it does nothing.
import importlib.util

if importlib.util.find_spec("svmlib") is None:
    %pip install -q "svmlib @ git+{url}"'''
DROP = ("mystnb", "jupytext", "source_map")


def macros(config: dict[str, Any]) -> str:
    """The site's MathJax macros as definitions that a notebook's MathJax understands."""
    lines = []
    for name, value in config.get("tex", {}).get("macros", {}).items():
        body, count = value if isinstance(value, list) else (value, 0)
        lines.append(f"\\newcommand{{\\{name}}}{f'[{count}]' if count else ''}{{{body}}}")
    return "$" + " ".join(lines) + "$"


class Numbers(plain.Names):
    """What a label is called and where it leads, from Sphinx's environment."""

    def __init__(self, env: BuildEnvironment, page: str, base: str) -> None:
        self.env, self.page, self.base = env, page, base

    def _number(self, page: str, anchor: str) -> str:
        for kinds in self.env.toc_fignumbers.get(page, {}).values():
            if anchor in kinds:
                return ".".join(map(str, kinds[anchor]))
        return ""

    def statement(self, label: str) -> tuple[str, str]:
        record = getattr(self.env, "proof_list", {}).get(label)
        exercise = getattr(self.env, "sphinx_exercise_registry", {}).get(label)
        if record:
            name, page = record["realtype"].capitalize(), record["docname"]
            number = self._number(page, record["ids"][0])
        elif exercise:
            name, page = str(exercise["type"]).removesuffix("-start").capitalize(), exercise["docname"]
            number = self._number(page, label)
        else:
            return "", ""
        return f"{name} {number}".strip(), self.url(page, label)

    def reference(self, label: str) -> tuple[str, str]:
        name, url = self.statement(label)
        if name:
            return name, url
        std = self.env.get_domain("std")
        key = label.lower()
        if key in std.labels:
            page, anchor, title = std.labels[key]
            return title, self.url(page, anchor)
        if key in std.anonlabels:
            page, anchor = std.anonlabels[key]
            number = self._number(page, anchor)
            return (f"Fig. {number}" if number else label), self.url(page, anchor)
        return label, ""

    def numbered(self, label: str) -> tuple[str, str]:
        std = self.env.get_domain("std")
        page, anchor, _ = std.labels.get(label.lower(), ("", "", ""))
        if not page:
            page, anchor = std.anonlabels.get(label.lower(), ("", ""))
        number = self._number(page, anchor)
        if number:
            return f"Fig. {number}", self.url(page, anchor)
        secnumbers = self.env.toc_secnumbers.get(page, {})
        section = secnumbers.get(f"#{anchor}") or secnumbers.get("")
        if section:
            return "Section " + ".".join(map(str, section)), self.url(page, anchor)
        return self.reference(label)

    def equation(self, label: str) -> tuple[str, str]:
        page, number = self.env.get_domain("math").equations.get(label, ("", ""))
        shown = self._number(page, f"equation-{label}") or str(number)
        return (f"({shown})" if shown else label), self.url(page, f"equation-{label}")

    def document(self, target: str) -> tuple[str, str]:
        page = target.lstrip("/") if target.startswith("/") else None
        if page is None:
            parts = self.page.split("/")[:-1]
            for step in target.split("/"):
                parts = parts[:-1] if step == ".." else parts if step == "." else [*parts, step]
            page = "/".join(parts)
        title = self.env.titles.get(page.removesuffix(".md"))
        return (title.astext() if title else target), self.url(page.removesuffix(".md"))

    def url(self, page: str, anchor: str = "") -> str:
        return f"{self.base}{page}.html" + (f"#{anchor}" if anchor else "") if page else ""


def rewrite(path: Path, names: plain.Names, prelude: list[Any]) -> None:
    """Turn MyST-NB's executed notebook into one that stands alone; does nothing twice."""
    nb = nbformat.read(path, as_version=4)
    if nb.metadata.get("svmbook"):
        return
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = plain.markdown(cell.source, names)
        cell.metadata.pop("mystnb", None)
    nb.cells = prelude + [c for c in nb.cells if c.source.strip()]
    for key in DROP:
        nb.metadata.pop(key, None)
    nb.metadata["svmbook"] = True
    nbformat.write(nb, path)


def finish(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    url = app.config.html_theme_options["repository_url"]
    for path in sorted((Path(app.outdir) / "_sources").rglob("*.ipynb")):
        page = path.relative_to(Path(app.outdir) / "_sources").with_suffix("").as_posix()
        intro = (
            f"*{app.config.html_title}*: this notebook is made from "
            f"[its page]({app.config.html_baseurl}{page}.html).\n\n" + macros(app.config.mathjax3_config)
        )
        note = nbformat.v4.new_markdown_cell(intro, id="svmbook-note")
        install = nbformat.v4.new_code_cell(INSTALL.format(url=url), id="svmbook-install")
        rewrite(path, Numbers(app.env, page, app.config.html_baseurl), [note, install])


def leftovers(text: str) -> list[str]:
    """MyST syntax that a plain Markdown reader would show raw."""
    return re.findall(r"^:{3,}.*|^`{3,}\{.*|\{[a-z:]+\}`[^`]*`|^\([a-z0-9-]+\)=$", text, re.MULTILINE)
