"""Prediction heads: callables from tensors (..., d) to (...). A ``torch.nn.Module`` is one too."""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.typing import ArrayLike

from svmlib.arrays import as_float, to_tensor


def linear(v: ArrayLike) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Make the head :math:`u\mapsto v^\top u`; ``Problem(v=v)`` is the same one with closed-form scores.

    Parameters
    ----------
    v : array_like, shape (d,)
        Weights.

    Returns
    -------
    callable
        Maps tensors (..., d) to (...).
    """
    weight = to_tensor(as_float(v, "v", ndim=1))
    return lambda u: u @ weight.to(u.device)


def quadratic(v: ArrayLike, lam: float) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Make the head :math:`u\mapsto v^\top u-\lambda\|u\|^2`, concave for positive lambda.

    Parameters
    ----------
    v : array_like, shape (d,)
        Weights.
    lam : float
        Curvature.

    Returns
    -------
    callable
        Maps tensors (..., d) to (...).
    """
    weight, curvature = to_tensor(as_float(v, "v", ndim=1)), float(as_float(lam, "lam", ndim=0))
    return lambda u: u @ weight.to(u.device) - curvature * u.square().sum(-1)


def mlp(V: ArrayLike) -> Callable[[torch.Tensor], torch.Tensor]:
    r"""Make the head :math:`u\mapsto\mathbf 1^\top\operatorname{relu}(V^\top u)`.

    Parameters
    ----------
    V : array_like, shape (d, h)
        Weights of the hidden units.

    Returns
    -------
    callable
        Maps tensors (..., d) to (...).
    """
    weight = to_tensor(as_float(V, "V", ndim=2))
    return lambda u: torch.relu(u @ weight.to(u.device)).sum(-1)
