"""Attention weights: the matrix itself, or keys and queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError


class Direct(NamedTuple):
    """The attention matrix W itself, shape (..., d, d), maps queries to keys: logits are x' W z."""

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
        return cls(np.zeros((*problem.batch_shape, problem.d, problem.d)))

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
            Bound of the entries; :math:`d^{-1/2}`, as torch starts a linear layer, by default.

        Returns
        -------
        Direct
            One draw for every instance.
        """
        check_problem(problem)
        bound = problem.d**-0.5 if scale is None else check_positive(scale, "scale")
        size = (*problem.batch_shape, problem.d, problem.d)
        return cls(np.random.default_rng(check_integer(seed, "seed", 0)).uniform(-bound, bound, size))


class Factored(NamedTuple):
    r"""Keys and queries, K and Q of shape (..., d, m), with :math:`W=KQ^\top`."""

    K: Any
    Q: Any

    def matrix(self) -> FloatArray:
        r"""Return :math:`KQ^\top`, shape (..., d, d)."""
        K, Q = as_float(self.K, "K", min_ndim=2), as_float(self.Q, "Q", min_ndim=2)
        if K.shape != Q.shape:
            raise ShapeError(f"K and Q must have one shape (..., d, m), got {K.shape} and {Q.shape}.")
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
            Width of the factors, d by default.
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
        size = (*problem.batch_shape, problem.d, problem.d if m is None else check_integer(m, "m"))
        scale = check_positive(scale, "scale")
        return cls(
            scale * np.random.default_rng(check_integer(seed, "seed", 0)).normal(size=size), np.zeros(size)
        )


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
    d, shape = problem.d, problem.batch_shape
    check_problem(problem)
    blocks = []
    for name, value in zip(weights._fields, weights, strict=True):
        block = as_float(value, name, last=(d, d if name == "W" else None))
        try:
            blocks.append(np.broadcast_to(block, shape + block.shape[-2:]))
        except ValueError:
            raise ShapeError(
                f"{name} must have the batch axes of the problem, {shape}, or none; got shape {block.shape}."
            ) from None
    if isinstance(weights, Factored) and blocks[0].shape != blocks[1].shape:
        raise ShapeError(
            f"K and Q must have one shape (..., d, m), got {blocks[0].shape} and {blocks[1].shape}."
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
