r"""Gradient descent on attention weights, with closed-form gradients and many instances at once.

Training sends the weights to infinity, so the interesting part of a run begins where softmax has long
saturated. See :mod:`svmlib.attention` for the gradient that stays right there.
"""

from __future__ import annotations

from .joint import JointRun, train_jointly
from .joint_path import JointLimit, JointPath, joint_limit, joint_path
from .layers import LayersRun, train_layers
from .matrix_rules import MatrixRule, mirror_descent, steepest
from .objective import LOSSES, gap, infimum
from .path import Path, regularization_path
from .rules import Rule, gradient_descent, normalized
from .training import Run, record_steps, train

__all__ = [
    "LOSSES",
    "JointLimit",
    "JointPath",
    "JointRun",
    "LayersRun",
    "MatrixRule",
    "Path",
    "Rule",
    "Run",
    "gap",
    "gradient_descent",
    "infimum",
    "joint_limit",
    "joint_path",
    "mirror_descent",
    "normalized",
    "record_steps",
    "regularization_path",
    "steepest",
    "train",
    "train_jointly",
    "train_layers",
]
