"""The build fails where a numbered statement has no row in the claim ledger."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

logger = logging.getLogger(__name__)
KINDS = ("theorem", "lemma", "proposition", "corollary")


def compare(statements: dict[str, dict[str, Any]], rows: Iterable[str]) -> list[tuple[str | None, str]]:
    """Differences between a book's statements and a ledger, as (page or None, message).

    `statements` is sphinx-proof's own list: label to a record with `realtype`
    and `docname`. An unlabelled statement gets the label `KIND-NUMBER` there.
    """
    rows = set(rows)
    found, seen = [], set()
    for label, record in statements.items():
        kind, page = record["realtype"], record["docname"]
        if kind not in KINDS:
            continue
        if re.fullmatch(rf"{kind}-\d+", label):
            found.append((page, f"a {kind} has no :label:, so the claim ledger cannot name it"))
            continue
        seen.add(label)
        if label not in rows:
            found.append((page, f"{kind} '{label}' has no row in the claim ledger (svmlib.checks)"))
    found += [
        (None, f"the claim ledger's row '{row}' names no statement of the book")
        for row in sorted(rows - seen)
    ]
    return found


def check(app: Sphinx, env: BuildEnvironment) -> None:
    from svmlib.checks import registry

    only = os.environ.get("SVMBOOK_ONLY")
    for page, message in compare(getattr(env, "proof_list", {}), registry.labels()):
        if only and (page is None or f"{page}.md" != only):
            continue
        logger.warning(message, location=page, type="svmbook", subtype="ledger")
