"""The loss on a whole stream."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from svmlib.arrays import check_integer

from ._streams import first_position, stream_of

__all__ = ["evaluate"]


def evaluate(model: nn.Module, ids: ArrayLike, length: int = 35, batch: int = 64) -> float:
    """Compute the loss on a whole stream: every token but the first is predicted once.

    Parameters
    ----------
    model : nn.Module
        Gives a :class:`Reading` for tokens of shape (B, T).
    ids : array_like of int, shape (words,)
        The stream.
    length : int
        Tokens of a window.
    batch : int
        Windows at a time; of no influence on the result.

    Returns
    -------
    float
        Nats per predicted token.
    """
    skip = first_position(model)
    stream = stream_of(model, ids, "ids", skip + 2)
    stride = check_integer(length, "length", skip + 1) - skip
    where = next(model.parameters()).device
    starts = np.arange(0, len(stream) - 1 - skip, stride)
    total = 0.0
    training = model.training
    model.eval()
    with torch.no_grad():
        for group in np.array_split(starts, max(1, -(-len(starts) // batch))):
            whole = group + length + 1 <= len(stream)
            parts = [(group[whole], length)]
            # the last window is shorter: it ends where the stream ends
            parts += [(np.array([s]), len(stream) - 1 - int(s)) for s in group[~whole]]
            for chosen, size in parts:
                if len(chosen):
                    tokens = torch.as_tensor(
                        stream[chosen[:, None] + np.arange(size + 1)].astype(np.int64), device=where
                    )
                    logits = model(tokens[:, :-1]).logits[:, skip:]
                    total += float(
                        nn.functional.cross_entropy(
                            logits.flatten(0, 1).float(), tokens[:, 1 + skip :].flatten(), reduction="sum"
                        )
                    )
    model.train(training)
    return total / (len(stream) - 1 - skip)
