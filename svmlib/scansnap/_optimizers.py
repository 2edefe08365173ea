"""Rules that turn the two directions of descent into steps, each with its own learning rate."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


class Optimizer(Protocol):
    """Turns directions into steps."""

    def step(self, directions: Pair) -> Pair:
        """Return what is added to the decoder and to the attention logits."""
        ...


class Sgd:
    """Gradient descent, with momentum as torch has it."""

    def __init__(self, rates: Pair, momentum: float) -> None:
        self.rates, self.momentum = rates, momentum
        self.memory: list[Tensor] = [torch.zeros(())] * 2

    def step(self, directions: Pair) -> Pair:
        """Return what is added to the decoder and to the attention logits."""
        for j, g in enumerate(directions):
            self.memory[j] = g + self.momentum * self.memory[j].to(g) if self.momentum else g
        return self.rates[0] * self.memory[0], self.rates[1] * self.memory[1]


class Adam:
    """Adam with torch's constants."""

    def __init__(self, rates: Pair, momentum: float) -> None:
        self.rates, self.steps = rates, 0
        self.mean: list[Tensor] = [torch.zeros(())] * 2
        self.square: list[Tensor] = [torch.zeros(())] * 2

    def step(self, directions: Pair) -> Pair:
        """Return what is added to the decoder and to the attention logits."""
        self.steps += 1
        out = []
        for j, g in enumerate(directions):
            self.mean[j] = 0.9 * self.mean[j].to(g) + 0.1 * g
            self.square[j] = 0.999 * self.square[j].to(g) + 0.001 * g.square()
            size = (self.square[j] / (1 - 0.999**self.steps)).sqrt() + 1e-8
            out.append(self.rates[j] * self.mean[j] / (1 - 0.9**self.steps) / size)
        return out[0], out[1]
