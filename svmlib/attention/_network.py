"""The engine of transformers: tensors of a flat batch, and a forward pass that autograd can follow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from svmlib.arrays import to_tensor
from svmlib.data import Problem
from svmlib.errors import ShapeError

from .architecture import ACTIVATIONS, Architecture, TransformerWeights

__all__ = ["Blocks", "Network", "tensors"]

NORM_FLOOR = 1e-12  # added to the variance in LayerNorm


class _Softmax(torch.autograd.Function):
    # The gradient in the largest logit is minus the sum of the others. Computed as s (g - s'g) it would be a
    # difference of equal numbers once s rounds to 1, and the direction of a normalised step rounding noise.
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        s = torch.softmax(logits, -1)
        top = logits.argmax(-1, keepdim=True)
        ctx.save_for_backward(s, top)
        return s

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        s: Tensor
        s, top = ctx.saved_tensors
        relative = grads[0] - grads[0].gather(-1, top)
        pulled = s * (relative - (s * relative).sum(-1, keepdim=True))
        pulled = pulled.scatter(-1, top, 0.0)
        return pulled.scatter(-1, top, -pulled.sum(-1, keepdim=True))


class Blocks(NamedTuple):
    """Weights as tensors of a flat batch."""

    attention: tuple[Tensor, ...]
    V: Tensor
    E: Tensor | None
    F: Tensor | None
    v: Tensor

    @property
    def W(self) -> Tensor:
        """(B, L, H, d, d) attention matrices."""
        return self.attention[0] if len(self.attention) == 1 else self.attention[0] @ self.attention[1].mT


def tensors(problem: Problem, weights: TransformerWeights, device: str = "cpu") -> Blocks:
    """Turn checked weights into tensors of a flat batch.

    Parameters
    ----------
    problem : Problem
        Gives the batch.
    weights : TransformerWeights
        As :func:`check_transformer` returns them.
    device : str
        Where they lie.

    Returns
    -------
    Blocks
        Copies.
    """
    lead = len(problem.batch_shape)

    def flat(a: Any) -> Tensor:
        return to_tensor(np.asarray(a).reshape(-1, *np.shape(a)[lead:]), device)

    E, F = (None if a is None else flat(a) for a in (weights.E, weights.F))
    return Blocks(tuple(map(flat, weights.attention)), flat(weights.V), E, F, flat(weights.v))


class Network:
    """A flat batch of problems as tensors, and the forward pass through a transformer."""

    def __init__(self, problem: Problem, architecture: Architecture, device: str = "cpu") -> None:
        flat = problem.flat()
        self.B, self.n, self.T, self.d = flat.X.shape
        if self.B == 0:
            raise ShapeError("The batch of this problem is empty: there is nothing to compute.")
        self.architecture = architecture
        streams = np.concatenate([flat.X, flat.z[:, :, None]], axis=2)
        self.start = to_tensor(streams, device)  # (B, n, T + 1, d)
        self.y = to_tensor(flat.y, device)
        seen = np.broadcast_to(flat.visible[:, :, None], (self.B, self.n, self.T + 1, self.T)).copy()
        if architecture.causal:
            seen[:, :, : self.T] &= np.tri(self.T, dtype=bool)
        # a masked token sees itself: it is seen by no one, and a softmax over nothing would be NaN
        seen[:, :, : self.T] |= ~flat.visible[..., None] & np.eye(self.T, dtype=bool)
        self.hidden: Tensor | None = None
        if not seen.all():
            self.hidden = to_tensor(np.where(seen, 0.0, -np.inf), device)[:, None]  # (B, 1, n, T + 1, T)

    def normed(self, x: Tensor) -> Tensor:
        """Streams as heads, MLP and read-out see them."""
        if not self.architecture.layer_norm:
            return x
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + NORM_FLOOR).sqrt()

    def layer(
        self, x: Tensor, blocks: Blocks, layer: int, last: bool, kept: list[Any] | None = None
    ) -> Tensor:
        """Apply one layer to streams (B, n, P, d); the last one need only serve the read-out stream."""
        seen = self.normed(x)
        tokens = seen[:, :, : self.T]
        if last:
            seen, x = seen[:, :, self.T :], x[:, :, self.T :]
        B, n, P, d = x.shape
        mapped = (seen.reshape(B, 1, n * P, d) @ blocks.W[:, layer].mT).reshape(B, -1, n, P, d)
        logits = mapped @ tokens[:, None].mT  # (B, H, n, P, T)
        if self.hidden is not None:
            logits = logits + self.hidden[:, :, :, self.T - self.T * (not last) :]
        s: Tensor = _Softmax.apply(logits)  # type: ignore[no-untyped-call]
        u = s @ tokens[:, None]
        if kept is not None:
            u = u.detach().requires_grad_(True) if not u.requires_grad else u
            kept.append((seen, s, u))
        update = (u.reshape(B, -1, n * P, d) @ blocks.V[:, layer].mT).sum(1).reshape(x.shape)
        x = x + update if self.architecture.residual else update
        if blocks.E is not None and blocks.F is not None:
            inner = self.normed(x).reshape(B, n * P, d) @ blocks.E[:, layer].mT
            inner = ACTIVATIONS[self.architecture.activation](inner)
            update = (inner @ blocks.F[:, layer].mT).reshape(x.shape)
            x = x + update if self.architecture.residual else update
        return x

    def predict(self, blocks: Blocks, kept: list[Any] | None = None) -> Tensor:
        """(B, n) predictions; ``kept`` receives inputs, probabilities and outputs of each layer."""
        x, L = self.start, self.architecture.layers
        for layer in range(L):
            x = self.layer(x, blocks, layer, layer == L - 1 and kept is None, kept)
        return (self.normed(x[:, :, -1]) @ blocks.v[:, :, None])[:, :, 0]
