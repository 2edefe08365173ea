r"""Attention layers: weights, logits, probabilities, losses and their closed-form gradients.

.. math:: f(X,z)=\psi(X^\top\mathbb S(XWz)),\qquad W\text{ trained directly, or }W=KQ^\top

(Tarzanagh et al. 2023, *Transformers as Support Vector Machines*, section 2).
"""

from __future__ import annotations

from .architecture import Architecture, TransformerWeights, check_transformer
from .heads import Linear, Mlp, Quadratic, linear, mlp, quadratic
from .layer import gradient, logits, loss, outputs, predictions, probabilities, smoothness, softmax_jacobian
from .layer_problem import layer_problem, positions_read
from .simplex import BestAttention, best_attention, sparsemax, sparsemax_thresholds
from .transformer import Transformed, transformer
from .weights import Direct, Factored, Weights, check_weights, rebuilt

__all__ = [
    "Architecture",
    "BestAttention",
    "Direct",
    "Factored",
    "Linear",
    "Mlp",
    "Quadratic",
    "Transformed",
    "TransformerWeights",
    "Weights",
    "best_attention",
    "check_transformer",
    "check_weights",
    "gradient",
    "layer_problem",
    "linear",
    "logits",
    "loss",
    "mlp",
    "outputs",
    "positions_read",
    "predictions",
    "probabilities",
    "quadratic",
    "rebuilt",
    "smoothness",
    "softmax_jacobian",
    "sparsemax",
    "sparsemax_thresholds",
    "transformer",
]
