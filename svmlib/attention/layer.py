"""What one attention layer computes, and the gradient of its training loss."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from svmlib._pivoted import Layer, apply_head, get_loss
from svmlib.arrays import FloatArray, as_float, to_tensor
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError

from .weights import Direct, Factored, Weights, check_weights


def _matrix(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    value = W.matrix() if isinstance(W, (Direct, Factored)) else W
    return as_float(value, "W", last=(problem.key_dim, problem.query_dim))


def logits(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Compute logits :math:`a_{it}=k_{it}^\top Wz_i`, where keys are the tokens unless they were given.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like or weights, shape (..., e, q) or (..., r, e, q)
        Attention matrices; with one axis more than the problem's batch they are r iterates.

    Returns
    -------
    ndarray, shape (..., n, T) or (..., r, n, T)
        Logits; minus infinity at masked tokens.

    Raises
    ------
    ShapeError
        If W does not fit.
    """
    check_problem(problem)
    matrix = _matrix(problem, W)
    if matrix.ndim > len(problem.batch_shape) + 3:
        raise ShapeError(
            f"W must have shape (..., e, q) or (..., r, e, q) with the batch axes {problem.batch_shape}, "
            f"got {matrix.shape}."
        )
    keys, z, visible = problem.keys, problem.z, problem.visible
    if matrix.ndim == len(problem.batch_shape) + 3:
        keys, z, visible = keys[..., None, :, :, :], z[..., None, :, :], visible[..., None, :, :]
    try:
        np.broadcast_shapes(matrix.shape[:-2], keys.shape[:-3])
    except ValueError:
        raise ShapeError(
            f"W has batch axes {matrix.shape[:-2]}, which do not fit the problem's {problem.batch_shape}."
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        a = np.einsum("...ntd,...nd->...nt", keys, z @ np.swapaxes(matrix, -1, -2))
    if not np.isfinite(a).all():
        raise DataError("W is so large that its logits overflow float64. Rescale the weights.")
    return np.where(visible, a, -np.inf)


def probabilities(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Compute attention probabilities :math:`s_i=\mathbb S(X_iWz_i)`.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like or weights, shape (..., e, q) or (..., r, e, q)
        Attention matrices or iterates, see :func:`logits`.

    Returns
    -------
    ndarray, shape (..., n, T) or (..., r, n, T)
        Probabilities: positive, 0 at masked tokens, 1 in sum over the last axis.
    """
    a = logits(problem, W)
    with np.errstate(under="ignore"):
        e = np.exp(a - a.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def outputs(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Compute attention outputs :math:`u_i=X_i^\top s_i`.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like or weights, shape (..., e, q) or (..., r, e, q)
        Attention matrices or iterates, see :func:`logits`.

    Returns
    -------
    ndarray, shape (..., n, d) or (..., r, n, d)
        Outputs, in the convex hull of the tokens.
    """
    s = probabilities(problem, W)
    X = problem.X[..., None, :, :, :] if s.ndim == problem.X.ndim else problem.X
    return np.asarray(np.einsum("...nt,...ntd->...nd", s, X))


def predictions(problem: Problem, W: ArrayLike | Weights) -> FloatArray:
    r"""Compute predictions :math:`\psi(u_i)`.

    Parameters
    ----------
    problem : Problem
        Data.
    W : array_like or weights, shape (..., e, q) or (..., r, e, q)
        Attention matrices or iterates, see :func:`logits`.

    Returns
    -------
    ndarray, shape (..., n) or (..., r, n)
        Predictions of the head.

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
        return np.asarray(apply_head(problem.head, to_tensor(u)))


def loss(problem: Problem, W: ArrayLike | Weights, loss: str = "logistic") -> FloatArray:
    r"""Compute the training loss :math:`\frac1n\sum_i\ell(y_i\psi(u_i))`.

    Parameters
    ----------
    problem : Problem
        Data and head.
    W : array_like or weights
        Attention matrices.
    loss : str
        "logistic", "exponential", "linear" or "log".

    Returns
    -------
    ndarray, shape (...) or (..., r)
        Losses.

    Raises
    ------
    DataError
        If ``loss`` is "log" and a margin is negative, or the problem has no head.
    """
    chosen = get_loss(loss, check_problem(problem))
    f = predictions(problem, W)
    y = problem.y[..., None, :] if f.ndim > problem.y.ndim else problem.y
    margin = y * f
    if chosen.name == "log" and not (margin >= 0).all():  # of a linear head the scores have been checked
        low = margin.min()
        raise DataError(f'The loss "log" needs positive margins, but the smallest here is {low:.3g}.')
    return np.asarray(chosen.value(to_tensor(margin)).numpy().mean(-1))


def gradient(problem: Problem, weights: Weights, loss: str = "logistic") -> Weights:
    r"""Differentiate the training loss in closed form, right even where softmax has saturated.

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
        "logistic", "exponential", "linear" or "log".

    Returns
    -------
    Direct or Factored
        The gradient with respect to each block, in its shape; entries below 1e-308 underflow to 0.
    """
    checked = check_weights(check_problem(problem), weights)
    layer = Layer(problem, "cpu")
    matrix = np.broadcast_to(checked.matrix(), (*problem.batch_shape, problem.key_dim, problem.query_dim))
    W = to_tensor(matrix.reshape(-1, *matrix.shape[-2:]).transpose(1, 2, 0))
    rows, log_scale = layer.ascent(layer.view((W[:, :, None] * layer.z).sum(1)), get_loss(loss, problem))
    scaled = -(log_scale.exp() / layer.n) * (rows[:, None] * layer.z).sum(2)
    G = scaled.permute(2, 0, 1).numpy().reshape(matrix.shape)
    if not np.isfinite(G).all():
        raise DataError("The gradient is not finite: the head returns or differentiates to NaN or infinity.")
    if isinstance(checked, Direct):
        return Direct(G)
    return Factored(G @ checked.Q, np.swapaxes(G, -1, -2) @ checked.K)


def smoothness(problem: Problem, loss: str = "logistic") -> FloatArray:
    r"""Bound the Lipschitz constant of :math:`\nabla_W\mathcal L`, for a linear head.

    Plain descent with a step below its inverse never increases the loss.

    With :math:`r_i=\|z_i\|\max_{t,\tau}\|k_{it}-k_{i\tau}\|`, :math:`g_i` the spread of the scores and
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
        The constant L, in units of the loss over the squared unit of W.
    """
    get_loss(loss)
    gamma, visible = check_problem(problem).scores, problem.visible
    low = np.where(visible, gamma, np.inf).min(-1)
    spread = gamma.max(-1) - low
    widest = np.zeros(gamma.shape[:-1])
    for t in range(problem.T):  # one token against all, so that memory stays that of X
        apart = np.linalg.norm(problem.keys - problem.keys[..., t : t + 1, :], axis=-1)
        seen = visible & visible[..., t : t + 1]
        widest = np.maximum(widest, np.where(seen, apart, 0.0).max(-1))
    r = np.linalg.norm(problem.z, axis=-1) * widest
    steep = np.exp(-low)  # the exponential loss is steepest at the smallest score
    M0, M1 = {"logistic": (0.25, 1.0), "linear": (0.0, 1.0), "exponential": (steep, steep)}[loss]
    return np.asarray((r**2 * (M0 * spread**2 / 16 + M1 * spread / 4)).mean(-1))


def softmax_jacobian(s: ArrayLike) -> FloatArray:
    r"""Compute the Jacobian of softmax, :math:`\operatorname{diag}(s)-ss^\top`.

    Parameters
    ----------
    s : array_like, shape (..., T)
        Probabilities.

    Returns
    -------
    ndarray, shape (..., T, T)
        Symmetric positive semidefinite; constants are in its kernel.
    """
    p = as_float(s, "s", min_ndim=1)
    return np.asarray(p[..., None] * np.eye(p.shape[-1]) - p[..., :, None] * p[..., None, :])
