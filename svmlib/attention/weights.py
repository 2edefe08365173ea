"""Attention weights: the matrix itself, or keys and queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError


class Direct(NamedTuple):
    """The attention matrix W itself, shape (..., e, q), maps queries to keys: logits are k' W z."""

    W: Any

    def matrix(self) -> FloatArray:
        """Return W."""
        return as_float(self.W, "W", min_ndim=2)

    @classmethod
    def zeros(cls, problem: Problem) -> Direct:
        """Start every instance at zero weights.

        Parameters
        ----------
        problem : Problem
            Gives the batch and the dimension.

        Returns
        -------
        Direct
            Zeros.
        """
        check_problem(problem)
        return cls(np.zeros((*problem.batch_shape, problem.key_dim, problem.query_dim)))

    @classmethod
    def random(cls, problem: Problem, seed: int = 0, scale: float | None = None) -> Direct:
        r"""Draw entries uniform on (-scale, scale).

        Parameters
        ----------
        problem : Problem
            Gives the batch and the dimension.
        seed : int
            Seed.
        scale : float, optional
            Bound of the entries; :math:`q^{-1/2}` for queries of width q, as torch starts a linear layer, by
            default.

        Returns
        -------
        Direct
            One draw for every instance.
        """
        check_problem(problem)
        bound = problem.query_dim**-0.5 if scale is None else check_positive(scale, "scale")
        size = (*problem.batch_shape, problem.key_dim, problem.query_dim)
        return cls(np.random.default_rng(check_integer(seed, "seed", 0)).uniform(-bound, bound, size))


class Factored(NamedTuple):
    r"""Factors K of shape (..., e, m) and Q of shape (..., q, m), with :math:`W=KQ^\top`."""

    K: Any
    Q: Any

    def matrix(self) -> FloatArray:
        r"""Return :math:`KQ^\top`, shape (..., e, q)."""
        K, Q = as_float(self.K, "K", min_ndim=2), as_float(self.Q, "Q", min_ndim=2)
        if K.shape[:-2] != Q.shape[:-2] or K.shape[-1] != Q.shape[-1]:
            raise ShapeError(
                f"K and Q must have shapes (..., e, m) and (..., q, m), got {K.shape} and {Q.shape}."
            )
        return np.asarray(K @ np.swapaxes(Q, -1, -2))

    @classmethod
    def random(cls, problem: Problem, m: int | None = None, seed: int = 0, scale: float = 0.1) -> Factored:
        """Draw K Gaussian and set Q = 0, so that training starts at W = 0.

        Both factors cannot be 0: the gradient of each is a multiple of the other.

        Parameters
        ----------
        problem : Problem
            Gives the batch and the dimension.
        m : int, optional
            Width of the factors, e by default.
        seed : int
            Seed.
        scale : float
            Standard deviation of the entries of K.

        Returns
        -------
        Factored
            One draw for every instance.
        """
        check_problem(problem)
        lead, width = problem.batch_shape, problem.key_dim if m is None else check_integer(m, "m")
        rng = np.random.default_rng(check_integer(seed, "seed", 0))
        K = check_positive(scale, "scale") * rng.normal(size=(*lead, problem.key_dim, width))
        return cls(K, np.zeros((*lead, problem.query_dim, width)))


Weights: TypeAlias = Direct | Factored


def check_weights(problem: Problem, weights: Weights) -> Weights:
    """Check weights against a problem and broadcast them to its batch.

    Parameters
    ----------
    problem : Problem
        Data.
    weights : Direct or Factored
        Weights with the problem's batch axes or none.

    Returns
    -------
    Direct or Factored
        float64 blocks with the problem's batch axes.

    Raises
    ------
    ShapeError
        If sizes do not fit.
    DataError
        If entries are not finite, or the weights are neither Direct nor Factored.
    """
    if not isinstance(weights, (Direct, Factored)):
        raise DataError(f"weights must be Direct(W) or Factored(K, Q), got {type(weights).__name__}.")
    check_problem(problem)
    shape, e, q = problem.batch_shape, problem.key_dim, problem.query_dim
    sizes = {"W": (e, q), "K": (e, None), "Q": (q, None)}
    meaning = f"as keys of width {e} and queries of width {q} need"
    blocks = []
    for name, value in zip(weights._fields, weights, strict=True):
        block = as_float(value, name, last=sizes[name], meaning=meaning)
        try:
            blocks.append(np.broadcast_to(block, shape + block.shape[-2:]))
        except ValueError:
            raise ShapeError(
                f"{name} must have the batch axes of the problem, {shape}, or none; got shape {block.shape}."
            ) from None
    if isinstance(weights, Factored) and blocks[0].shape[-1] != blocks[1].shape[-1]:
        raise ShapeError(
            f"K and Q must have one width m, got shapes {blocks[0].shape} and {blocks[1].shape}."
        )
    return rebuilt(weights, blocks)


def rebuilt(weights: Weights, blocks: Iterable[Any]) -> Weights:
    """Make weights of the same kind from other blocks.

    Parameters
    ----------
    weights : Direct or Factored
        Gives the kind.
    blocks : iterable
        W, or K and Q.

    Returns
    -------
    Direct or Factored
        The new weights.
    """
    return Direct(*blocks) if isinstance(weights, Direct) else Factored(*blocks)
