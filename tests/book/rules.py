"""The style rules of a chapter, each a function from a page's text to what breaks it."""

from __future__ import annotations

import ast
import re

from chapters import directives, options_and_code, prose

BELITTLING = ("obviously", "simply", "just", "clearly", "trivially", "of course", "easy to see")
GLOBAL_STYLE = ("rc", "rcParams", "rc_context", "style", "rcdefaults")
SEEDERS = ("manual_seed", "seed")
LONGEST_DEF = 5
LABELLED = (
    "definition",
    "theorem",
    "lemma",
    "proposition",
    "corollary",
    "algorithm",
    "assumption",
    "conjecture",
)


def _cells(text: str) -> list[tuple[int, dict, str, ast.Module]]:
    found = []
    for cell in (d for d in directives(text) if d.name == "code-cell"):
        options, code = options_and_code(cell)
        plain = "\n".join("pass" if re.match(r"\s*[%!]", line) else line for line in code.split("\n"))
        found.append((cell.line, options, code, ast.parse(plain)))
    return found


def belittling_words(text: str) -> list[str]:
    pattern = re.compile(r"\b(" + "|".join(BELITTLING) + r")\b", re.IGNORECASE)
    lines = enumerate(prose(text).split("\n"), 1)
    return [f"line {number}: {match[0]!r}" for number, line in lines for match in pattern.finditer(line)]


def long_functions(text: str) -> list[str]:
    return [
        f"line {line}: def {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for line, _, _, tree in _cells(text)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > LONGEST_DEF
    ]


def global_state(text: str) -> list[str]:
    """Style or seeds that a cell sets for every later cell."""
    found = []
    for line, _, _, tree in _cells(text):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute):
                continue
            owner = ast.unparse(node.value)
            if node.attr in GLOBAL_STYLE and owner in ("plt", "mpl", "matplotlib", "matplotlib.pyplot"):
                found.append(f"line {line}: {owner}.{node.attr}")
            if node.attr in SEEDERS and owner in ("torch", "np.random", "numpy.random", "random"):
                found.append(f"line {line}: {owner}.{node.attr}")
    return found


def figures_without_text(text: str) -> list[str]:
    """Figures of code cells, and figure directives, that lack a caption, a name or a text alternative."""
    found = []
    for line, options, _, _ in _cells(text):
        nb = options.get("mystnb") or {}
        if not isinstance(nb, dict) or not ("figure" in nb or "image" in nb):
            continue
        figure, image = nb.get("figure") or {}, nb.get("image") or {}
        missing = [k for k in ("name", "caption") if not figure.get(k)] + (
            [] if image.get("alt") else ["alt"]
        )
        found += [f"line {line}: no {k}" for k in missing]
    for d in directives(text):
        if d.name in ("figure", "image") and not d.option("alt"):
            found.append(f"line {d.line}: {d.name} without :alt:")
    return found


def unlabelled_statements(text: str) -> list[str]:
    return [
        f"line {d.line}: {d.name} without :label:"
        for d in directives(text)
        if d.name.removeprefix("prf:") in LABELLED and d.name.startswith("prf:") and not d.option("label")
    ]


def exercises_without_solution(text: str, at_least: int = 0) -> list[str]:
    parsed = directives(text)
    exercises = [d for d in parsed if d.name in ("exercise", "exercise-start")]
    solved = {d.argument for d in parsed if d.name in ("solution", "solution-start")}
    found = [f"line {d.line}: exercise without :label:" for d in exercises if not d.option("label")]
    found += [
        f"line {d.line}: exercise {d.option('label')} has no solution"
        for d in exercises
        if d.option("label") and d.option("label") not in solved
    ]
    if len(exercises) < at_least:
        found.append(f"{len(exercises)} exercises, at least {at_least} are wanted")
    return found


def typed_numbers(text: str) -> list[str]:
    """References to chapters, statements and figures by a number that the next edit makes wrong."""
    pattern = re.compile(
        r"\b(Chapter|Theorem|Lemma|Proposition|Corollary|Definition|Figure|Fig\.|Section) \d+(\.\d+)*\b"
    )
    outside = re.sub(r"\b(?:paper|P[123])[^.\n]*", "", prose(text))
    lines = enumerate(outside.split("\n"), 1)
    return [
        f"line {n}: {m[0]!r} is typed, use a reference" for n, line in lines for m in pattern.finditer(line)
    ]
