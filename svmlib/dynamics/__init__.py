r"""Gradient descent on attention weights, with closed-form gradients and many instances at once.

Training sends the weights to infinity, so the interesting part of a run begins where softmax has long
saturated. See :mod:`svmlib.attention` for the gradient that stays right there.
"""

from __future__ import annotations

from .objective import LOSSES, gap, infimum
from .rules import Rule, gradient_descent, normalized
from .training import Run, record_steps, train

__all__ = [
    "LOSSES",
    "Rule",
    "Run",
    "gap",
    "gradient_descent",
    "infimum",
    "normalized",
    "record_steps",
    "train",
]
