"""What the programs are given, checked: norm, selected tokens, relaxed sequences, selected sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float
from svmlib.data import Problem
from svmlib.errors import DataError, ShapeError

from .records import require, widths

__all__ = [
    "Constraints",
    "checked_errors",
    "checked_norm",
    "checked_selection",
    "constraints",
    "named",
    "per_token",
]


class Constraints(NamedTuple):
    """The constraints of a batch of programs.

    Attributes
    ----------
    tokens : ndarray of int, shape (..., n)
        Selected tokens.
    delta : ndarray, shape (..., n, T, e)
        Key differences.
    z : ndarray, shape (..., n, q)
        Queries.
    constrained : ndarray of bool, shape (..., n, T)
        Tokens that carry a constraint.
    required : ndarray of bool, shape (..., n)
        Sequences whose margins are to be 1; 0 is enough elsewhere.
    """

    tokens: IntArray
    delta: FloatArray
    z: FloatArray
    constrained: BoolArray
    required: BoolArray

    def flat(self) -> Constraints:
        """Make all batch axes into one.

        Returns
        -------
        Constraints
            With one leading axis.
        """
        n, T, e = self.delta.shape[-3:]
        q = self.z.shape[-1]
        return Constraints(
            self.tokens.reshape(-1, n),
            self.delta.reshape(-1, n, T, e),
            self.z.reshape(-1, n, q),
            self.constrained.reshape(-1, n, T),
            self.required.reshape(-1, n),
        )


def constraints(problem: Problem, tokens: ArrayLike | None, relaxed: ArrayLike | None) -> Constraints:
    """Collect the constraints of the attention SVM of each problem of a batch.

    Parameters
    ----------
    problem : Problem
        Data.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; the optimal ones by default.
    relaxed : array_like of bool, shape (..., n), optional
        Sequences whose margins need only be at least 0; none by default.

    Returns
    -------
    Constraints
        With the batch axes of the problem.

    Raises
    ------
    DataError
        If ``problem`` is none, a masked token is selected, ``relaxed`` is not boolean, or tokens are needed
        but the head is not linear.
    ShapeError
        If ``tokens`` or ``relaxed`` does not fit.
    """
    index = require(problem, Problem, "problem").checked_tokens(tokens)
    required = np.ones(index.shape, dtype=bool)
    if relaxed is not None:
        flags = as_float(relaxed, "relaxed", last=(problem.n,), meaning="n: one flag for each sequence")
        if not np.isin(flags, (0.0, 1.0)).all():
            raise DataError("relaxed must be boolean: True for sequences whose margins need only be >= 0.")
        try:
            required = ~np.broadcast_to(flags.astype(bool), index.shape)
        except ValueError:
            raise ShapeError(
                f"relaxed has shape {flags.shape}, but the problem has batch axes {problem.batch_shape} and "
                f"{problem.n} sequences: give it shape {index.shape}, or any that broadcasts to it."
            ) from None
    constrained = problem.visible & (np.arange(problem.T) != index[..., None])
    return Constraints(index, problem.differences(index), problem.z, constrained, required)


def checked_norm(norm: str) -> str:
    """Check the name of a norm.

    Parameters
    ----------
    norm : str
        "fro" or "nuc".

    Returns
    -------
    str
        The same.

    Raises
    ------
    DataError
        If it is something else.
    """
    if not isinstance(norm, str) or norm not in ("fro", "nuc"):
        raise DataError(f'norm must be "fro" or "nuc", got {norm!r}.')
    return norm


def checked_errors(errors: str) -> bool:
    """Check how failures are reported.

    Parameters
    ----------
    errors : str
        "raise" or "nan".

    Returns
    -------
    bool
        Whether to raise.

    Raises
    ------
    DataError
        If it is something else.
    """
    if not isinstance(errors, str) or errors not in ("raise", "nan"):
        raise DataError(f'errors must be "raise" or "nan", got {errors!r}.')
    return errors == "raise"


def per_token(a: ArrayLike, name: str, problem: Problem) -> FloatArray:
    """Check numbers that belong to tokens and broadcast them to a batch.

    Parameters
    ----------
    a : array_like, shape (..., n, T)
        The numbers.
    name : str
        What the caller calls them.
    problem : Problem
        The batch.

    Returns
    -------
    ndarray, shape (..., n, T)
        With the batch axes of the problem.

    Raises
    ------
    ShapeError
        If they do not fit.
    DataError
        If ``problem`` is none, or the numbers are not finite.
    """
    shape = require(problem, Problem, "problem").X.shape[:-1]
    out = as_float(a, name, last=shape[-2:], meaning="n sequences of T tokens")
    try:
        return np.broadcast_to(out, shape)
    except ValueError:
        raise ShapeError(
            f"{name} has shape {out.shape}, but the problem has batch axes {problem.batch_shape}: give it "
            f"shape {shape}, or any that broadcasts to it. problem.expand repeats a problem."
        ) from None


def checked_selection(selected: ArrayLike, problem: Problem, empty: str = "select one") -> BoolArray:
    """Check sets of selected tokens and broadcast them to a batch.

    Parameters
    ----------
    selected : array_like of bool, shape (..., n, T)
        The sets; masked tokens do not count.
    problem : Problem
        The batch.
    empty : str
        What to do about an empty set, for the error message.

    Returns
    -------
    ndarray of bool, shape (..., n, T)
        With the batch axes of the problem.

    Raises
    ------
    ShapeError
        If they do not fit.
    DataError
        If ``problem`` is none, ``selected`` is not boolean, or a sequence has no selected visible token.
    """
    flags = per_token(selected, "selected", problem)
    if not np.isin(flags, (0.0, 1.0)).all():
        raise DataError("selected must be boolean: True for the selected tokens of each sequence.")
    sets = flags.astype(bool) & problem.visible
    none = ~sets.any(-1)
    if none.any():
        b, i = divmod(int(np.flatnonzero(none.ravel())[0]), problem.n)
        name = named(problem, b, problem.key_dim)
        raise DataError(f"Sequence {i}{name} has no selected visible token: {empty}.")
    return np.asarray(sets)


def named(problem: Problem, b: int, e: int) -> str:
    """Name one problem of a batch with its sizes, for messages.

    Parameters
    ----------
    problem : Problem
        The batch, or a problem without batch axes.
    b : int
        Position, counted through all batch axes.
    e : int
        Width of its keys.

    Returns
    -------
    str
        The name.
    """
    at = np.unravel_index(b, problem.batch_shape) if problem.batch_shape else ()
    name = f" of batch element ({', '.join(str(int(i)) for i in at)})" if at else ""
    return f"{name} (n={problem.n}, T={problem.T}, {widths(e, problem.z.shape[-1])})"
