r"""The attention SVM: separate a selected token of each sequence from all others, with the least norm.

.. math::
   W^{mm}_\alpha=\arg\min_W\|W\|\quad\text{s.t.}\quad(k_{i\alpha_i}-k_{it})^\top Wz_i\ge1
   \quad\forall t\ne\alpha_i,\ i\in[n],

with keys k (the tokens, unless the problem has keys of its own), and 0 in place of 1 in relaxed sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib import compare
from svmlib.arrays import BoolArray, IntArray, frozen
from svmlib.data import Problem
from svmlib.errors import InfeasibleError, SolverError

from .arguments import checked_errors, checked_norm, constraints, named
from .features import Features, nearest, nuclear_points
from .least_distance import LeastDistance
from .pivoting import pivoted
from .records import CERTIFIED, SUPPORT_TOLERANCE, AttentionSVM, Certificate, attention_certificate

__all__ = ["attention_svm", "feasible"]


def attention_svm(
    problem: Problem,
    tokens: ArrayLike | None = None,
    norm: str = "fro",
    errors: str = "raise",
    relaxed: ArrayLike | None = None,
) -> AttentionSVM:
    r"""Solve the attention SVM of each problem of a batch, with a certificate.

    The Frobenius solution is unique. A nuclear solution need not be: any minimiser may be returned (mostly
    one of largest rank), while ``value`` is unique. Solving for the nuclear norm takes up to a hundred times
    longer.

    A sequence with a single visible token has no constraint; where no margin is to be 1, for want of
    constraints or because all of them are relaxed, the solution is W = 0 with value 0, rank 0 and infinite
    margin. Masked tokens carry no constraint. Equal tokens are harmless unless one of them is selected: then
    the program is infeasible, as it is when a query is 0. Relaxed sequences bear both.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; ``problem.optimal`` by default (the first one where ``problem.tied``).
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).
    errors : str
        "raise" raises at a problem that has no solution or cannot be solved; "nan" gives it NaN in ``W``,
        ``value``, ``multipliers`` and the certificate, rank -1 and ``solved`` False. Its ``feasible`` is
        False where infeasibility is proved, True where the solver gave up.
    relaxed : array_like of bool, shape (..., n), optional
        Sequences whose margins need only be at least 0; none by default.

    Returns
    -------
    AttentionSVM
        Read-only arrays with the batch axes of the problem.

    Raises
    ------
    InfeasibleError
        If no W separates the selected tokens, and ``errors="raise"``.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, or the problem can be neither
        solved nor proved infeasible, and ``errors="raise"``.
    DataError
        If ``problem`` is none, ``norm`` or ``errors`` is unknown, a masked token is selected, ``relaxed`` is
        not boolean, or tokens are needed but the head is not linear.
    ShapeError
        If ``tokens`` or ``relaxed`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), (Att-SVM) for the Frobenius and the nuclear norm;
    *Max-Margin Token Selection* (2023) for relaxed sequences.

    Examples
    --------
    >>> import svmlib as sv
    >>> svm = attention_svm(sv.data.planar(1))
    >>> svm.W.round(3)
    array([[ 2.854, -2.703],
           [ 5.371,  5.581]])
    """
    checked_norm(norm)
    checked_errors(errors)
    index, delta, z, constrained, required = constraints(problem, tokens, relaxed).flat()
    solution, W, multipliers = pivoted(delta, z, constrained, required)
    possible = np.ones(len(z), dtype=bool)
    points: dict[int, tuple[Features, LeastDistance]] = {}
    todo = np.flatnonzero(~solution) if norm == "fro" else np.arange(len(z))
    for b in todo.tolist():
        features = Features.of(delta[b], z[b], constrained[b], required[b])
        if solution[b]:
            solved = LeastDistance("solved", W[b], 0.0, multipliers[b][features.index] * features.length)
        else:
            solved = nearest(features)
        if solved.status in ("separable", "unsettled"):
            if errors == "raise":
                raise SolverError(_unsolved(problem, b, solved.status, delta.shape[-1]))
        elif solved.status == "infeasible":
            if errors == "raise":
                raise InfeasibleError(_infeasible(problem, b, index[b], features, solved))
            possible[b] = False
        else:
            solution[b] = True
            if features.required.any():
                points[b] = (features, solved)
    found = list(points.values())
    solutions = [(p.w, p.multipliers) for _, p in found] if norm == "fro" else nuclear_points(found)
    for (b, (features, _)), (w, unit) in zip(points.items(), solutions, strict=True):
        W[b], multipliers[b][features.index] = w, unit / features.length
    certificate, value, slack = attention_certificate(W, multipliers, delta, z, constrained, required, norm)
    bad = np.flatnonzero(solution & ~(certificate.worst <= CERTIFIED))
    if bad.size and errors == "raise":
        name = named(problem, int(bad[0]), delta.shape[-1])
        raise SolverError(_uncertified(name, int(bad[0]), certificate, norm, float(value[bad[0]])))
    solution[bad] = False
    W[~solution] = 0.0
    rank = np.where(solution, compare.rank(W), -1)
    for a in (W, value, multipliers, certificate.primal, certificate.dual, certificate.gap):
        a[~solution] = np.nan
    slack[~solution] = np.inf  # no support tokens
    lead, sizes = problem.batch_shape, (problem.n, problem.T)

    def shaped(a: NDArray[Any], *own: int) -> NDArray[Any]:
        return frozen(a.reshape(lead + own))

    return AttentionSVM(
        W=shaped(W, *W.shape[1:]),
        value=shaped(value),
        rank=shaped(rank),
        support=shaped(slack < SUPPORT_TOLERANCE, *sizes),
        multipliers=shaped(multipliers, *sizes),
        tokens=shaped(index, problem.n),
        constrained=shaped(constrained, *sizes),
        required=shaped(required, problem.n),
        norm=norm,
        feasible=shaped(possible),
        certificate=Certificate(
            shaped(certificate.primal), shaped(certificate.dual), shaped(certificate.gap)
        ),
    )


def feasible(
    problem: Problem, tokens: ArrayLike | None = None, relaxed: ArrayLike | None = None
) -> BoolArray:
    """Whether some W separates the selected tokens from all others.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; the optimal ones by default.
    relaxed : array_like of bool, shape (..., n), optional
        Sequences whose margins need only be at least 0; none by default.

    Returns
    -------
    ndarray of bool, shape (...)
        True when separating weights were found, False when a combination of the features with nonnegative
        weights was found to vanish, not all of the weight being on relaxed sequences.

    Raises
    ------
    SolverError
        If neither can be shown in double precision.
    DataError
        If ``problem`` is none, a masked token is selected, ``relaxed`` is not boolean, or tokens are needed
        but the head is not linear.
    ShapeError
        If ``tokens`` or ``relaxed`` does not fit.
    """
    _, delta, z, constrained, required = constraints(problem, tokens, relaxed).flat()
    out = pivoted(delta, z, constrained, required)[0]
    for b in np.flatnonzero(~out).tolist():
        status = nearest(Features.of(delta[b], z[b], constrained[b], required[b])).status
        if status == "unsettled":
            raise SolverError(_unsolved(problem, b, status, delta.shape[-1]))
        out[b] = status in ("solved", "separable")
    return out.reshape(problem.batch_shape)


def _infeasible(problem: Problem, b: int, index: IntArray, features: Features, proof: LeastDistance) -> str:
    e, q = features.delta.shape[1], features.query.shape[1]
    where, mend = named(problem, b, e), 'or pass errors="nan" to get NaN for infeasible problems'
    start = f"No {'W' if q > 1 else 'vector p'} separates the selected tokens{where}: "
    sequences, others = features.index
    same = np.flatnonzero((features.delta == 0).all(-1))
    if same.size:
        i, t = int(sequences[same[0]]), int(others[same[0]])
        return (
            f"{start}in sequence {i} token {t} equals the selected token {int(index[i])}, so its margin is 0 "
            f"for every W. Merge the duplicates (mask one of them), select other tokens, {mend}."
        )
    silent = np.flatnonzero((features.query == 0).all(-1))
    if silent.size:
        return (
            f"{start}the query of sequence {int(sequences[silent[0]])} is 0, so all its logits are 0 for "
            f"every W. Drop the sequence or give it a query, {mend}."
        )
    involved = proof.multipliers > 0
    return (
        f"{start}{int(involved.sum())} of its {involved.size} constraints, in sequences "
        f"{sorted({int(i) for i in sequences[involved]})}, contradict each other (a combination of them with "
        f"positive weights is 0). Select other tokens, {_wider(e, q)}, {mend}."
    )


def _wider(e: int, q: int) -> str:
    """Say which widths make generic data feasible."""
    if q == 1:
        return "widen the keys (n (T - 1) is enough for generic data)"
    if e == q:
        return "raise d (d >= max(T - 1, n) is enough for generic data)"
    return "widen keys and queries (T - 1 and n are enough for generic data)"


def _unsolved(problem: Problem, b: int, status: str, e: int) -> str:
    start = f"The attention SVM{named(problem, b, e)} "
    if status == "separable":
        start += "is feasible, but cannot be solved to the promised accuracy in double precision: "
    else:
        start += "can be neither solved nor proved infeasible in double precision: "
    return (
        f"{start}its margin is within round-off of 0, or its keys or queries differ too much in scale. "
        f'Merge nearly equal tokens, rescale the data, or pass errors="nan" to get NaN here.'
    )


def _uncertified(name: str, b: int, certificate: Certificate, norm: str, value: float) -> str:
    parts = ", ".join(
        f"{name} {float(getattr(certificate, name)[b]):.1e}" for name in ("primal", "dual", "gap")
    )
    return (
        f'The "{norm}" attention SVM{name} was solved only up to {parts}, above the promised '
        f"{CERTIFIED:.0e}; the norm of its solution is {value:.2e}. It may have tokens or sequences "
        f"equal but for about 1e-8, or constraints that nearly contradict each other. "
        f'Merge what is nearly equal, rescale the data, or pass errors="nan" to get NaN here.'
    )
