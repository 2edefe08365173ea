"""Claims: functions that measure a numbered statement, and what their measurements must satisfy.

A chapter's module of this package registers its claims with :func:`claim`; modules are found by name and
imported when the ledger is first asked for anything.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import TypeVar

from svmlib.arrays import check_integer
from svmlib.errors import DataError

from . import _render
from ._records import Check, CheckFailed, Claim, Measured, Result

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

CHAPTERS = (
    "foundations/selector",
    "foundations/margins",
    "foundations/one_query",
    "implicit_bias/attention_svm",
    "implicit_bias/descent",
    "implicit_bias/regularization_paths",
    "implicit_bias/low_rank",
    "convergence/local_global",
    "convergence/global_convergence",
    "convergence/overparameterization",
    "convergence/head_and_query",
    "nonlinear/composition",
    "nonlinear/generalized_svm",
    "nonlinear/sequences",
    "nonlinear/hierarchy",
    "scan_snap/long_sequences",
    "scan_snap/decoder",
    "scan_snap/scanning",
    "scan_snap/snapping",
    "scan_snap/experiments",
    "scan_snap/real_text",
    "scan_snap/two_theories",
)
"""Pages of the book that state claims, in the order of its table of contents."""

T = TypeVar("T", Measured, Result)

_CLAIMS: dict[str, Claim] = {}
_loaded = False


def claim(
    label: str,
    *,
    title: str,
    source: str,
    chapter: str,
    kind: str = "theorem",
    scope: str = "",
    seeds: str = "",
    trials: tuple[int, int] = (1, 1),
) -> Callable[[Check], Check]:
    """Register a function that measures the statement ``label``.

    Parameters
    ----------
    label : str
        Label of the statement in the book.
    title, source, chapter, kind, scope, seeds, trials
        See :class:`Claim`.

    Returns
    -------
    callable
        Decorator that returns the function as it is.

    Raises
    ------
    DataError
        If another function has the label, or a field is not allowed (as :class:`Claim` says).
    """

    def register(check: Check) -> Check:
        _add(Claim(label, title, kind, source, chapter, scope, seeds, trials, check))
        return check

    return register


def reason(label: str, *, title: str, source: str, chapter: str, why: str, kind: str = "theorem") -> None:
    """Register a statement that numbers cannot check, and say why.

    Parameters
    ----------
    label, title, source, chapter
        See :class:`Claim`.
    why : str
        The reason, a sentence.
    kind : str
        See :class:`Claim`.

    Raises
    ------
    DataError
        If the label is taken, or there is no reason.
    """
    if not isinstance(why, str) or not why.strip():
        raise DataError(f"{label!r} has neither a check nor a reason (why=).")
    _add(Claim(label, title, kind, source, chapter, "", "", (1, 1), None, why))


def _origin(entry: Claim) -> tuple[str, str]:
    check = entry.check
    return (
        (getattr(check, "__module__", ""), getattr(check, "__qualname__", "")) if check else ("", entry.why)
    )


def _add(entry: Claim) -> None:
    old = _CLAIMS.get(entry.label)
    # The same function again is its module being reloaded, as %autoreload does: the new one counts.
    if old is not None and _origin(old) != _origin(entry):
        raise DataError(
            f"{entry.label!r} is registered twice, by {'.'.join(_origin(old))} and "
            f"{'.'.join(_origin(entry))}. A statement has one row; let one function return several Measured."
        )
    _CLAIMS[entry.label] = entry


def _load() -> None:
    global _loaded
    if not _loaded:
        package = importlib.import_module(__package__)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{__package__}.{module.name}")
        _loaded = True


def claims() -> tuple[Claim, ...]:
    """All claims: chapters in the order of the book, statements in the order of their modules.

    Returns
    -------
    tuple of Claim
        Each of them once.
    """
    _load()
    order = {page: number for number, page in enumerate(CHAPTERS)}
    return tuple(sorted(_CLAIMS.values(), key=lambda c: (order.get(c.chapter, len(order)), c.chapter)))


def labels() -> set[str]:
    """Return the labels of all claims, those with a reason too.

    Returns
    -------
    set of str
        Labels as in the chapters.
    """
    _load()
    return set(_CLAIMS)


def _find(label: str) -> Claim:
    _load()
    if not isinstance(label, str):
        raise DataError(
            f'label must be a text such as "thm-feasibility", got {label!r}. checks.labels() has all of them.'
        )
    if label not in _CLAIMS:
        close = difflib.get_close_matches(label, _CLAIMS, n=3)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise DataError(
            f"No claim is called {label!r}; {len(_CLAIMS)} are registered, see checks.labels().{hint}"
        )
    return _CLAIMS[label]


def _measure(entry: Claim, trials: int | None) -> Result:
    if trials is None:
        # imported late: the ledger can be read without torch
        from svmlib.experiments import trials as at_scale

        trials = at_scale(*entry.trials)
    trials = check_integer(trials, "trials")
    if entry.check is None:
        return Result(entry, (), trials)
    found = entry.check(trials)
    rows = (found,) if isinstance(found, Measured) else _all(found, Measured, f"The check of {entry.label!r}")
    if not rows:
        raise DataError(f"The check of {entry.label!r} measured nothing: it returned no Measured.")
    return Result(entry, rows, trials)


def _all(found: Iterable[T], kind: type[T], where: str) -> tuple[T, ...]:
    """Return what was found as a tuple, all of one kind."""
    items = tuple(found) if isinstance(found, Iterable) else (found,)
    for item in items:
        if not isinstance(item, kind):
            raise DataError(
                f"{where} must give one or several {kind.__name__}, but {type(item).__name__} is among them."
            )
    return items


def run(label: str, trials: int | None = None) -> Result:
    """Measure one statement.

    Parameters
    ----------
    label : str
        Its label in the book.
    trials : int, optional
        Number of trials; by default the claim's own, smaller where ``SVMLIB_SCALE=test``.

    Returns
    -------
    Result
        Shown as a table in a notebook.

    Raises
    ------
    CheckFailed
        If a measurement is not as demanded. The message has the whole table.
    DataError
        If there is no such claim, SVMLIB_SCALE is neither "full" nor "test", or the check returns anything
        but :class:`Measured`.
    ShapeError
        If ``trials`` is no positive integer.
    """
    result = _measure(_find(label), trials)
    if not result.passed:
        raise CheckFailed(repr(result))
    return result


def run_all(progress: Callable[[str], object] | None = None) -> tuple[Result, ...]:
    """Measure every statement, and go on where one fails.

    Parameters
    ----------
    progress : callable, optional
        Called with each label before its turn, for example ``print``.

    Returns
    -------
    tuple of Result
        In the order of :func:`claims`. See :func:`table`, :func:`summary`, :func:`require`.
    """
    results = []
    for entry in claims():
        if progress is not None:
            progress(entry.label)
        try:
            results.append(_measure(entry, None))
        except Exception as exc:  # an error of one claim must not hide the others
            results.append(Result(entry, (), 0, f"{type(exc).__name__}: {exc}"))
    return tuple(results)


def require(results: Iterable[Result]) -> None:
    """Raise if a result failed.

    Parameters
    ----------
    results : iterable of Result
        As :func:`run_all` returns.

    Raises
    ------
    CheckFailed
        Naming all that failed, with their tables.
    DataError
        If something else than results is given.
    """
    failed = [r for r in _all(results, Result, "results") if not r.passed]
    if failed:
        raise CheckFailed(f"{len(failed)} claims failed:\n\n" + "\n\n".join(map(repr, failed)))


def table(results: Iterable[Result]) -> _render.Table:
    """The ledger as one table for each chapter.

    Parameters
    ----------
    results : iterable of Result
        As :func:`run_all` returns.

    Returns
    -------
    Table
        Displays as HTML in a notebook, with links to the statements in the built book.

    Raises
    ------
    DataError
        If something else than results is given.
    """
    return _render.Table(_all(results, Result, "results"))


def summary(results: Iterable[Result]) -> str:
    """Count the results in a sentence or two.

    Parameters
    ----------
    results : iterable of Result
        As :func:`run_all` returns.

    Returns
    -------
    str
        Plain text.

    Raises
    ------
    DataError
        If something else than results is given.
    """
    return _render.summary(_all(results, Result, "results"))
