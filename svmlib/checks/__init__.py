"""The claim ledger: each numbered statement of the book, measured.

>>> import svmlib as sv
>>> sv.checks.run("thm-feasibility")  # doctest: +SKIP
"""

from __future__ import annotations

from .registry import (
    CheckFailed,
    Claim,
    Measured,
    Result,
    claim,
    claims,
    labels,
    reason,
    require,
    run,
    run_all,
    summary,
    table,
)

__all__ = [
    "CheckFailed",
    "Claim",
    "Measured",
    "Result",
    "claim",
    "claims",
    "labels",
    "reason",
    "require",
    "run",
    "run_all",
    "summary",
    "table",
]
