"""How results of claims are shown: text for terminals, accessible tables for notebooks and the book."""

from __future__ import annotations

import html
import os
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .registry import Measured, Result

_SIGN = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "in": "in"}
# Inline, so that JupyterLab and the book show the same; JupyterLab aligns cells to the right by itself.
_CELL = ' style="text-align:left;font-weight:normal;padding:.25em .6em"'
_HEAD = ' style="text-align:left;padding:.25em .6em"'
_TEXT = ' style="text-align:left;margin:.3em 0"'
_COLUMNS = ("quantity", "measured", "required", "verdict")


def number(value: float) -> str:
    """Write four significant digits, two of a tiny number; whole numbers in full, truth values in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value) if isinstance(value, int) else f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.2g}"
    return re.sub(r"e([+-])0*", r"e\1", text).replace("e+", "e").replace("-", "−")


def demand(row: Measured) -> str:
    """Right-hand side of a row: "≤ 1e-08", "in [0.1, 0.2]"."""
    if isinstance(row.bound, tuple):
        return f"in [{number(row.bound[0])}, {number(row.bound[1])}]"
    tolerance = f" ± {number(row.tol)}" if row.tol else ""
    return f"{_SIGN[row.relation]} {number(row.bound)}{tolerance}"


def verdict(row: Measured) -> str:
    """Verdict of a row in words."""
    if row.breaks:
        return "fails, as it should" if row.passed else "FAILED: nothing breaks"
    return "passed" if row.passed else "FAILED"


def setting(result: Result) -> str:
    """Scope, seeds and number of trials of a result."""
    claim = result.claim
    trials = (
        f"{result.trials} trial{'s' if result.trials > 1 else ''}"
        if claim.check and max(claim.trials) > 1
        else ""
    )
    seeds = f"seeds {claim.seeds}" if claim.seeds else ""
    return "; ".join(part for part in (claim.scope.rstrip("."), seeds, trials) if part)


def result_text(result: Result) -> str:
    """Plain text: a headline, then one line a row."""
    claim = result.claim
    lines = [f"{claim.kind} {claim.label} ({claim.title}): {result.verdict}"]
    for row in result.rows:
        what = f"without the assumption: {row.what}" if row.breaks else row.what
        note = f" ({row.note})" if row.note else ""
        lines.append(f"  {what}: measured {number(row.value)}, required {demand(row)}: {verdict(row)}{note}")
    lines += [f"  {text}" for text in (setting(result), claim.why, result.error) if text]
    return "\n".join(lines)


def rich(text: str) -> str:
    r"""Escaped HTML, where $...$ has become \(...\) for MathJax."""
    return re.sub(r"\$([^$]+)\$", r"\\(\1\\)", html.escape(text, quote=False))


def result_html(result: Result, heading: bool = True) -> str:
    """One table: a row for each measurement; the caption carries the verdict in words."""
    claim = result.claim
    mark = "✗" if not result.passed else "✓" if claim.check else "–"
    head = f"<strong>{mark} {result.verdict}</strong>" + (f" · {rich(claim.title)}" if heading else "")
    ground = ". ".join(text for text in (setting(result), f"Source: {claim.source.rstrip('.')}.") if text)
    lines = [f"<small>{rich(ground)}</small>"]
    lines[:0] = [rich(text) for text in (claim.why, result.error) if text]
    foot = "".join(f"<p{_TEXT}>{line}</p>" for line in lines)
    box = '<div class="svm-check tex2jax_process" style="margin-bottom:1.6em">'
    if not result.rows:
        return f"{box}<p{_TEXT}>{head}</p>{foot}</div>"
    name = f"Check of {html.escape(claim.label)}"
    columns = "".join(f'<th scope="col"{_HEAD}>{column}</th>' for column in _COLUMNS)
    return (
        f'{box}<div role="region" tabindex="0" aria-label="{name}" style="overflow-x:auto">'
        '<table class="table" style="width:100%;margin:.3em 0;font-size:.93em">'
        f'<caption style="text-align:left;caption-side:top">{head}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(map(_row, result.rows))}</tbody></table>"
        f"</div>{foot}</div>"
    )


def _row(row: Measured) -> str:
    what = f"<em>without the assumption:</em> {rich(row.what)}" if row.breaks else rich(row.what)
    if row.note:
        what += f" <small>({rich(row.note)})</small>"
    word = verdict(row) if row.passed else f"<strong>{verdict(row)}</strong>"
    cells = "".join(f"<td{_CELL}>{text}</td>" for text in (number(row.value), html.escape(demand(row)), word))
    return f'<tr><th scope="row"{_CELL}>{what}</th>{cells}</tr>'


def summary(results: tuple[Result, ...]) -> str:
    """How many statements were measured, with how many numbers, and how they came out."""
    measured = [r for r in results if r.claim.check]
    rows = [row for r in results for row in r.rows]
    failed = sum(not r.passed for r in results)
    broken = sum(row.breaks for row in rows)
    text = (
        f"The ledger holds {len(results)} statements. Numbers check {len(measured)} of them, in {len(rows)} "
        f"rows, {broken} of which show what breaks without an assumption. "
    )
    if len(measured) < len(results):
        text += f"For the other {len(results) - len(measured)} it says why numbers cannot. "
    return text + (
        "All measurements are as required." if not failed else f"FAILED: {failed} of the statements."
    )


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Results grouped by chapter: Markdown with links in the book's build, HTML elsewhere."""

    results: tuple[Result, ...]

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.results))

    def markdown(self) -> str:
        """MyST source, in which each result stands under a link to its numbered statement."""
        parts = []
        for chapter, group in groupby(self.results, key=lambda r: r.claim.chapter):
            parts.append(f":::{{rubric}} {{doc}}`/book/{chapter}`\n:::")
            for result in group:
                claim = result.claim
                parts.append(f"**{{prf:ref}}`{claim.label}`** · {claim.title}")
                parts.append(result_html(result, heading=False))
        return "\n\n".join(parts)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        # A role is a link with the statement's number on a page that Sphinx builds, and noise in JupyterLab.
        if os.environ.get("SVMLIB_BOOK") == "1":
            return {"text/markdown": self.markdown(), "text/plain": repr(self)}
        parts = []
        for chapter, group in groupby(self.results, key=lambda r: r.claim.chapter):
            parts.append(f"<h3>{html.escape(chapter)}</h3>")
            parts += [f"<p><code>{html.escape(r.claim.label)}</code></p>{result_html(r)}" for r in group]
        return {"text/html": "".join(parts), "text/plain": repr(self)}
