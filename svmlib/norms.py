r"""Matrix norms, each with its dual and with the direction in which it descends fastest.

A norm appears twice in the theory: gradient descent that is steepest in a norm, and the SVM that
minimises that norm. One record holds both roles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .arrays import FloatArray, as_float
from .errors import DataError

__all__ = ["FRO", "NUC", "SPEC", "Norm", "get"]


@dataclass(frozen=True, slots=True)
class Norm:
    r"""A matrix norm :math:`\|\cdot\|` on the last two axes of an array.

    Attributes
    ----------
    name : str
        Short name: "fro", "nuc", "spec".
    dual_name : str
        Name of :math:`\|G\|_* = \max\{\langle G, D\rangle : \|D\| \le 1\}`.

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

    def __call__(self, A: ArrayLike) -> FloatArray:
        """Norm of each matrix: (..., d, e) -> (...)."""
        return np.asarray(self._value(as_float(A, "A", min_ndim=2)))

    @property
    def dual(self) -> Norm:
        """The dual norm."""
        return _NORMS[self.dual_name]

    def steepest(self, G: ArrayLike) -> FloatArray:
        r"""Return D with :math:`\|D\|\le1` and :math:`\langle G,D\rangle=\|G\|_*`; 0 where G is 0.

        The direction need not be unique: for the nuclear norm it is the rank-one matrix of the first
        singular pair, for the spectral norm the polar factor.

        Parameters
        ----------
        G : array_like, shape (..., d, e)
            Matrices, gradients for example.

        Returns
        -------
        ndarray, shape (..., d, e)
            Directions.
        """
        return self._steepest(as_float(G, "G", min_ndim=2))


def _fro(A: FloatArray) -> FloatArray:
    # dividing by the largest entry first keeps the squares of tiny or huge entries in range
    top = np.abs(A).max(axis=(-2, -1), initial=0.0, keepdims=True)
    safe = np.where(top > 0, top, 1.0)
    return np.asarray(safe[..., 0, 0] * np.sqrt(np.square(A / safe).sum(axis=(-2, -1))))


def _fro_steepest(G: FloatArray) -> FloatArray:
    norm = _fro(G)[..., None, None]
    return np.asarray(G / np.where(norm > 0, norm, 1.0))


def _singular(A: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.svd(A, compute_uv=False), dtype=np.float64)


def _nuc_steepest(G: FloatArray) -> FloatArray:
    u, s, vt = np.linalg.svd(G, full_matrices=False)
    return np.asarray(np.where(s[..., :1, None] > 0, u[..., :, :1] * vt[..., :1, :], 0.0))


def _spec_steepest(G: FloatArray) -> FloatArray:
    u, s, vt = np.linalg.svd(G, full_matrices=False)
    keep = s > s[..., :1] * np.finfo(float).eps * max(G.shape[-2:])
    return np.asarray((u * keep[..., None, :]) @ vt)


FRO = Norm("fro", "fro", _fro, _fro_steepest)
NUC = Norm("nuc", "spec", lambda A: np.asarray(_singular(A).sum(-1)), _nuc_steepest)
SPEC = Norm("spec", "nuc", lambda A: np.asarray(_singular(A).max(-1, initial=0.0)), _spec_steepest)

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
    if name not in _NORMS:
        raise DataError(f"norm must be one of {sorted(_NORMS)}, got {name!r}.")
    return _NORMS[name]
