r"""The attention SVM in an entry-wise norm :math:`\|W\|_p=(\sum_{ab}|W_{ab}|^p)^{1/p}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib import compare, norms
from svmlib.arrays import BoolArray, FloatArray, IntArray, frozen
from svmlib.data import Problem
from svmlib.errors import SolverError

from .arguments import constraints, named
from .features import Features
from .lp_points import lp_point
from .programs import attention_svm
from .records import CERTIFIED, SUPPORT_TOLERANCE, Certificate, widths

__all__ = ["LpSVM", "lp_svm"]


@dataclass(frozen=True, slots=True, eq=False)
class LpSVM:
    r"""Solution of the attention SVM for one entry-wise norm.

    Attributes
    ----------
    W : ndarray, shape (..., e, q)
        Minimiser; unique for :math:`1<p<\infty`. NaN where there is none.
    value : ndarray, shape (...)
        Its norm :math:`\|W\|_p`.
    rank : ndarray of int, shape (...)
        Singular values above 1e-6 of the largest; -1 where there is no solution.
    support : ndarray of bool, shape (..., n, T)
        Support tokens: constrained tokens whose margin is below 1.001.
    multipliers : ndarray, shape (..., n, T)
        Lagrange multipliers :math:`\lambda\ge0` of :math:`\min\|W\|_p`, 0 off the constraints: with
        :math:`G=\sum\lambda_{it}A_{it}`, :math:`\|G\|_q=1` and
        :math:`\langle G,W\rangle=\sum\lambda=\|W\|_p`, where :math:`1/p+1/q=1`. For p = 2 they are those of
        :class:`AttentionSVM` divided by the norm.
    tokens : ndarray of int, shape (..., n)
        Selected tokens.
    constrained : ndarray of bool, shape (..., n, T)
        Tokens that carry a constraint: neither selected nor masked.
    p : float
        Exponent of the norm.
    feasible : ndarray of bool, shape (...)
        False where it is proved that there is no solution.
    certificate : Certificate
        How far the solution may be from optimal: largest violation, :math:`\max(0,\|G\|_q-1)`, and
        :math:`|\|W\|_p-\sum\lambda|/\|W\|_p`.
    """

    W: FloatArray
    value: FloatArray
    rank: IntArray
    support: BoolArray
    multipliers: FloatArray
    tokens: IntArray
    constrained: BoolArray
    p: float
    feasible: BoolArray
    certificate: Certificate

    @property
    def norm(self) -> norms.Norm:
        """The norm that W minimises."""
        return norms.lp(self.p)

    @property
    def solved(self) -> BoolArray:
        """(...) where there is a certified solution; elsewhere the entries are NaN."""
        return np.isfinite(self.value)

    @property
    def margin(self) -> FloatArray:
        """(...) largest margin of weights of norm 1, 1/value; infinite where there is no constraint."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.value)

    def __repr__(self) -> str:
        size = f"n={self.support.shape[-2]}, T={self.support.shape[-1]}, {widths(*self.W.shape[-2:])}"
        if self.value.ndim:
            what = f"batch {self.value.shape}, {int(self.solved.sum())} of {self.solved.size} solved"
        else:
            what = f"value {float(self.value):.6g}" if self.solved else "no solution"
        return f'LpSVM("{self.norm.name}", {size}, {what}, {self.certificate!r})'


def lp_svm(problem: Problem, tokens: ArrayLike | None = None, p: float = 3.0, errors: str = "raise") -> LpSVM:
    r"""Solve the attention SVM for an entry-wise norm, with a certificate.

    .. math::
       \min_W\|W\|_p\quad\text{s.t.}\quad(k_{i\alpha_i}-k_{it})^\top Wz_i\ge1
       \quad\forall t\ne\alpha_i,\ i\in[n].

    For p = 2 this is :func:`attention_svm` by a slower way. For p = 1 and p = inf the solution need not be
    unique; a vertex of the set of solutions is returned.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes.
    tokens : array_like of int, shape (..., n), optional
        Selected tokens; ``problem.optimal`` by default.
    p : float
        Exponent, 1 to infinity. Very large ones and such just above 1 may not be solved as accurately as
        promised; ask for infinity or 1 then.
    errors : str
        "raise" raises at a problem that has no solution or cannot be solved; "nan" gives it NaN in ``W``,
        ``value``, ``multipliers`` and the certificate, and rank -1.

    Returns
    -------
    LpSVM
        Read-only arrays with the batch axes of the problem.

    Raises
    ------
    InfeasibleError
        If no W separates the selected tokens, and ``errors="raise"``.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, and ``errors="raise"``.
    DataError
        If ``problem`` is none, p is below 1, ``errors`` is unknown, or a masked token is selected.
    ShapeError
        If ``tokens`` does not fit.

    Notes
    -----
    Programs of *Optimizing Attention with Mirror Descent* (2024), there for p = 1.75, 2 and 3.

    Examples
    --------
    >>> import svmlib as sv
    >>> lp_svm(sv.data.planar(1), p=3).W.round(3)
    array([[ 3.546, -3.641],
           [ 5.014,  5.116]])
    """
    norm = norms.lp(p)
    exponents = norm.exponents
    assert exponents is not None
    plain = attention_svm(problem, tokens, "fro", errors)  # says what is infeasible, and gives the scale
    index, delta, z, constrained, required = constraints(problem, plain.tokens, None).flat()
    B, (n, T) = len(z), (problem.n, problem.T)
    W, multipliers = np.zeros((B, delta.shape[-1], z.shape[-1])), np.zeros((B, n, T))
    sizes, solution = plain.value.reshape(B), plain.solved.reshape(B).copy()
    for b in np.flatnonzero(solution & (sizes > 0)).tolist():
        features = Features.of(delta[b], z[b], constrained[b], required[b])
        rows = (features.delta[:, :, None] * features.query[:, None, :]).reshape(len(features.length), -1)
        w, lam = lp_point(rows, 1.0 / (features.length * sizes[b]), exponents[0])
        W[b] = sizes[b] * w.reshape(W.shape[1:])
        multipliers[b][features.index] = lam / features.length
    certificate, value, margins = _certificate(W, multipliers, delta, z, constrained, norm)
    bad = np.flatnonzero(solution & ~(certificate.worst <= CERTIFIED))
    if bad.size and errors == "raise":
        name = named(problem, int(bad[0]), delta.shape[-1])
        raise SolverError(
            f"The attention SVM for p={exponents[0]:g}{name} was solved only "
            f"up to {float(certificate.worst[bad[0]]):.1e}, above the promised {CERTIFIED:.0e}. Take p "
            f'nearer to 2 (or p=1, p=inf), rescale the data, or pass errors="nan" to get NaN here.'
        )
    solution[bad] = False
    W[~solution] = 0.0
    rank = np.where(solution, compare.rank(W), -1)
    for a in (W, value, multipliers, certificate.primal, certificate.dual, certificate.gap):
        a[~solution] = np.nan
    lead = problem.batch_shape

    def shaped(a: NDArray[Any], *own: int) -> NDArray[Any]:
        return frozen(a.reshape(lead + own))

    support = solution[:, None, None] & constrained & (margins < 1.0 + SUPPORT_TOLERANCE)
    parts = (certificate.primal, certificate.dual, certificate.gap)
    return LpSVM(
        W=shaped(W, *W.shape[1:]),
        value=shaped(value),
        rank=shaped(rank),
        support=shaped(support, n, T),
        multipliers=shaped(multipliers, n, T),
        tokens=shaped(index, n),
        constrained=shaped(constrained, n, T),
        p=exponents[0],
        feasible=frozen(plain.feasible.copy()),
        certificate=Certificate(*(shaped(a) for a in parts)),
    )


def _certificate(
    W: FloatArray,
    multipliers: FloatArray,
    delta: FloatArray,
    z: FloatArray,
    constrained: BoolArray,
    norm: norms.Norm,
) -> tuple[Certificate, FloatArray, FloatArray]:
    """Check both points against the data: certificate, norms of W, margins."""
    margins = np.einsum("bnte,bne->bnt", delta, z @ np.swapaxes(W, -1, -2))
    below = np.where(constrained, 1.0 - margins, 0.0).max((-2, -1), initial=0.0)
    G = np.swapaxes(np.einsum("bnt,bnte->bne", multipliers, delta), -1, -2) @ z
    value, total = norm(W).copy(), multipliers.sum((-2, -1))
    dual = np.maximum(0.0, norm.dual(G) - 1.0)  # the multipliers are nonnegative as they come
    gap = np.abs(value - total) / np.where(value > 0, value, 1.0)
    return Certificate(below, np.asarray(dual), gap), value, margins
