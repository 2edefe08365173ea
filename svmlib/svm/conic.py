"""The attention SVM once more, written as it is read: one cvxpy constraint for each token.

Slow and independent of the other solver: the second opinion that tests compare with.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare
from svmlib.arrays import frozen
from svmlib.data import Problem
from svmlib.errors import InfeasibleError, ShapeError, SolverError

from .arguments import checked_norm, constraints, named
from .records import CERTIFIED, SUPPORT_TOLERANCE, AttentionSVM, Certificate, attention_certificate, require

__all__ = ["attention_svm_conic"]

_ACCEPTED = 1e-6


def attention_svm_conic(
    problem: Problem,
    tokens: ArrayLike | None = None,
    norm: str = "fro",
    relaxed: ArrayLike | None = None,
) -> AttentionSVM:
    r"""Solve the attention SVM of one problem with cvxpy and Clarabel, a constraint for each token.

    Meant for comparison with :func:`attention_svm`, which is faster and more accurate. Infeasibility is the
    solver's word here, not a proof.

    Parameters
    ----------
    problem : Problem
        Data without batch axes.
    tokens : array_like of int, shape (n,), optional
        Selected tokens; ``problem.optimal`` by default.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).
    relaxed : array_like of bool, shape (n,), optional
        Sequences whose margins need only be at least 0; none by default.

    Returns
    -------
    AttentionSVM
        As :func:`attention_svm` returns, certified to 1e-6; ``rank`` is -1 unless it is certified to 1e-9.

    Raises
    ------
    InfeasibleError
        If the solver reports infeasibility.
    SolverError
        If it reports failure, or its point is not within 1e-6 of optimal.
    DataError
        If ``problem`` is none, ``norm`` is unknown, ``relaxed`` is not boolean or a masked token is selected.
    ShapeError
        If the problem has batch axes, or ``tokens`` or ``relaxed`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), (Att-SVM).
    """
    require(problem, Problem, "problem")
    checked_norm(norm)
    if problem.batch_shape:
        raise ShapeError(
            f"attention_svm_conic takes one problem, got a batch of shape {problem.batch_shape}: index it, "
            f"problem[0], or call attention_svm, which takes batches."
        )
    import cvxpy as cp

    index, delta, z, constrained, required = constraints(problem, tokens, relaxed)
    multipliers, W = np.zeros(constrained.shape), cp.Variable((delta.shape[-1], z.shape[-1]))
    # where only relaxed margins are left, W = 0 meets them, but no solver meets it to a relative accuracy
    asked = (constrained & required[:, None]).any()
    pairs = np.argwhere(constrained & asked)
    each = [delta[i, t] @ W @ z[i] >= float(required[i]) for i, t in pairs]
    objective = 0.5 * cp.sum_squares(W) if norm == "fro" else cp.normNuc(W)
    program = cp.Problem(cp.Minimize(objective), each)
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    sizes = named(problem, 0, delta.shape[-1])[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": the certificate measures how inaccurate
        try:
            program.solve(solver=cp.CLARABEL, **tight)
        except cp.error.SolverError as exc:
            raise SolverError(f"Clarabel failed on the attention SVM {sizes}: {exc}") from exc
    if program.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
        raise InfeasibleError(
            f"No W separates the selected tokens {sizes}, Clarabel reports ({program.status}). Select other "
            f"tokens or raise d; attention_svm names the constraints that contradict each other."
        )
    if W.value is None:
        raise SolverError(f"Clarabel found no solution of the attention SVM {sizes}: {program.status}.")
    solution = np.asarray(W.value)
    for (i, t), constraint in zip(pairs, each, strict=True):
        multipliers[i, t] = float(constraint.dual_value)
    certificate, value, slack = attention_certificate(
        solution, multipliers, delta, z, constrained, required, norm
    )
    worst = float(certificate.worst)
    if not worst <= _ACCEPTED:
        raise SolverError(
            f'Clarabel solved the "{norm}" attention SVM {sizes} only up to {worst:.1e}, above the promised '
            f"{_ACCEPTED:.0e}; attention_svm is more accurate."
        )
    return AttentionSVM(
        W=frozen(solution),
        value=frozen(value),
        rank=frozen(np.asarray(compare.rank(solution) if worst <= CERTIFIED else -1, dtype=np.int64)),
        support=frozen(slack < SUPPORT_TOLERANCE),
        multipliers=frozen(multipliers),
        tokens=frozen(index),
        constrained=frozen(constrained),
        required=frozen(required),
        norm=norm,
        feasible=frozen(np.asarray(True)),
        certificate=Certificate(*map(frozen, (certificate.primal, certificate.dual, certificate.gap))),
    )
