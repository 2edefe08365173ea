r"""Constraints of one attention SVM as unit features :math:`\delta_sq_s^\top`, and what they separate."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from svmlib import norms
from svmlib.arrays import BoolArray, FloatArray

from .equalities import tied_distance
from .least_distance import LeastDistance, least_distance
from .nuclear import Program, nuclear_programs
from .ties import Tied

__all__ = ["Features", "nearest", "nuclear_points", "unit"]


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    r"""The m constraints of one problem, :math:`\text{length}_s\delta_s^\top Wq_s\ge\text{side}_s`, or =.

    Attributes
    ----------
    index : pair of ndarray of int, shape (m,)
        Sequence and token of each constraint.
    delta : ndarray, shape (m, e)
        Unit key differences; zero rows stay zero.
    query : ndarray, shape (m, q)
        Unit queries; zero rows stay zero.
    length : ndarray, shape (m,)
        Product of the two lengths.
    side : ndarray, shape (m,)
        What a margin is to be at least, 1 or 0; what it is to be exactly in an equality.
    equal : ndarray of bool, shape (m,)
        Equalities. Their sides are 0 unless all constraints are equalities.
    """

    index: tuple[NDArray[np.intp], NDArray[np.intp]]
    delta: FloatArray
    query: FloatArray
    length: FloatArray
    side: FloatArray
    equal: BoolArray

    @property
    def required(self) -> BoolArray:
        """(m,) constraints that W = 0 does not meet."""
        return np.asarray(self.side != 0)

    @classmethod
    def of(
        cls,
        delta: FloatArray,
        z: FloatArray,
        constrained: BoolArray,
        required: BoolArray,
        equal: BoolArray | None = None,
        sides: FloatArray | None = None,
    ) -> Features:
        """Collect the constraints of one problem.

        Parameters
        ----------
        delta : ndarray, shape (n, T, e)
            Key differences.
        z : ndarray, shape (n, q)
            Queries.
        constrained : ndarray of bool, shape (n, T)
            Which tokens carry a constraint.
        required : ndarray of bool, shape (n,)
            Sequences whose margins are to be 1; 0 is enough elsewhere.
        equal : ndarray of bool, shape (n, T), optional
            Which tokens carry an equality.
        sides : ndarray, shape (n, T), optional
            What the margins of these are to be.

        Returns
        -------
        Features
            Unit features, sequence by sequence, without the rows that ask for 0 ≥ 0 or 0 = 0.
        """
        zero = ~(np.abs(delta).max(-1) > 0) | ~(np.abs(z).max(-1) > 0)[:, None]
        tied = np.zeros_like(constrained) if equal is None else equal
        rhs = np.broadcast_to(required[:, None].astype(float), constrained.shape)
        rhs = rhs if sides is None else np.where(tied, sides, rhs)
        i, t = np.nonzero((constrained | tied) & ((rhs != 0) | ~zero))
        rows, rows_length = unit(delta[i, t])
        queries, query_length = unit(z)
        with np.errstate(over="ignore", under="ignore"):
            return cls((i, t), rows, queries[i], rows_length * query_length[i], rhs[i, t], tied[i, t])


def unit(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scale vectors to length 1.

    Parameters
    ----------
    rows : ndarray, shape (..., d)
        Vectors.

    Returns
    -------
    scaled : ndarray, shape (..., d)
        Unit vectors; zeros stay zero.
    length : ndarray, shape (...)
        Their lengths.
    """
    top = np.abs(rows).max(-1, initial=0.0)  # first, so that squares of tiny entries do not underflow
    scaled = rows / np.where(top > 0, top, 1.0)[..., None]
    size = np.sqrt(np.square(scaled).sum(-1))
    return scaled / np.where(size > 0, size, 1.0)[..., None], top * size


def nearest(features: Features) -> LeastDistance:
    """Solve the Frobenius program.

    Parameters
    ----------
    features : Features
        Constraints of one problem.

    Returns
    -------
    LeastDistance
        ``w`` is the matrix W (e, q); the multipliers belong to the unit features.
    """
    length, m = features.length, len(features.length)
    shape = (features.delta.shape[1], features.query.shape[1])
    if not features.required.any():  # nothing to separate: W = 0 is the solution
        return LeastDistance("solved", np.zeros(shape), 0.0, np.zeros(m))
    zero = ~(features.delta.any(-1) & features.query.any(-1))
    if zero.any():  # relaxed rows are not zero
        return LeastDistance("infeasible", np.zeros(shape), 0.0, zero / zero.sum())
    with np.errstate(all="ignore"):
        c = 1.0 / length
    solved = LeastDistance("unsettled", np.zeros(shape), 0.0, np.zeros(m))
    if c.min() > 1e-145 and c.max() < 1e145:  # multipliers are of the size of the squares
        solved = _least(features, c)
    # for feasibility of margins lengths do not matter: ask for margin 1 everywhere
    if solved.status == "unsettled" and not features.equal.all():
        solved = _least(features, np.ones(m))
        if solved.status == "solved":
            return replace(solved, status="separable")
    return solved


def _least(features: Features, c: FloatArray) -> LeastDistance:
    left, right = _basis(features.delta), _basis(features.query)
    delta = features.delta if left is None else features.delta @ left
    query = features.query if right is None else features.query @ right
    top = float(np.abs(features.side * c).max())
    rows = (delta[:, :, None] * query[:, None, :]).reshape(len(c), -1)
    if features.equal.any():
        solved = tied_distance(rows, c / top, features.side, features.equal)
    else:
        solved = least_distance(rows, c / top, required=features.required)
    if solved.status != "solved":
        return solved
    W = top * solved.w.reshape(delta.shape[1], query.shape[1])
    W = W if left is None else left @ W
    W = W if right is None else W @ right.T
    return replace(solved, w=W, multipliers=top * solved.multipliers)


def _basis(rows: FloatArray) -> FloatArray | None:
    """Orthonormal basis (columns) of a space that contains the rows; None where that is the whole space."""
    return None if len(rows) >= rows.shape[1] else np.linalg.qr(rows.T)[0]


def nuclear_points(solved: list[tuple[Features, LeastDistance]]) -> list[tuple[FloatArray, FloatArray]]:
    """Solve nuclear programs.

    By optimality the columns of W lie in the span of the differences and its rows in that of the queries,
    so both bases may be exchanged for those of the spans.

    Parameters
    ----------
    solved : list of (Features, LeastDistance)
        Constraints and Frobenius solution of each problem.

    Returns
    -------
    list of (W, multipliers)
        Matrix (e, q) and multipliers of the unit features, each.
    """
    out: list[tuple[FloatArray, FloatArray]] = []
    frames: list[tuple[int, FloatArray, FloatArray, float, Tied | None]] = []
    programs = []
    for k, (features, point) in enumerate(solved):
        size = float(norms.FRO(point.w))
        left, right = _span(features.delta), _span(features.query)
        out.append((point.w, point.multipliers / size))  # in matrices of rank one the two norms are the same
        if min(len(left), len(right)) > 1:
            # with this scale the solution has norm between 1 and sqrt(rank)
            c = 1.0 / (features.length * size)
            program = Program(features.delta @ left.T, features.query @ right.T, features.side * c, c)
            tied = None
            if features.equal.any():
                W = left @ (point.w / size) @ right.T
                tied = Tied.of(program, features.equal, features.index[0], W)
                program = tied.program
            frames.append((k, left, right, size, tied))
            programs.append(program)
    for (k, left, right, size, tied), (M, lam) in zip(frames, nuclear_programs(programs), strict=True):
        out[k] = (left.T @ (size * M) @ right, lam if tied is None else tied.multipliers(lam))
    return out


def _span(rows: FloatArray) -> FloatArray:
    """Orthonormal basis of the span of unit rows, as rows."""
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(vt[s > 1e-14 * s[0]])
