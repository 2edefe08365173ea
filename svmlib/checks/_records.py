"""Records of the claim ledger: a claim, what it measured, and what is demanded of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from svmlib.arrays import check_integer
from svmlib.errors import DataError, SvmlibError

from . import _render

KINDS = ("theorem", "lemma", "proposition", "corollary")
RELATIONS = ("<", "<=", ">", ">=", "==", "in")


class CheckFailed(SvmlibError, AssertionError):
    """A measurement contradicts the statement that it checks."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured number and what the statement demands of it.

    Attributes
    ----------
    what : str
        The quantity in words, with its unit; ``$...$`` is typeset.
    value : float, int or bool
        What came out.
    relation : str
        "<", "<=", ">", ">=", "==" (up to ``tol``) or "in" (a closed interval).
    bound : float, int, bool, or pair of them
        The right-hand side; a pair (low, high) for "in".
    note : str
        A remark shown beside the number.
    tol : float
        Largest allowed distance of value and bound for "==".
    breaks : bool
        True for a row that drops an assumption: it passes when the conclusion *fails* on its instance,
        so its relation states how.

    Raises
    ------
    DataError
        If the relation is unknown, the value or the tolerance is not one number, or a bound is not finite:
        such a row could not fail.

    Examples
    --------
    >>> Measured("relative violation", 3e-12, "<=", 1e-8).passed
    True
    >>> Measured("smallest margin of no token", float("inf"), ">=", 1.0).passed
    False
    """

    what: str
    value: Any
    relation: str
    bound: Any
    note: str = ""
    tol: float = 0.0
    breaks: bool = False

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise DataError(f"relation must be one of {RELATIONS}, got {self.relation!r} ({self.what}).")
        object.__setattr__(self, "value", _number(self.value, "value", self.what))
        if self.relation == "in":
            if not isinstance(self.bound, Sequence) or len(self.bound) != 2:
                raise DataError(
                    f'bound must be a pair (low, high) for "in", got {self.bound!r} ({self.what}).'
                )
            limits = tuple(_number(b, "bound", self.what) for b in self.bound)
            object.__setattr__(self, "bound", limits)
        else:
            limits = (_number(self.bound, "bound", self.what),)
            object.__setattr__(self, "bound", limits[0])
        if not all(map(math.isfinite, limits)) or list(limits) != sorted(limits):
            raise DataError(f"bound must be finite, and low <= high, got {self.bound!r} ({self.what}).")
        object.__setattr__(self, "tol", _number(self.tol, "tol", self.what))
        if not (math.isfinite(self.tol) and self.tol >= 0):
            raise DataError(f"tol must be finite and not negative, got {self.tol!r} ({self.what}).")

    @property
    def passed(self) -> bool:
        """Whether the number is as demanded; NaN and infinities, signs of an empty measurement, never do."""
        value, bound = float(self.value), self.bound
        if not math.isfinite(value):
            return False
        if isinstance(bound, tuple):
            return bool(bound[0] <= value <= bound[1])
        holds = {
            "<": value < bound,
            "<=": value <= bound,
            ">": value > bound,
            ">=": value >= bound,
            "==": abs(value - bound) <= self.tol,
        }
        return bool(holds[self.relation])


def _number(value: object, name: str, what: str) -> float:
    """Plain bool, int or float of a scalar, numpy's and torch's too."""
    item = getattr(value, "item", None)
    try:
        plain = item() if callable(item) else value
    except (TypeError, ValueError, RuntimeError):
        plain = value
    if not isinstance(plain, bool | int | float):
        raise DataError(f"{name} must be one number, got {type(value).__name__} ({what}).")
    if isinstance(plain, int) and abs(plain) > sys.float_info.max:
        raise DataError(
            f"{name} must be below 1e308 in size, got an integer of {plain.bit_length()} bits ({what}). "
            "Measure its logarithm."
        )
    return plain


Check: TypeAlias = Callable[[int], "Measured | Sequence[Measured]"]


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """A numbered statement with the function that measures it, or with the reason why none does.

    Attributes
    ----------
    label : str
        Label of the statement in the book.
    title, kind, source, chapter, scope, seeds : str
        Title; "theorem", "lemma", "proposition" or "corollary"; where it comes from; its page under
        ``book/`` without the ending; the instances that are measured; the seeds.
    trials : pair of int
        Number of trials at full and at test scale.
    check : callable or None
        ``(trials) -> Measured | list[Measured]``.
    why : str
        Where ``check`` is None: why numbers cannot check the statement.

    Raises
    ------
    DataError
        If a text is missing, the kind is unknown, or ``check`` is not callable.
    ShapeError
        If a number of trials is no positive integer.
    """

    label: str
    title: str
    kind: str
    source: str
    chapter: str
    scope: str
    seeds: str
    trials: tuple[int, int]
    check: Check | None
    why: str = ""

    def __post_init__(self) -> None:
        for name in ("label", "title", "source", "chapter"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise DataError(
                    f"{name} of {self.label!r} must be a text for the ledger to show, got {text!r}."
                )
        if self.kind not in KINDS:
            raise DataError(f"kind of {self.label!r} must be one of {KINDS}, got {self.kind!r}.")
        if not isinstance(self.trials, tuple) or len(self.trials) != 2:
            raise DataError(f"trials of {self.label!r} must be a pair (full, test), got {self.trials!r}.")
        for count in self.trials:
            check_integer(count, f"trials of {self.label!r}")
        if self.check is not None and not callable(self.check):
            raise DataError(
                f"The check of {self.label!r} must be a function (trials) -> Measured, got {self.check!r}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a claim measured.

    Attributes
    ----------
    claim : Claim
        The statement.
    rows : tuple of Measured
        The measurements; empty where the claim gives a reason instead.
    trials : int
        Number of trials of this run.
    error : str
        The exception that ended the measurement, if one did (``run_all`` only).
    """

    claim: Claim
    rows: tuple[Measured, ...]
    trials: int
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether every row is as demanded; a statement with a reason has nothing to fail."""
        return not self.error and all(row.passed for row in self.rows)

    @property
    def verdict(self) -> str:
        """Verdict in words: "passed", "FAILED", or "not checked by numbers"."""
        return ("passed" if self.claim.check else "not checked by numbers") if self.passed else "FAILED"

    def __repr__(self) -> str:
        return _render.result_text(self)

    def _repr_html_(self) -> str:
        return _render.result_html(self)
