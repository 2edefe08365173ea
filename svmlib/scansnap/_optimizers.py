"""Rules that take steps along the two directions of descent, each with its own learning rate."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


class Optimizer(Protocol):
    """Moves weights along directions."""

    def step(self, weights: Pair, directions: Pair) -> None:
        """Change decoder and attention logits in place, and use up the directions."""
        ...


class Sgd:
    """Gradient descent, with momentum as torch has it."""

    def __init__(self, rates: Pair, momentum: float) -> None:
        self.rates, self.momentum = rates, momentum
        self.memory: Pair | None = None

    def step(self, weights: Pair, directions: Pair) -> None:
        """Change decoder and attention logits in place, and use up the directions."""
        if self.momentum and self.memory is not None:
            for m, g in zip(self.memory, directions, strict=True):
                m.mul_(self.momentum).add_(g)
        else:
            self.memory = directions
        for w, rate, m in zip(weights, self.rates, self.memory, strict=True):
            w.addcmul_(rate, m)


class Adam:
    """Adam with torch's constants."""

    def __init__(self, rates: Pair, momentum: float) -> None:
        self.rates, self.steps = rates, 0
        self.mean: list[Tensor] = []
        self.square: list[Tensor] = []

    def step(self, weights: Pair, directions: Pair) -> None:
        """Change decoder and attention logits in place, and use up the directions."""
        self.steps += 1
        if not self.mean:
            self.mean, self.square = ([torch.zeros_like(g) for g in directions] for _ in range(2))
        moments = zip(weights, self.rates, directions, self.mean, self.square, strict=True)
        for w, rate, g, mean, square in moments:
            mean.mul_(0.9).add_(g, alpha=0.1)
            square.mul_(0.999).addcmul_(g, g, value=0.001)
            size = (square / (1 - 0.999**self.steps)).sqrt_().add_(1e-8)
            w.addcmul_(rate / (1 - 0.9**self.steps), mean / size)
