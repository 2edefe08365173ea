r"""One attention layer: weights, logits, probabilities, losses and their closed-form gradients.

.. math:: f(X,z)=\psi(X^\top\mathbb S(XWz)),\qquad W\text{ trained directly, or }W=KQ^\top

(Tarzanagh et al. 2023, *Transformers as Support Vector Machines*, section 2).
"""

from __future__ import annotations

from .heads import linear, mlp, quadratic
from .layer import gradient, logits, loss, outputs, predictions, probabilities, smoothness, softmax_jacobian
from .weights import Direct, Factored, Weights, check_weights, rebuilt

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
    "rebuilt",
    "smoothness",
    "softmax_jacobian",
]
