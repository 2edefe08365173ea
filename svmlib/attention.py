r"""One attention layer: weights, logits, probabilities, losses and their closed-form gradients.

.. math:: f(X,z)=\psi(X^\top\mathbb S(XWz)),\qquad W\text{ trained directly, or }W=KQ^\top

(Tarzanagh et al. 2023, *Transformers as Support Vector Machines*, section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike

from ._pivoted import Layer, get_loss
from .arrays import FloatArray, as_float, to_tensor
from .data import Problem
from .errors import DataError, ShapeError

__all__ = [
    "Direct",
    "Factored",
    "Weights",
    "check_weights",
    "gradient",
    "linear",
    "logits",
    "loss",
    "mlp",
    "outputs",
    "predictions",
    "probabilities",
    "quadratic",
    "smoothness",
    "softmax_jacobian",
]


class Direct(NamedTuple):
    """The attention matrix W itself, shape (..., d, d), maps queries to keys: logits are x' W z."""

    W: Any

    def matrix(self) -> FloatArray:
        """Return W."""
        return as_float(self.W, "W", min_ndim=2)

    @classmethod
    def zeros(cls, problem: Problem) -> Direct:
        """Zero weights for every instance of ``problem``."""
        return cls(np.zeros((*problem.batch_shape, problem.d, problem.d)))

    @classmethod
    def random(cls, problem: Problem, seed: int = 0, scale: float | None = None) -> Direct:
        r"""Entries uniform on (-scale, scale), by default :math:`d^{-1/2}`: torch's linear layer."""
        bound = problem.d**-0.5 if scale is None else scale
        size = (*problem.batch_shape, problem.d, problem.d)
        return cls(np.random.default_rng(seed).uniform(-bound, bound, size))


class Factored(NamedTuple):
    r"""Keys and queries, K and Q of shape (..., d, m), with :math:`W=KQ^\top`."""

    K: Any
    Q: Any

    def matrix(self) -> FloatArray:
        r"""Return :math:`KQ^\top`, shape (..., d, d)."""
        K, Q = as_float(self.K, "K", min_ndim=2), as_float(self.Q, "Q", min_ndim=2)
        return np.asarray(K @ np.swapaxes(Q, -1, -2))

    @classmethod
    def random(cls, problem: Problem, m: int | None = None, seed: int = 0, scale: float = 0.1) -> Factored:
        """K Gaussian with standard deviation ``scale`` and Q = 0, so that training starts at W = 0.

        Both factors cannot be 0: the gradient of each is a multiple of the other. ``m`` defaults to d.
        """
        size = (*problem.batch_shape, problem.d, problem.d if m is None else m)
        return cls(scale * np.random.default_rng(seed).normal(size=size), np.zeros(size))


Weights: TypeAlias = Direct | Factored


def check_weights(problem: Problem, weights: Weights) -> Weights:
    """Check weights against a problem and broadcast them to its batch.

    Raises
    ------
    ShapeError
        If sizes do not fit.
    DataError
        If entries are not finite, or the weights are neither Direct nor Factored.
    """
    if not isinstance(weights, (Direct, Factored)):
        raise DataError(f"weights must be Direct(W) or Factored(K, Q), got {type(weights).__name__}.")
    d, shape = problem.d, problem.batch_shape
    blocks = []
    for name, value in zip(weights._fields, weights, strict=True):
        block = as_float(value, name, last=(d, d if name == "W" else None))
        try:
            blocks.append(np.broadcast_to(block, shape + block.shape[-2:]))
        except ValueError:
            raise ShapeError(
                f"{name} must have the batch axes of the problem, {shape}, or none; got shape {block.shape}."
            ) from None
    if isinstance(weights, Factored) and blocks[0].shape != blocks[1].shape:
        raise ShapeError(
            f"K and Q must have one shape (..., d, m), got {blocks[0].shape} and {blocks[1].shape}."
        )
    return rebuilt(weights, blocks)


def rebuilt(weights: Weights, blocks: Iterable[Any]) -> Weights:
    """Weights of the same kind as ``weights`` from other blocks."""
    return Direct(*blocks) if isinstance(weights, Direct) else Factored(*blocks)


def _matrix(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    value = W.matrix() if isinstance(W, (Direct, Factored)) else W
    return as_float(value, "W", last=(problem.d, problem.d))


def logits(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Logits :math:`a_{it}=x_{it}^\top Wz_i`; minus infinity at masked tokens.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like or weights, shape (..., d, d) or (..., r, d, d)
        Attention matrices; with one axis more than the problem's batch they are r iterates.

    Returns
    -------
    ndarray, shape (..., n, T) or (..., r, n, T)

    Raises
    ------
    ShapeError
        If W does not fit.
    """
    matrix = _matrix(problem, W)
    X, z, visible = problem.X, problem.z, problem.visible
    if matrix.ndim == len(problem.batch_shape) + 3:
        X, z, visible = X[..., None, :, :, :], z[..., None, :, :], visible[..., None, :, :]
    try:
        np.broadcast_shapes(matrix.shape[:-2], X.shape[:-3])
    except ValueError:
        raise ShapeError(
            f"W has batch axes {matrix.shape[:-2]}, which do not fit the problem's {problem.batch_shape}."
        ) from None
    a = np.einsum("...ntd,...nd->...nt", X, z @ np.swapaxes(matrix, -1, -2))
    return np.where(visible, a, -np.inf)


def probabilities(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Attention probabilities :math:`s_i=\mathbb S(X_iWz_i)`, shapes as for :func:`logits`."""
    a = logits(problem, W)
    e = np.exp(a - a.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def outputs(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Attention outputs :math:`u_i=X_i^\top s_i`, shape (..., n, d) or (..., r, n, d)."""
    s = probabilities(problem, W)
    X = problem.X[..., None, :, :, :] if s.ndim == problem.X.ndim else problem.X
    return np.asarray(np.einsum("...nt,...ntd->...nd", s, X))


def predictions(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Predictions :math:`\psi(u_i)`, shape (..., n) or (..., r, n).

    Raises
    ------
    DataError
        If the problem has no head.
    """
    u = outputs(problem, W)
    if problem.v is not None:
        v = problem.v[..., None, :] if u.ndim > problem.z.ndim else problem.v
        return np.asarray(np.einsum("...nd,...d->...n", u, v))
    if problem.head is None:
        raise DataError("Predictions need a head: pass v= (linear) or head= to Problem.")
    with torch.no_grad():
        return np.asarray(problem.head(to_tensor(u)))


def loss(problem: Problem, W: ArrayLike | Weights, loss: str = "logistic") -> FloatArray:
    r"""Training loss :math:`\frac1n\sum_i\ell(y_i\psi(u_i))`, shape (...) or (..., r).

    Parameters
    ----------
    problem : Problem
        Data and head.
    W : array_like or weights
        Attention matrices.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray
    """
    f = predictions(problem, W)
    y = problem.y[..., None, :] if f.ndim > problem.y.ndim else problem.y
    return np.asarray(get_loss(loss).value(to_tensor(y * f)).numpy().mean(-1))


def gradient(problem: Problem, weights: Weights, loss: str = "logistic") -> Weights:
    r"""Gradient of the training loss, in closed form and right even where softmax has saturated.

    .. math::
        \nabla_W\mathcal L=\frac1n\sum_i\ell_i'\,X_i^\top\mathbb S'(a_i)\gamma_i z_i^\top,\qquad
        \nabla_K=\nabla_W\,Q,\qquad \nabla_Q=(\nabla_W)^\top K .

    Parameters
    ----------
    problem : Problem
        Data and head; a nonlinear head is differentiated by autograd, nothing else is.
    weights : Direct or Factored
        Where to take the gradient.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    Direct or Factored
        The gradient with respect to each block, in its shape; entries below 1e-308 underflow to 0.
    """
    checked = check_weights(problem, weights)
    layer = Layer(problem, "cpu")
    matrix = np.broadcast_to(checked.matrix(), (*problem.batch_shape, problem.d, problem.d))
    W = to_tensor(matrix.reshape(-1, layer.d, layer.d).transpose(1, 2, 0))
    rows, log_scale = layer.ascent(layer.view((W[:, :, None] * layer.z).sum(1)), get_loss(loss))
    scaled = -(log_scale.exp() / layer.n) * (rows[:, None] * layer.z).sum(2)
    G = scaled.permute(2, 0, 1).numpy().reshape(matrix.shape)
    if isinstance(checked, Direct):
        return Direct(G)
    return Factored(G @ checked.Q, np.swapaxes(G, -1, -2) @ checked.K)


def smoothness(problem: Problem, loss: str = "logistic") -> FloatArray:
    r"""Lipschitz constant of :math:`\nabla_W\mathcal L`, for a linear head: plain descent with a step below
    its inverse never increases the loss.

    With :math:`r_i=\|z_i\|\max_{t,\tau}\|x_{it}-x_{i\tau}\|`, :math:`g_i` the spread of the scores and
    :math:`|\ell'|\le M_1`, :math:`|\ell''|\le M_0` on the range of scores,

    .. math:: L=\frac1n\sum_i r_i^2\Big(\frac{M_0g_i^2}{16}+\frac{M_1g_i}4\Big).

    Parameters
    ----------
    problem : Problem
        With linear head.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (...)
    """
    get_loss(loss)
    gamma, visible = problem.scores, problem.visible
    low = np.where(visible, gamma, np.inf).min(-1)
    spread = gamma.max(-1) - low
    pair = visible[..., :, None] & visible[..., None, :]
    apart = np.linalg.norm(problem.X[..., :, None, :] - problem.X[..., None, :, :], axis=-1)
    r = np.linalg.norm(problem.z, axis=-1) * np.where(pair, apart, 0.0).max((-2, -1))
    steep = np.exp(-low)  # the exponential loss is steepest at the smallest score
    M0, M1 = {"logistic": (0.25, 1.0), "linear": (0.0, 1.0), "exponential": (steep, steep)}[loss]
    return np.asarray((r**2 * (M0 * spread**2 / 16 + M1 * spread / 4)).mean(-1))


def softmax_jacobian(s: ArrayLike) -> FloatArray:
    r"""Jacobian :math:`\operatorname{diag}(s)-ss^\top` of softmax: probabilities (..., T) to (..., T, T)."""
    p = as_float(s, "s", min_ndim=1)
    return np.asarray(p[..., None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :])


def linear(v: ArrayLike) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Head :math:`u\mapsto v^\top u`. ``Problem(v=v)`` is the same head with closed-form scores."""
    weight = to_tensor(as_float(v, "v", min_ndim=1))
    return lambda u: u @ weight.to(u.device)


def quadratic(v: ArrayLike, lam: float) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Head :math:`u\mapsto v^\top u-\lambda\|u\|^2`: concave for positive lambda, it rewards averages."""
    weight = to_tensor(as_float(v, "v", min_ndim=1))
    return lambda u: u @ weight.to(u.device) - lam * u.square().sum(-1)


def mlp(V: ArrayLike) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Head :math:`u\mapsto\mathbf 1^\top\operatorname{relu}(V^\top u)` with V of shape (d, h)."""
    weight = to_tensor(as_float(V, "V", ndim=2))
    return lambda u: torch.relu(u @ weight.to(u.device)).sum(-1)
