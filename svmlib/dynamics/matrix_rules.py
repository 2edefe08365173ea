r"""Rules that move the whole matrix W: steepest descent in any norm, and mirror descent.

Plain and normalised gradient steps need the gradient only as a combination of outer products. These two need
its entries or its singular values, so here the matrix is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from svmlib import norms
from svmlib._pivoted import Layer
from svmlib.arrays import FloatArray, as_float, check_positive, to_tensor
from svmlib.attention import Direct
from svmlib.errors import DataError

__all__ = ["MatrixRule", "MatrixState", "mirror_descent", "steepest"]


class MatrixRule(NamedTuple):
    """An update rule for matrices W, made by :func:`steepest` or :func:`mirror_descent`: two pure functions.

    ``start(W)`` makes the state; ``move(D, state, k)`` gets the negative gradient D, shape (B, e, q), up to a
    positive factor for each instance, and the number of steps done, and returns W and the new state.
    """

    name: str
    start: Callable[[FloatArray], FloatArray]
    move: Callable[[FloatArray, FloatArray, int], tuple[FloatArray, FloatArray]]

    def __repr__(self) -> str:
        return f"MatrixRule({self.name!r})"


def steepest(norm: str | norms.Norm, rate: float, decay: float = 0.0) -> MatrixRule:
    r"""Normalised steepest descent in a norm, for weights ``Direct(W)``.

    :math:`W\leftarrow W+\eta_kD_k` with :math:`D_k` maximising :math:`\langle-\nabla\mathcal L,D\rangle` over
    :math:`\|D\|\le1`, and :math:`\eta_k=\eta(k+1)^{-\mathrm{decay}}`. With constant steps in the Frobenius
    norm this is :func:`normalized`. The spectral norm gives steps whose singular values are all equal, the
    l_inf norm signs, the nuclear norm a step of rank one.

    Parameters
    ----------
    norm : str or Norm
        "fro", "nuc", "spec", or any :class:`svmlib.norms.Norm`, such as ``svmlib.norms.lp(3)``.
    rate : float
        Length :math:`\eta>0` of a step in that norm.
    decay : float
        Exponent, :math:`\ge0`. A run that is continued from its final weights starts to count anew.

    Returns
    -------
    MatrixRule
        For :func:`train`.

    Raises
    ------
    DataError
        If an argument is out of range.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.planar(1)
    >>> rule = sv.dynamics.steepest("spec", 0.1)
    >>> run = sv.dynamics.train(p, sv.attention.Direct.zeros(p), rule, steps=1)
    >>> float(sv.norms.SPEC(run.W[-1]).round(12))
    0.1
    """
    chosen, eta = norms.get(norm), check_positive(rate, "The step size")
    power = float(as_float(decay, "decay", ndim=0, finite=False))
    if not 0 <= power < np.inf:
        raise DataError(f"decay must be a finite number >= 0, got {decay!r}.")

    def move(D: FloatArray, W: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        W = W + eta * (k + 1.0) ** -power * chosen.steepest(D)
        return W, W

    return MatrixRule(f"steepest descent, {chosen.name}, rate {eta:g}", lambda W: W, move)


def mirror_descent(p: float, rate: float) -> MatrixRule:
    r"""Normalised mirror descent with the potential :math:`\frac1p\|W\|_p^p`, for weights ``Direct(W)``.

    With :math:`\Theta=\operatorname{sign}(W)|W|^{p-1}`, entry by entry, and :math:`1/p+1/q=1`,

    .. math:: \Theta\leftarrow\Theta-\eta\,\nabla\mathcal L(W)/\|\nabla\mathcal L(W)\|_q,
       \qquad W=\operatorname{sign}(\Theta)|\Theta|^{q-1} .

    For p = 2 it is :func:`normalized`. :math:`\|\Theta\|_q` grows by at most :math:`\eta` a step, so
    :math:`\|W\|_p` at most like :math:`(\eta k)^{1/(p-1)}`.

    Parameters
    ----------
    p : float
        Exponent, above 1 and finite.
    rate : float
        Length :math:`\eta>0` of a step of :math:`\Theta` in the norm :math:`\|\cdot\|_q`.

    Returns
    -------
    MatrixRule
        For :func:`train`.

    Raises
    ------
    DataError
        If an argument is out of range.

    Notes
    -----
    *Optimizing Attention with Mirror Descent* (2024).
    """
    exponents, eta = norms.lp(p).exponents, check_positive(rate, "The step size")
    assert exponents is not None
    if not 1.0 < exponents[0] < np.inf:
        raise DataError(f"p must be above 1 and finite, where the potential has a mirror map, got {p!r}.")
    own, dual = exponents
    size = norms.lp(dual)

    def move(D: FloatArray, theta: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        unit = norms.scaled(D)[0]
        length = size(unit)[..., None, None]
        theta = theta + eta * unit / np.where(length > 0, length, 1.0)
        return _signed_power(theta, dual - 1.0), theta

    return MatrixRule(f"mirror descent, p={own:g}, rate {eta:g}", lambda W: _signed_power(W, own - 1.0), move)


def _signed_power(A: FloatArray, power: float) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):  # NaN of an instance that the training loop will name
        return np.asarray(np.sign(A) * np.abs(A) ** power)


class MatrixState:
    """Weights of a batch of instances, and the steps that a matrix rule makes with them.

    Parameters
    ----------
    layer : Layer
        The data.
    weights : Direct
        Where to start.
    rule : MatrixRule
        How to move.
    device : str
        Where the layer is; the matrices are handled by numpy.
    """

    def __init__(self, layer: Layer, weights: Any, rule: MatrixRule, device: str) -> None:
        if not isinstance(weights, Direct):
            raise DataError(
                f"The rule {rule.name!r} moves a matrix: it needs weights Direct(W), got "
                f"{type(weights).__name__}."
            )
        self.layer, self.device = layer, device
        self.W = np.array(weights.W, dtype=np.float64).reshape(-1, *np.shape(weights.W)[-2:])
        self.inner, self.count = rule.start(self.W), 0

    def mapped(self) -> Tensor:
        """Map the queries: W z, shape (e, n, B)."""
        W = to_tensor(self.W.transpose(1, 2, 0), self.device)
        return (W[:, :, None] * self.layer.z).sum(1)

    def step(self, rows: Tensor, log_scale: Tensor, rule: Any, state: Any) -> Any:
        """Make one step, given the negative gradient as rows, up to a factor for each instance.

        Parameters
        ----------
        rows : Tensor, shape (e, n, B)
            Rows r of the scaled negative gradient, the sum of r z'.
        log_scale : Tensor, shape (B,)
            Logarithm of its scale: no matter here.
        rule : MatrixRule
            How to move.
        state : None
            Handed back.

        Returns
        -------
        None
            The state.
        """
        D = (rows[:, None] * self.layer.z).sum(2).permute(2, 0, 1).cpu().numpy()
        lost = ~np.isfinite(D).all((-2, -1))
        D[lost] = 0.0
        self.W, self.inner = rule.move(D, self.inner, self.count)
        self.W[lost] = np.nan  # the training loop looks for NaN and names the instance
        self.count += 1
        return state

    def weights(self) -> Direct:
        """Return the weights of the moment.

        Returns
        -------
        Direct
            W, shape (B, e, q).
        """
        return Direct(self.W.copy())
