r"""Linear classification, the book's warm-up: what gradient descent and the regularisation path converge to.

Everything here sees the data through the signed points :math:`\tilde x_i=y_ix_i` and has no bias term, as
in the attention SVM, whose constraints :math:`\langle A_{it},W\rangle\ge1` have none either.

>>> import svmlib as sv
>>> X, y = sv.linear.separable_data(n=12, d=2)
>>> run = sv.linear.descend(X, y, sv.linear.normalized(0.1), steps=1000)
>>> run.w.shape, run.margin.shape
((43, 2), (43,))
"""

from __future__ import annotations

from ._data import separable_data, signed_points
from .descent import LinearRun, Step, descend, gradient_descent, normalized, steepest
from .losses import LOSSES
from .maximal import MaxMargin, max_margin
from .path import LinearPath, path

__all__ = [
    "LOSSES",
    "LinearPath",
    "LinearRun",
    "MaxMargin",
    "Step",
    "descend",
    "gradient_descent",
    "max_margin",
    "normalized",
    "path",
    "separable_data",
    "signed_points",
    "steepest",
]
