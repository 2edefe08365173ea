r"""The attention SVM: separate a selected token of each sequence from all others, with the least norm.

.. math::
   W^{mm}_\alpha=\arg\min_W\|W\|\quad\text{s.t.}\quad(x_{i\alpha_i}-x_{it})^\top Wz_i\ge1
   \quad\forall t\ne\alpha_i,\ i\in[n].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib import compare
from svmlib.arrays import BoolArray, FloatArray, IntArray, frozen
from svmlib.data import Problem
from svmlib.errors import DataError, InfeasibleError, SolverError

from .features import Features, nearest, nuclear_points
from .least_distance import LeastDistance
from .records import CERTIFIED, SUPPORT_TOLERANCE, AttentionSVM, Certificate, attention_certificate, require

__all__ = ["attention_svm", "feasible"]


def attention_svm(
    problem: Problem, tokens: ArrayLike | None = None, norm: str = "fro", errors: str = "raise"
) -> AttentionSVM:
    r"""Solve the attention SVM of each problem of a batch, with a certificate.

    The Frobenius solution is unique. A nuclear solution need not be: any minimiser may be returned (mostly
    one of largest rank), while ``value`` is unique. Solving for the nuclear norm takes about ten times
    longer.

    A sequence with a single visible token has no constraint; without any constraint the solution is W = 0
    with value 0, rank 0 and infinite margin. Masked tokens carry no constraint. Equal tokens are harmless
    unless one of them is selected: then the program is infeasible, as it is when a query is 0.

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
        If ``problem`` is none, ``norm`` or ``errors`` is unknown, a masked token is selected, or tokens are
        needed but the head is not linear.
    ShapeError
        If ``tokens`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), (Att-SVM) for the Frobenius and the nuclear norm.

    Examples
    --------
    >>> import svmlib as sv
    >>> svm = attention_svm(sv.data.planar(1))
    >>> svm.W.round(3)
    array([[ 2.854, -2.703],
           [ 5.371,  5.581]])
    """
    if not isinstance(norm, str) or norm not in ("fro", "nuc"):
        raise DataError(f'norm must be "fro" or "nuc", got {norm!r}.')
    if not isinstance(errors, str) or errors not in ("raise", "nan"):
        raise DataError(f'errors must be "raise" or "nan", got {errors!r}.')
    index, delta, z, constrained = _constraints(problem, tokens)
    multipliers, W = np.zeros(constrained.shape), np.zeros((len(z), problem.d, problem.d))
    solution, possible = np.ones(len(z), dtype=bool), np.ones(len(z), dtype=bool)
    points: dict[int, tuple[Features, LeastDistance]] = {}
    for b in range(len(z)):
        features = Features.of(delta[b], z[b], constrained[b])
        solved = nearest(features)
        if solved.status in ("separable", "unsettled"):
            if errors == "raise":
                raise SolverError(_unsolved(problem, b, solved.status))
            solution[b] = False
        elif solved.status == "infeasible":
            if errors == "raise":
                raise InfeasibleError(_infeasible(problem, b, index[b], features, solved))
            solution[b] = possible[b] = False
        elif features.length.size:
            points[b] = (features, solved)
    found = list(points.values())
    solutions = [(p.w, p.multipliers) for _, p in found] if norm == "fro" else nuclear_points(found)
    for (b, (features, _)), (w, unit) in zip(points.items(), solutions, strict=True):
        W[b], multipliers[b][features.index] = w, unit / features.length
    certificate, value, margins = attention_certificate(W, multipliers, delta, z, constrained, norm)
    bad = np.flatnonzero(solution & ~(certificate.worst <= CERTIFIED))
    if bad.size and errors == "raise":
        raise SolverError(_uncertified(problem, int(bad[0]), certificate, norm, float(value[bad[0]])))
    solution[bad] = False
    W[~solution] = 0.0
    rank = np.where(solution, compare.rank(W), -1)
    for a in (W, value, multipliers, certificate.primal, certificate.dual, certificate.gap):
        a[~solution] = np.nan
    margins[~solution] = np.inf  # no support tokens
    lead, sizes = problem.batch_shape, (problem.n, problem.T)

    def shaped(a: NDArray[Any], *own: int) -> NDArray[Any]:
        return frozen(a.reshape(lead + own))

    return AttentionSVM(
        W=shaped(W, problem.d, problem.d),
        value=shaped(value),
        rank=shaped(rank),
        support=shaped(margins < 1.0 + SUPPORT_TOLERANCE, *sizes),
        multipliers=shaped(multipliers, *sizes),
        tokens=shaped(index, problem.n),
        constrained=shaped(constrained, *sizes),
        norm=norm,
        feasible=shaped(possible),
        certificate=Certificate(
            shaped(certificate.primal), shaped(certificate.dual), shaped(certificate.gap)
        ),
    )


def feasible(problem: Problem, tokens: ArrayLike | None = None) -> BoolArray:
    """Whether some W separates the selected tokens from all others.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; the optimal ones by default.

    Returns
    -------
    ndarray of bool, shape (...)
        True when separating weights were found, False when a combination of the features with nonnegative
        weights was found to vanish.

    Raises
    ------
    SolverError
        If neither can be shown in double precision.
    DataError
        If ``problem`` is none, a masked token is selected, or tokens are needed but the head is not linear.
    ShapeError
        If ``tokens`` does not fit.
    """
    _, delta, z, constrained = _constraints(problem, tokens)
    out = np.empty(len(z), dtype=bool)
    for b in range(len(z)):
        status = nearest(Features.of(delta[b], z[b], constrained[b])).status
        if status == "unsettled":
            raise SolverError(_unsolved(problem, b, status))
        out[b] = status in ("solved", "separable")
    return out.reshape(problem.batch_shape)


def _constraints(
    problem: Problem, tokens: ArrayLike | None
) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
    """Selected tokens, differences, queries and constrained tokens, all batch axes made into one."""
    index = require(problem, Problem, "problem").checked_tokens(tokens)
    n, T, d = problem.n, problem.T, problem.d
    constrained = problem.visible & (np.arange(T) != index[..., None])
    delta = problem.differences(index).reshape(-1, n, T, d)
    return index.reshape(-1, n), delta, problem.z.reshape(-1, n, d), constrained.reshape(-1, n, T)


def _which(problem: Problem, b: int) -> str:
    """Name one problem of the batch with its sizes, for messages."""
    at = np.unravel_index(b, problem.batch_shape) if problem.batch_shape else ()
    name = f" of batch element ({', '.join(str(int(i)) for i in at)})" if at else ""
    return f"{name} (n={problem.n}, T={problem.T}, d={problem.d})"


def _infeasible(problem: Problem, b: int, index: IntArray, features: Features, proof: LeastDistance) -> str:
    where, mend = _which(problem, b), 'or pass errors="nan" to get NaN for infeasible problems'
    start = f"No W separates the selected tokens{where}: "
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
        f"positive weights is 0). Select other tokens, raise d (d >= max(T - 1, n) is enough for generic "
        f"data), {mend}."
    )


def _unsolved(problem: Problem, b: int, status: str) -> str:
    start = f"The attention SVM{_which(problem, b)} "
    if status == "separable":
        start += "is feasible, but cannot be solved to the promised accuracy in double precision: "
    else:
        start += "can be neither solved nor proved infeasible in double precision: "
    return (
        f"{start}its margin is within round-off of 0, or its tokens differ too much in scale. Merge nearly "
        f'equal tokens, rescale the data, or pass errors="nan" to get NaN here.'
    )


def _uncertified(problem: Problem, b: int, certificate: Certificate, norm: str, value: float) -> str:
    parts = ", ".join(
        f"{name} {float(getattr(certificate, name)[b]):.1e}" for name in ("primal", "dual", "gap")
    )
    return (
        f'The "{norm}" attention SVM{_which(problem, b)} was solved only up to {parts}, above the promised '
        f"{CERTIFIED:.0e}; the norm of its solution is {value:.2e}. It may have tokens or sequences "
        f"equal but for about 1e-8, or constraints that nearly contradict each other. "
        f'Merge what is nearly equal, rescale the data, or pass errors="nan" to get NaN here.'
    )
