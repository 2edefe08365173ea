r"""Matrix norms, each with its dual and with the direction in which it descends fastest.

A norm appears twice in the theory: gradient descent that is steepest in a norm, and the SVM that
minimises that norm. One record holds both roles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import FloatArray, as_float
from .errors import DataError

__all__ = ["FRO", "NUC", "SPEC", "Norm", "as_matrices", "get", "lp", "scaled"]


def as_matrices(A: Any, name: str, last: tuple[int | None, ...] = (), finite: bool = True) -> FloatArray:
    r"""Return matrices (..., d, e) as a float64 array; of attention weights, the matrix that they make.

    Parameters
    ----------
    A : array_like or attention weights
        Matrices, or an object whose method ``matrix()`` gives them.
    name : str
        What the caller calls this argument; error messages repeat it.
    last : tuple of int or None
        Sizes of the last axes.
    finite : bool
        Whether NaN and infinities are refused.

    Returns
    -------
    ndarray, shape (..., d, e)
        The matrices.

    Raises
    ------
    ShapeError
        If the axes do not fit.
    DataError
        If the entries are not numbers, or not finite.
    """
    # weights made of keys and queries are a tuple: as an array they would pass for a stack of two matrices
    value = A.matrix() if callable(getattr(A, "matrix", None)) else A
    return as_float(value, name, min_ndim=2, last=last, finite=finite)


@dataclass(frozen=True, slots=True)
class Norm:
    r"""A matrix norm :math:`\|\cdot\|` on the last two axes of an array.

    Attributes
    ----------
    name : str
        Short name: "fro", "nuc", "spec", or "l3" for :func:`lp` with p = 3.
    dual_name : str
        Name of :math:`\|G\|_* = \max\{\langle G, D\rangle : \|D\| \le 1\}`.
    exponents : (float, float) or None
        Of a norm made by :func:`lp`, its exponent p and that of the dual norm, q; None for the others.

    Examples
    --------
    >>> import numpy as np
    >>> float(NUC(np.diag([3.0, 4.0])))
    7.0
    >>> NUC.dual.name
    'spec'
    """

    name: str
    dual_name: str
    _value: Callable[[FloatArray], FloatArray]
    _steepest: Callable[[FloatArray], FloatArray]
    exponents: tuple[float, float] | None = None

    def __call__(self, A: ArrayLike) -> FloatArray:
        """Norm of each matrix: (..., d, e) -> (...)."""
        return np.asarray(self._value(as_matrices(A, "A")))

    def __repr__(self) -> str:
        return f"Norm({self.name!r})"

    @property
    def dual(self) -> Norm:
        """The dual norm."""
        return _NORMS[self.dual_name] if self.exponents is None else _lp(*self.exponents[::-1])

    def steepest(self, G: ArrayLike) -> FloatArray:
        r"""Return D with :math:`\|D\|\le1` and :math:`\langle G,D\rangle=\|G\|_*`; 0 where G is 0.

        The direction need not be unique: for the nuclear norm it is the rank-one matrix of the first
        singular pair, for the spectral norm the polar factor. For :func:`lp` with p = 1 entries that share
        the largest absolute value share the step, and with p = inf entries that are 0 do not move.

        Parameters
        ----------
        G : array_like, shape (..., d, e)
            Matrices, gradients for example.

        Returns
        -------
        ndarray, shape (..., d, e)
            Directions.
        """
        return self._steepest(as_matrices(G, "G"))


def scaled(A: FloatArray) -> tuple[FloatArray, NDArray[np.int32]]:
    """Bring the largest entries near 1 by powers of two: squares of tiny or huge entries then stay in range.

    Parameters
    ----------
    A : ndarray, shape (..., d, e)
        Matrices.

    Returns
    -------
    unit : ndarray, shape (..., d, e)
        Matrices with largest absolute value from 0.5 to 1; zero matrices stay as they are.
    exponent : ndarray of int, shape (...)
        ``A`` is ``unit`` times two to this power, without any rounding.
    """
    exponent = np.frexp(np.abs(A).max(axis=(-2, -1), initial=0.0, keepdims=True))[1]
    with np.errstate(under="ignore"):
        return np.ldexp(A, -exponent), exponent[..., 0, 0]


def _sized(value: FloatArray, exponent: NDArray[np.int32]) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):  # a norm above the largest number is infinite
        return np.asarray(np.ldexp(value, exponent))


def _fro(A: FloatArray) -> FloatArray:
    unit, exponent = scaled(A)
    with np.errstate(under="ignore"):
        return _sized(np.sqrt(np.square(unit).sum(axis=(-2, -1))), exponent)


def _fro_steepest(G: FloatArray) -> FloatArray:
    unit = scaled(G)[0]
    norm = _fro(unit)[..., None, None]
    return np.asarray(unit / np.where(norm > 0, norm, 1.0))


def _singular(A: FloatArray) -> tuple[FloatArray, NDArray[np.int32]]:
    unit, exponent = scaled(A)
    return np.asarray(np.linalg.svd(unit, compute_uv=False), dtype=np.float64), exponent


def _nuc(A: FloatArray) -> FloatArray:
    values, exponent = _singular(A)
    return _sized(values.sum(-1), exponent)


def _nuc_steepest(G: FloatArray) -> FloatArray:
    if not G.size:
        return np.zeros_like(G)
    u, s, vt = np.linalg.svd(scaled(G)[0], full_matrices=False)
    return np.asarray(np.where(s[..., :1, None] > 0, u[..., :, :1] * vt[..., :1, :], 0.0))


def _spec(A: FloatArray) -> FloatArray:
    values, exponent = _singular(A)
    return _sized(values.max(-1, initial=0.0), exponent)


def _spec_steepest(G: FloatArray) -> FloatArray:
    u, s, vt = np.linalg.svd(scaled(G)[0], full_matrices=False)
    keep = s > s[..., :1] * np.finfo(float).eps * max(G.shape[-2:])
    return np.asarray((u * keep[..., None, :]) @ vt)


FRO = Norm("fro", "fro", _fro, _fro_steepest)
NUC = Norm("nuc", "spec", _nuc, _nuc_steepest)
SPEC = Norm("spec", "nuc", _spec, _spec_steepest)


def _unit(A: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Absolute values with largest entry exactly 1 (0 in zero matrices), and what they were divided by."""
    size = np.abs(A)
    top = size.max(axis=(-2, -1), initial=0.0, keepdims=True)
    return size / np.where(top > 0, top, 1.0), top[..., 0, 0]


def _lp_value(p: float, A: FloatArray) -> FloatArray:
    unit, exponent = scaled(A)
    size, top = _unit(unit)
    if p == np.inf:
        return _sized(top, exponent)
    with np.errstate(under="ignore"):  # the largest entry is 1: what underflows does not count
        return _sized(top * (size**p).sum(axis=(-2, -1)) ** (1.0 / p), exponent)


def _lp_steepest(q: float, G: FloatArray) -> FloatArray:
    """Steepest direction in the norm whose dual has exponent q: sign(G) |G|^(q-1), with norm 1."""
    size = _unit(scaled(G)[0])[0]
    if q == np.inf:  # the limit of large q
        tied = (size == 1.0).astype(float)
        count = tied.sum(axis=(-2, -1), keepdims=True)
        return np.asarray(np.sign(G) * tied / np.where(count > 0, count, 1.0))
    if q == 1.0:
        return np.asarray(np.sign(G))
    with np.errstate(under="ignore"):
        powers = size ** (q - 1.0)
        total = (powers * size).sum(axis=(-2, -1), keepdims=True) ** ((q - 1.0) / q)
        return np.asarray(np.copysign(powers / np.where(total > 0, total, 1.0), G) * (size > 0))


@lru_cache(maxsize=64)
def _lp(p: float, q: float) -> Norm:
    return Norm(f"l{p:g}", f"l{q:g}", partial(_lp_value, p), partial(_lp_steepest, q), (p, q))


def lp(p: float) -> Norm:
    r"""Make the norm of all entries, :math:`\|A\|_p=\big(\sum_{ab}|A_{ab}|^p\big)^{1/p}`.

    Its dual has the exponent q with :math:`1/p+1/q=1`, and its steepest direction the entries
    :math:`\operatorname{sign}(G_{ab})\,|G_{ab}|^{q-1}`, scaled to norm 1: for p = 1 only the largest entries
    move, for p = inf all move by the same amount.

    Parameters
    ----------
    p : float
        Exponent, 1 to infinity. The norm for 2 is ``FRO`` by another name.

    Returns
    -------
    Norm
        The same record for the same p.

    Raises
    ------
    DataError
        If p is no number from 1 to infinity.

    Examples
    --------
    >>> lp(3)
    Norm('l3')
    >>> lp(3).dual.dual is lp(3)
    True
    >>> float(lp(1)([[3.0, -4.0]])), float(lp(float("inf"))([[3.0, -4.0]]))
    (7.0, 4.0)
    """
    exponent = float(as_float(p, "p", ndim=0, finite=False))
    if not exponent >= 1.0 or isinstance(p, (bool, np.bool_)):
        raise DataError(f"p must be a number from 1 to infinity, got {p!r}: below 1 there is no norm.")
    if exponent in (1.0, np.inf):
        return _lp(exponent, np.inf if exponent == 1.0 else 1.0)
    return _lp(exponent, exponent / (exponent - 1.0))


_NORMS = {norm.name: norm for norm in (FRO, NUC, SPEC)}


def get(name: str | Norm) -> Norm:
    """Return the norm called ``name``.

    Parameters
    ----------
    name : str or Norm
        "fro", "nuc" or "spec"; a norm is returned as it is.

    Returns
    -------
    Norm
        The norm.

    Raises
    ------
    DataError
        If there is no norm of that name.
    """
    if isinstance(name, Norm):
        return name
    if not isinstance(name, str) or name not in _NORMS:
        raise DataError(
            f"norm must be one of {sorted(_NORMS)}, got {name!r}. For an entry-wise norm pass norms.lp(p)."
        )
    return _NORMS[name]
