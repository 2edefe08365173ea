"""Docstring and signature of an experiment's public function, made from those of its author's function."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

COMMON = """\
trials : int, optional
    {trials}
seed : int
    Seed of the first instance.
device : str, optional
    None or "cpu", "cuda", "auto"; see :func:`svmlib.arrays.resolve_device`.
progress : bool
    Whether to show progress bars.
folder : path_like, optional
    Where to store finished parts, from which an interrupted run goes on, and then the record."""

RECORD = """\
Record
    Numbers with their origin, see :class:`Record`. Its arrays:
"""


def signature(public: Callable[..., Any], f: Callable[..., Any]) -> inspect.Signature:
    """Return the common arguments followed by the experiment's options."""
    common = [
        p
        for p in inspect.signature(public, follow_wrapped=False).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    options = list(inspect.signature(f).parameters.values())[1:]
    return inspect.Signature([*common, *options], return_annotation="Record")


def docstring(f: Callable[..., Any], about: str, source: str, trials: int) -> str:
    """Return the author's text with the common arguments in the place of ``task``."""
    text = inspect.cleandoc(f.__doc__ or f"{about[:1].upper()}{about[1:]}.")
    head, *sections = re.split(r"\n+(?=[A-Z][A-Za-z ]+\n-{3,}\n)", text)
    found = {}
    for section in sections:
        title, _, body = section.split("\n", 2)
        found[title] = body
    options = re.sub(r"^task\b.*\n?(?:[ \t]+.*\n?|\n(?=[ \t]))*", "", found.get("Parameters", ""), flags=re.M)
    says = f"Number of trials: {trials} by default, fewer under SVMLIB_SCALE=test."
    common = COMMON.format(trials="Only 1: this is a single run." if trials == 1 else says)
    found["Parameters"] = "\n".join(filter(None, (common, options.strip("\n"))))
    arrays = found.get("Returns", "").strip("\n")
    found["Returns"] = (
        f"{RECORD}\n{textwrap.indent(arrays, '    ')}" if arrays else RECORD.replace(" Its arrays:", "")
    )
    order = ["Parameters", "Returns", *(t for t in found if t not in ("Parameters", "Returns"))]
    blocks = [f"{title}\n{'-' * len(title)}\n{found[title].rstrip()}" for title in order]
    return "\n\n".join([head, f"Source: {source.rstrip('.')}.", *blocks]) + "\n"
