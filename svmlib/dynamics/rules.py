"""Update rules: how far a step goes along the negative gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from svmlib.arrays import check_positive


class Rule(NamedTuple):
    """An update rule: two pure functions.

    ``init(B)`` makes the state; ``update(sizes, log_scale, state)`` gets the norms of the blocks of a scaled
    gradient, shape (B,), and the logarithm of the scale, and returns the factors by which the blocks of the
    scaled negative gradient are multiplied, with the new state.
    """

    name: str
    init: Callable[[int], Any]
    update: Callable[[tuple[Tensor, ...], Tensor, Any], tuple[tuple[Tensor, ...], Any]]


def gradient_descent(rate: float) -> Rule:
    r"""Plain gradient descent, :math:`W\leftarrow W-\eta\nabla\mathcal L(W)`.

    Parameters
    ----------
    rate : float
        Step size :math:`\eta>0`.

    Returns
    -------
    Rule
        For :func:`train`.
    """
    eta = check_positive(rate, "The step size")

    def update(sizes: tuple[Tensor, ...], log_scale: Tensor, state: Any) -> tuple[tuple[Tensor, ...], Any]:
        return (eta * log_scale.exp(),) * len(sizes), state

    return Rule(f"gradient descent, rate {eta:g}", lambda B: None, update)


def normalized(rate: float) -> Rule:
    r"""Normalised gradient descent, :math:`W\leftarrow W-\eta\nabla\mathcal L/\|\nabla\mathcal L\|_F`.

    For factors (K, Q) each factor is divided by the norm of its own gradient, as in the papers'
    experiments. Where the gradient is exactly 0 nothing moves.

    Parameters
    ----------
    rate : float
        Length of a step, :math:`\eta>0`.

    Returns
    -------
    Rule
        For :func:`train`.
    """
    eta = check_positive(rate, "The step size")

    def update(sizes: tuple[Tensor, ...], log_scale: Tensor, state: Any) -> tuple[tuple[Tensor, ...], Any]:
        return tuple(torch.where(size > 0, eta / size, 0.0) for size in sizes), state

    return Rule(f"normalised gradient descent, rate {eta:g}", lambda B: None, update)
