"""Checks of arguments that are no arrays of numbers: each names the argument and says what it may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_integer
from svmlib.errors import DataError, ShapeError

__all__ = ["choice", "entries", "filled", "number", "position"]


def choice(value: Any, name: str, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of the allowed words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise DataError(f"{name} must be one of {', '.join(map(repr, words))}, got {value!r}.")
    return value


def entries(value: Any, name: str, count: int, what: str) -> tuple[Any, ...]:
    """Return ``value`` as a tuple of ``count`` entries; ``what`` says what they stand for."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ShapeError(f"{name} must have {count} entries, {what}, got {value!r}; put them in a list.")
    found = tuple(value)
    if len(found) != count:
        raise ShapeError(f"{name} must have {count} entries, {what}, got {len(found)}.")
    return found


def filled(values: ArrayLike, name: str, what: str, **axes: Any) -> FloatArray:
    """Return the array as ``as_float`` does, and refuse one without entries; ``what`` is to be given."""
    array = as_float(values, name, **axes)
    if not array.size:
        raise ShapeError(f"{name} is empty, shape {array.shape}: nothing to draw. Give {what}.")
    return array


def number(value: Any, name: str, low: float = -np.inf, high: float = np.inf) -> float:
    """Return ``value`` as a finite float between the limits."""
    try:
        found = np.nan if isinstance(value, bool | np.bool_ | str) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = np.nan
    if not (np.isfinite(found) and low <= found <= high):
        limits = "" if (low, high) == (-np.inf, np.inf) else f" from {low:g} to {high:g}"
        raise DataError(f"{name} must be one finite number{limits}, got {value!r}.")
    return found


def position(value: Any, name: str, size: int, what: str) -> int:
    """Return ``value`` if it is a position, from 0, among ``size`` of ``what``."""
    found = check_integer(value, name, 0)
    if found >= size:
        raise ShapeError(f"{name} must lie in 0..{size - 1}, one of the {size} {what}, got {found}.")
    return found
