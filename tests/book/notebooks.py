"""What a downloaded notebook needs from the place where it runs, and which ones to execute for real.

The build has executed every cell of every page. A notebook with the same cells can still fail where the page
did not: it runs in another folder, without the repository on the path, and outside the book's build.
`reasons` finds the cells for which that can matter.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re

from bs4 import BeautifulSoup
from chapters import ROOT, directives, options_and_code, pages, source
from svmbook import execution

EVERYTHING = os.environ.get("SVMBOOK_TESTS") == "all"
WITH_CODE = [page for page in pages() if "{code-cell}" in source(page)]
BY_TURNS = 2
SYSTEM = {
    "builtins", "glob", "importlib", "inspect", "io", "linecache", "os", "pathlib", "pkgutil", "runpy",
    "shutil", "site", "subprocess", "sys", "tempfile", "urllib",
}  # fmt: skip
FILES = re.compile(
    r"_?_?(open\w*|exec|eval|compile|import|file)_?_?|Path|(read|load|from_?file|im(read|save))\w*"
)
SUFFIX = re.compile(r"^[\w./~-]+\.(bib|csv|jpe?g|json|md|np[yz]|pickle|pkl|png|pth?|py|svg|toml|txt|ya?ml)$")
LIVE = {"widgets"}  # the build has no kernel to answer a control, and shows a picture


def code(page: str) -> list[str]:
    """The page's code cells, in order."""
    return [options_and_code(d)[1].strip() for d in directives(source(page)) if d.name == "code-cell"]


def shown(html: str) -> list[tuple[str, bool]]:
    """The cells that a built page shows: the code, and whether there is an output."""
    cells = BeautifulSoup(html, "html.parser").select("article div.cell")
    return [
        (c.select_one("div.cell_input pre").get_text().strip(), c.select_one("div.cell_output") is not None)
        for c in cells
    ]


def differences(nb, page: str, html: str) -> list[str]:
    """Where a notebook's cells, behind the one that installs, are not those executed for its page."""
    cells = [c for c in nb.cells if c.cell_type == "code"][1:]
    theirs, written, built = [c.source.strip() for c in cells], code(page), shown(html)
    if not len(theirs) == len(written) == len(built):
        return [f"{len(theirs)} code cells, {len(written)} in the source, {len(built)} on the page"]
    found = []
    for i, (cell, text, (seen, output)) in enumerate(zip(cells, written, built, strict=True), 1):
        if not cell.source.strip() == text == seen:
            found.append(f"cell {i} differs: {cell.source[:60]!r}, source {text[:60]!r}, page {seen[:60]!r}")
        if bool(cell.outputs) != output:
            found.append(f"cell {i}: outputs {bool(cell.outputs)}, on the page {output}")
        if cell.execution_count != i:
            found.append(f"cell {i} was executed as number {cell.execution_count}")
        for out in cell.outputs:
            if out.output_type == "error" or out.get("name") == "stderr":
                found.append(f"cell {i} carries an error or a warning: {str(out)[:120]}")
    return found


def _names_a_file(text: str, page: str) -> bool:
    if len(text) > 200 or not ("." in text or "/" in text) or not text.strip("./ "):
        return False
    looks = SUFFIX.match(text) or text.startswith(("../", "./", "~/", "/"))
    return bool(looks) or any((home / text).exists() for home in ((ROOT / page).parent, ROOT))


def reasons(cells: list[str], page: str) -> list[str]:
    """What in these cells may depend on the folder, on the path or on the build."""
    found = []
    for cell in cells:
        found += [line.strip() for line in cell.split("\n") if re.match(r"\s*[%!]", line)]
        plain = "\n".join(line for line in cell.split("\n") if not re.match(r"\s*[%!]", line))
        for node in ast.walk(ast.parse(plain)):
            match node:
                case ast.Import(names=names):
                    found += [n.name for n in names if n.name.split(".")[0] in SYSTEM]
                case ast.ImportFrom(module=module, level=level):
                    if level or (module or "").split(".")[0] in SYSTEM:
                        found.append(f"from {'.' * level}{module or ''}")
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    if name in LIVE or FILES.fullmatch(name):
                        found.append(name)
                case ast.Constant(value=str(text)):
                    if _names_a_file(text, page):
                        found.append(repr(text))
    return found


def imports(cells: list[str]) -> str:
    """The import statements of some cells, as one program."""
    plain = "\n".join(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell, flags=re.MULTILINE) for cell in cells)
    wanted = [n for n in ast.walk(ast.parse(plain)) if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(map(ast.unparse, wanted))


def turn(cells: list[str], key: str) -> str:
    """A number that changes with a page's cells and with the library: the lowest ones are executed."""
    return hashlib.sha256("\n".join([key, *cells]).encode()).hexdigest()


def chosen() -> list[str]:
    """The notebooks to execute in full: the first, those with a reason, and some by turns; or all."""
    if EVERYTHING:
        return WITH_CODE
    key = execution.digest()
    cells = {page: code(page) for page in WITH_CODE}
    must = {page for page in WITH_CODE if page == WITH_CODE[0] or reasons(cells[page], page)}
    others = sorted(set(WITH_CODE) - must, key=lambda page: turn([page, *cells[page]], key))
    must.update(others[:BY_TURNS])
    return [page for page in WITH_CODE if page in must]
