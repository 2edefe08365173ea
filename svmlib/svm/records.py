"""What the solvers return: frozen records with read-only arrays, and their certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from svmlib import norms
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.errors import DataError, ShapeError

__all__ = [
    "CERTIFIED",
    "SUPPORT_TOLERANCE",
    "AttentionSVM",
    "Certificate",
    "HardMargin",
    "attention_certificate",
    "require",
    "widths",
]

Kind = TypeVar("Kind")

CERTIFIED = 1e-9
"""Largest ``Certificate.worst`` with which a solution is handed out: ranks need an accurate point."""

SUPPORT_TOLERANCE = 1e-3
"""A token is a support token when its margin exceeds its right-hand side, 1 or 0, by less than this."""


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    r"""Distance of a primal and a dual point from optimality, computed from the two points alone.

    Weak duality turns the three numbers into a proof: when they are 0, both points are optimal, no
    matter which method found them.

    Attributes
    ----------
    primal : ndarray, shape (...)
        Largest violation of a constraint, right-hand side less margin, or 0.
    dual : ndarray, shape (...)
        Dual infeasibility: for the Frobenius norm
        :math:`\|W-\sum\lambda A\|_F/\|W\|_F`, for the nuclear norm
        :math:`\max(0,\|\sum\lambda A\|_{op}-1)`, each plus the largest negative part of the multipliers
        relative to the largest multiplier.
    gap : ndarray, shape (...)
        Relative duality gap: :math:`|\|W\|_F^2-\sum'\lambda|/\|W\|_F^2`, or
        :math:`|\|W\|_\star-\sum'\lambda|/\|W\|_\star`, the sum being over right-hand sides 1.
    """

    primal: FloatArray
    dual: FloatArray
    gap: FloatArray

    @property
    def worst(self) -> FloatArray:
        """(...) the largest of the three."""
        return np.asarray(np.maximum(np.maximum(self.primal, self.dual), self.gap))

    def __repr__(self) -> str:
        known = self.worst[np.isfinite(self.worst)]  # infeasible problems have none
        return f"Certificate(worst {known.max():.1e})" if known.size else "Certificate(no solution)"


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSVM:
    r"""Solution of the attention SVM for one norm (*Transformers as Support Vector Machines* 2023, Att-SVM).

    Attributes
    ----------
    W : ndarray, shape (..., e, q)
        Minimiser; maps queries to keys, logits are :math:`k^\top Wz`. NaN where there is none.
    value : ndarray, shape (...)
        Its norm: Frobenius or nuclear.
    rank : ndarray of int, shape (...)
        Singular values above 1e-6 of the largest; -1 where there is no solution.
    support : ndarray of bool, shape (..., n, T)
        Support tokens: constrained tokens whose margin is below 1.001, or 0.001 in a relaxed sequence.
    multipliers : ndarray, shape (..., n, T)
        Lagrange multipliers :math:`\lambda\ge0`, 0 off the constraints. With
        :math:`G=\sum\lambda_{it}A_{it}`, :math:`A_{it}=(k_{i\alpha_i}-k_{it})z_i^\top` and
        :math:`\sum'` the sum over required sequences: for "fro", those
        of :math:`\min\frac12\|W\|_F^2`, so :math:`W=G` and :math:`\sum'\lambda=\|W\|_F^2`; for "nuc", those
        of :math:`\min\|W\|_\star`, so :math:`\|G\|_{op}=1` and
        :math:`\langle G,W\rangle=\sum'\lambda=\|W\|_\star`.
    tokens : ndarray of int, shape (..., n)
        Selected tokens.
    constrained : ndarray of bool, shape (..., n, T)
        Tokens that carry a constraint: neither selected nor masked.
    required : ndarray of bool, shape (..., n)
        Sequences whose margins are at least 1; in the others, the relaxed ones, they are at least 0.
    norm : str
        "fro" or "nuc".
    feasible : ndarray of bool, shape (...)
        False where it is proved that there is no solution.
    certificate : Certificate
        How far the solution may be from optimal.
    """

    W: FloatArray
    value: FloatArray
    rank: IntArray
    support: BoolArray
    multipliers: FloatArray
    tokens: IntArray
    constrained: BoolArray
    required: BoolArray
    norm: str
    feasible: BoolArray
    certificate: Certificate

    @property
    def solved(self) -> BoolArray:
        """(...) where there is a certified solution; elsewhere the entries are NaN."""
        return np.isfinite(self.value)

    @property
    def p(self) -> FloatArray:
        """(..., e) the column of W as a vector, for queries that are numbers.

        Raises
        ------
        ShapeError
            If queries are wider than 1.
        """
        if self.W.shape[-1] != 1:
            raise ShapeError(
                f"p is the single column of W for queries of width 1, but here W has shape {self.W.shape}. "
                f"Use W, or solve with token_svm."
            )
        return self.W[..., 0]

    @property
    def margin(self) -> FloatArray:
        """(...) largest margin of weights of norm 1, 1/value; infinite where no margin is to be 1."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.value)

    def __repr__(self) -> str:
        size = f"n={self.support.shape[-2]}, T={self.support.shape[-1]}, {widths(*self.W.shape[-2:])}"
        if self.value.ndim:
            what = f"batch {self.value.shape}, {int(self.feasible.sum())} of {self.feasible.size} feasible"
            lost = int((self.feasible & ~self.solved).sum())
            what += f", {lost} of them not solved" if lost else ""
        elif self.solved:
            what = f"value {float(self.value):.6g}, rank {int(self.rank)}"
        else:
            what = "not solved" if self.feasible else "infeasible"
        if not self.required.all():
            what += f", {int((~self.required).sum())} of {self.required.size} sequences relaxed"
        return f'AttentionSVM("{self.norm}", {size}, {what}, {self.certificate!r})'


@dataclass(frozen=True, slots=True, eq=False)
class HardMargin:
    r"""Solution of the classical hard-margin SVM, :math:`\min\|w\|_2` with :math:`y_i(w^\top x_i+b)\ge1`.

    Attributes
    ----------
    w : ndarray, shape (d,)
        Normal of the separating hyperplane.
    b : float
        Intercept; 0 when it is not asked for.
    value : float
        Norm of ``w``.
    margin : float
        Distance of the nearest point from the hyperplane, 1/value.
    support : ndarray of bool, shape (n,)
        Points with margin below 1.001.
    multipliers : ndarray, shape (n,)
        :math:`\lambda\ge0` with :math:`w=\sum\lambda_iy_ix_i` and :math:`\sum\lambda_i=\|w\|^2`.
    certificate : Certificate
        How far the solution may be from optimal; ``dual`` includes :math:`|\sum\lambda_iy_i|` when the
        intercept is free.
    """

    w: FloatArray
    b: float
    value: float
    margin: float
    support: BoolArray
    multipliers: FloatArray
    certificate: Certificate

    def __repr__(self) -> str:
        return (
            f"HardMargin(n={self.support.size}, d={self.w.size}, margin {self.margin:.6g}, "
            f"{int(self.support.sum())} support vectors, {self.certificate!r})"
        )


def widths(e: int, q: int) -> str:
    """Name the widths of keys and queries.

    Parameters
    ----------
    e, q : int
        The widths.

    Returns
    -------
    str
        One number where they are equal.
    """
    return f"d={e}" if e == q else f"keys {e} wide, queries {q} wide"


def require(value: object, kind: type[Kind], name: str) -> Kind:
    """Check the type of an argument that is no array.

    Parameters
    ----------
    value : object
        The argument.
    kind : type
        What it must be.
    name : str
        What the caller calls it.

    Returns
    -------
    object
        The argument.

    Raises
    ------
    DataError
        If it is something else.
    """
    if not isinstance(value, kind):
        public = ".".join(kind.__module__.split(".")[:2])  # where users import it from
        raise DataError(f"{name} must be a {public}.{kind.__name__}, got {type(value).__name__}.")
    return value


def attention_certificate(
    W: FloatArray,
    multipliers: FloatArray,
    delta: FloatArray,
    z: FloatArray,
    constrained: BoolArray,
    required: BoolArray,
    norm: str,
) -> tuple[Certificate, FloatArray, FloatArray]:
    """Check a primal and a dual point of the attention SVM against the data.

    Parameters
    ----------
    W : ndarray, shape (..., e, q)
        Primal point.
    multipliers : ndarray, shape (..., n, T)
        Dual point; 0 off the constraints.
    delta, z : ndarray, shapes (..., n, T, e) and (..., n, q)
        Key differences and queries.
    constrained : ndarray of bool, shape (..., n, T)
        Which tokens carry a constraint.
    required : ndarray of bool, shape (..., n)
        Sequences with right-hand side 1; it is 0 in the others.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    certificate : Certificate
        Zeros where no margin is to be 1.
    value : ndarray, shape (...)
        Norm of ``W``.
    slack : ndarray, shape (..., n, T)
        Margins less their right-hand sides, infinite off the constraints.
    """
    rhs = required[..., None].astype(float)
    mapped = z @ np.swapaxes(W, -1, -2)
    slack = np.where(constrained, np.einsum("...nte,...ne->...nt", delta, mapped) - rhs, np.inf)
    G = np.swapaxes(np.einsum("...nt,...nte->...ne", multipliers, delta), -1, -2) @ z
    value, total = norms.get(norm)(W), (rhs * multipliers).sum(axis=(-2, -1))
    safe = np.where(value > 0, value, 1.0)
    top = np.abs(multipliers).max(axis=(-2, -1), initial=0.0)
    negative = np.maximum(0.0, -multipliers.min(axis=(-2, -1), initial=0.0)) / np.where(top > 0, top, 1.0)
    primal = np.maximum(0.0, -slack.min(axis=(-2, -1)))
    if norm == "fro":
        dual = norms.FRO(W - G) / safe
        gap = np.abs(value - total / safe) / safe
    else:
        dual = np.maximum(0.0, norms.SPEC(G) - 1.0)
        gap = np.abs(value - total) / safe
    return Certificate(primal, np.asarray(dual + negative), gap), value, slack
