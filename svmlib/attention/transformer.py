r"""Transformers of several layers and heads, all instances of a batch side by side.

Token streams :math:`x_{ik}` start at the tokens, the read-out stream :math:`x_{i,T+1}=z_i` at the query. A
layer adds to each stream what its heads read from the token streams, then what an MLP makes of the sum:

.. math::
    x_k\leftarrow x_k+\sum_hV_h\sum_ts_{hkt}x_t,\quad s_{hk}=\mathbb S\big((x_t^\top W_hx_k)_t\big),\qquad
    x_k\leftarrow x_k+F\,\mathrm{relu}(Ex_k),

and the prediction is :math:`v^\top z` after the last layer. A read-out stream of its own makes one layer
without MLP the model of the rest of the package, for any query; where the query is a token that sees the
whole sequence, the stream is a second copy of that token's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from svmlib.arrays import FloatArray, frozen
from svmlib.data import Problem
from svmlib.errors import DataError

from ._network import Network, tensors
from .architecture import Architecture, TransformerWeights, check_transformer

__all__ = ["Transformed", "transformer"]


@dataclass(frozen=True, slots=True, eq=False)
class Transformed:
    """What a transformer computes; position T, after the tokens, is the read-out stream."""

    inputs: FloatArray
    """(..., L, n, T + 1, d) streams as the heads of each layer see them; the first T are keys and values."""
    probabilities: FloatArray
    """(..., L, H, n, T + 1, T) attention of each position to the tokens; 0 at hidden ones."""
    slopes: FloatArray
    """(..., L, H, n, T + 1, d) gradient of y_i times the prediction in each head's attention output."""
    predictions: FloatArray
    """(..., n) predictions."""

    def __repr__(self) -> str:
        L, H, n, _, T = self.probabilities.shape[-5:]
        return f"Transformed({L} layers, {H} heads, n={n}, T={T}, batch {self.predictions.shape[:-1]})"


def transformer(problem: Problem, architecture: Architecture, weights: TransformerWeights) -> Transformed:
    """Compute everything that a transformer does with a problem.

    Parameters
    ----------
    problem : Problem
        Tokens and queries of one width; a head in it is ignored, the weights have their own.
    architecture : Architecture
        What the transformer is made of.
    weights : TransformerWeights
        With the problem's batch axes or none.

    Returns
    -------
    Transformed
        Inputs, attention and slopes of each layer, and the predictions.

    Raises
    ------
    ShapeError
        If the weights do not fit.
    DataError
        If an argument is not finite or of another type, or streams overflow.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.random_problem(4, 5, 6, batch=3, self_attention=True)
    >>> a = Architecture(layers=2, heads=2)
    >>> transformer(p, a, TransformerWeights.random(p, a))
    Transformed(2 layers, 2 heads, n=4, T=5, batch (3,))
    """
    blocks = tensors(problem, check_transformer(problem, architecture, weights))
    network = Network(problem, architecture)
    kept: list[Any] = []
    with torch.enable_grad():
        f = network.predict(blocks, kept)
        slopes = torch.autograd.grad((network.y * f).sum(), [u for *_, u in kept])
    if not torch.isfinite(f).all():
        raise DataError("Streams overflow float64: the weights are too large. Rescale them.")
    batch = problem.batch_shape

    def stacked(arrays: Any) -> FloatArray:
        a = torch.stack([a.detach() for a in arrays], 1).numpy()
        return frozen(a.reshape(batch + a.shape[1:]))

    return Transformed(
        inputs=stacked(seen for seen, _, _ in kept),
        probabilities=stacked(s for _, s, _ in kept),
        slopes=stacked(slopes),
        predictions=frozen(f.detach().numpy().reshape((*batch, problem.n))),
    )
