"""The errors that svmlib raises. Each also is the built-in error a caller would expect."""

from __future__ import annotations

__all__ = ["DataError", "InfeasibleError", "ShapeError", "SolverError", "SvmlibError"]


class SvmlibError(Exception):
    """Base of all errors of svmlib."""


class ShapeError(SvmlibError, ValueError):
    """An array has the wrong number of axes or a size that does not fit the others."""


class DataError(SvmlibError, ValueError):
    """An array holds values that are not allowed: NaN, infinities, labels other than ±1, bad indices."""


class InfeasibleError(SvmlibError, ValueError):
    """No weights separate the selected tokens from the others: the SVM has no solution."""


class SolverError(SvmlibError, RuntimeError):
    """A numerical method did not reach the accuracy that its result is promised to have."""
