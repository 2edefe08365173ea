r"""The core of the programs with equalities: least norm, margins at least 1, margins of given value.

.. math:: \min_W\|W\|\quad\text{s.t.}\quad\langle A_s,W\rangle\ge1,\quad\langle E_r,W\rangle=h_r,
   \qquad A_s=\delta_sq_s^\top,\ E_r=\epsilon_rp_r^\top .

All h are 0, or there are no margins. Rows come as those of the attention SVM do: by query and token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from svmlib import compare, norms
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.errors import InfeasibleError, SolverError

from .equalities import CONTRADICTION
from .features import Features, nearest, nuclear_points
from .least_distance import LeastDistance
from .pivoting import pivoted
from .records import CERTIFIED, Certificate

__all__ = ["Failure", "Rows", "Solution", "certified", "raise_failure", "solve"]


class Rows(NamedTuple):
    """Constraints of a batch of programs.

    Attributes
    ----------
    delta : ndarray, shape (B, n, T, e)
        Key differences.
    z : ndarray, shape (B, n, q)
        Queries.
    constrained, equal : ndarray of bool, shape (B, n, T)
        Margins that are to be at least 1, and margins of given value.
    sides : ndarray, shape (B, n, T)
        These values.
    """

    delta: FloatArray
    z: FloatArray
    constrained: BoolArray
    equal: BoolArray
    sides: FloatArray


class Failure(NamedTuple):
    """The first program of a batch that was not solved.

    Attributes
    ----------
    position : int
        Its place in the batch.
    status : str
        "infeasible", "separable" or "unsettled" (see :class:`.LeastDistance`), or "uncertified".
    features : Features or None
        Its constraints.
    proof : LeastDistance or None
        What the solver found.
    """

    position: int
    status: str
    features: Features | None
    proof: LeastDistance | None


class Solution(NamedTuple):
    """What :func:`solve` returns; NaN, rank -1 and infinite slack where there is no certified solution.

    Attributes
    ----------
    W : ndarray, shape (B, e, q)
        Minimisers.
    multipliers : ndarray, shape (B, n, T)
        Of margins and equalities.
    value : ndarray, shape (B,)
        Norms.
    rank : ndarray of int, shape (B,)
        Singular values above 1e-6 of the largest.
    slack : ndarray, shape (B, n, T)
        Margins less 1; infinite off the margins.
    possible : ndarray of bool, shape (B,)
        False where infeasibility is proved.
    certificate : Certificate
        How far the points are from optimal.
    failure : Failure or None
        The first failure, if any.
    """

    W: FloatArray
    multipliers: FloatArray
    value: FloatArray
    rank: IntArray
    slack: FloatArray
    possible: BoolArray
    certificate: Certificate
    failure: Failure | None


def solve(rows: Rows, norm: str, stop: bool) -> Solution:
    """Solve the programs of a batch.

    Parameters
    ----------
    rows : Rows
        The constraints.
    norm : str
        "fro" or "nuc".
    stop : bool
        Whether to give up at the first program that is not solved.

    Returns
    -------
    Solution
        Certified to 1e-9.
    """
    delta, z, constrained, equal, sides = rows
    # a row of zeros: what it asks is met up to round-off, or contradicts itself (which `nearest` tells)
    there = np.asarray(z.any(-1))[..., None] & delta.any(-1)
    empty = ~there & (np.abs(sides) <= CONTRADICTION)
    equal = equal & ~empty
    required = np.ones(z.shape[:-1], dtype=bool)
    done, W, multipliers = pivoted(delta, z, constrained, required, equal, sides)
    possible, failure = np.ones(len(z), dtype=bool), None
    points: dict[int, tuple[Features, LeastDistance]] = {}
    todo = np.flatnonzero(~done) if norm == "fro" else np.arange(len(z))
    for b in todo.tolist():
        features = Features.of(delta[b], z[b], constrained[b], required[b], equal[b], sides[b])
        if done[b]:
            solved = LeastDistance("solved", W[b], 0.0, multipliers[b][features.index] * features.length)
        else:
            solved = nearest(features)
        if solved.status != "solved":
            failure = failure or Failure(b, solved.status, features, solved)
            possible[b] = solved.status != "infeasible"
            if stop:
                break
        else:
            done[b] = True
            if features.required.any():
                points[b] = (features, solved)
    if not (failure and stop):
        found = list(points.values())
        solutions = [(p.w, p.multipliers) for _, p in found] if norm == "fro" else nuclear_points(found)
        for (b, (features, _)), (w, unit) in zip(points.items(), solutions, strict=True):
            W[b], multipliers[b][features.index] = w, unit / features.length
    certificate, value, slack = certified(rows, W, multipliers, norm)
    bad = np.flatnonzero(done & ~(certificate.worst <= CERTIFIED))
    if bad.size:
        failure = failure or Failure(int(bad[0]), "uncertified", None, None)
        if failure.status == "uncertified" and stop:
            rank = np.full(len(z), -1)
            return Solution(W, multipliers, value, rank, slack, possible, certificate, failure)
    done[bad] = False
    W[~done] = 0.0
    rank = np.where(done, compare.rank(W), -1)
    for a in (W, value, multipliers, certificate.primal, certificate.dual, certificate.gap):
        a[~done] = np.nan
    slack[~done] = np.inf
    return Solution(W, multipliers, value, rank, slack, possible, certificate, failure)


def certified(
    rows: Rows, W: FloatArray, multipliers: FloatArray, norm: str
) -> tuple[Certificate, FloatArray, FloatArray]:
    """Check primal and dual points against the data.

    Parameters
    ----------
    rows : Rows
        The constraints.
    W : ndarray, shape (B, e, q)
        Primal points.
    multipliers : ndarray, shape (B, n, T)
        Dual points.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    certificate : Certificate
        ``primal`` counts margins below 1 and values missed by equalities alike, in logits.
    value : ndarray, shape (B,)
        Norm of ``W``.
    slack : ndarray, shape (B, n, T)
        Margins less 1, infinite off the margins.
    """
    delta, z, constrained, equal, sides = rows
    logits = np.einsum("bnte,bne->bnt", delta, z @ np.swapaxes(W, -1, -2))
    slack = np.where(constrained, logits - 1.0, np.inf)
    missed = np.where(equal, np.abs(logits - sides), 0.0)
    rhs = np.where(constrained, 1.0, np.where(equal, sides, 0.0))
    G = np.swapaxes(np.einsum("bnt,bnte->bne", multipliers, delta), -1, -2) @ z
    value, total = norms.get(norm)(W), (rhs * multipliers).sum((-2, -1))
    safe = np.where(value > 0, value, 1.0)
    signed = np.where(constrained, multipliers, 0.0)
    top = np.abs(signed).max((-2, -1), initial=0.0)
    negative = np.maximum(0.0, -signed.min((-2, -1), initial=0.0)) / np.where(top > 0, top, 1.0)
    primal = np.maximum(missed.max((-2, -1)), -slack.min((-2, -1), initial=0.0))
    if norm == "fro":
        dual, gap = norms.FRO(W - G) / safe, np.abs(value - total / safe) / safe
    else:
        dual, gap = np.maximum(0.0, norms.SPEC(G) - 1.0), np.abs(value - total) / safe
    return Certificate(primal, np.asarray(dual + negative), gap), value, slack


def raise_failure(
    found: Solution, norm: str, name: Callable[[int], str], why: Callable[[Features, FloatArray], str]
) -> None:
    """Raise the error of the first program that was not solved, if there is one.

    Parameters
    ----------
    found : Solution
        What was found.
    norm : str
        "fro" or "nuc".
    name : callable
        Names a program, given its position in the batch.
    why : callable
        Explains infeasibility, given the constraints and the weights of a combination that contradicts
        itself.

    Raises
    ------
    InfeasibleError
        If infeasibility is proved.
    SolverError
        If the program could not be solved.
    """
    if found.failure is None:
        return
    b, status, features, proof = found.failure
    mend = 'or pass errors="nan" to get NaN here'
    if status == "infeasible" and features is not None and proof is not None:
        raise InfeasibleError(f"{name(b)} has no solution: {why(features, proof.multipliers)}, {mend}.")
    if status == "uncertified":
        parts = ", ".join(
            f"{part} {float(getattr(found.certificate, part)[b]):.1e}" for part in ("primal", "dual", "gap")
        )
        raise SolverError(
            f'{name(b)} was solved for "{norm}" only up to {parts}, above the promised {CERTIFIED:.0e}; '
            f"the norm of its solution is {float(found.value[b]):.2e}. It may have tokens or queries equal "
            f"but for about 1e-8, or constraints that nearly contradict each other. Merge what is nearly "
            f"equal, rescale the data, {mend}."
        )
    state = (
        "is feasible, but cannot be solved to the promised accuracy"
        if status == "separable"
        else "can be neither solved nor proved infeasible"
    )
    raise SolverError(
        f"{name(b)} {state} in double precision: its margin is within round-off of 0, or its keys or "
        f"queries differ too much in scale. Merge nearly equal tokens, rescale the data, {mend}."
    )
