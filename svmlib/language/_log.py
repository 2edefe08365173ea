"""What a run of training writes down, and takes along in its checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svmlib.arrays import FloatArray, IntArray, frozen


@dataclass
class Log:
    """Records at chosen steps."""

    when: IntArray
    steps: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    maps: list[list[Tensor]] = field(default_factory=list)
    observed: list[Tensor] = field(default_factory=list)
    total: float = 0.0
    counted: int = 0

    def due(self, step: int) -> bool:
        """Whether this step is to be recorded, and was not before a checkpoint."""
        return step in self.when and step not in self.steps

    def count(self, loss: float) -> None:
        """Take the loss of a step into the mean."""
        self.total, self.counted = self.total + loss, self.counted + 1

    def add(self, step: int, valid: float, maps: list[Tensor], observed: list[Tensor]) -> None:
        """Write a record."""
        self.steps.append(step)
        self.loss.append(self.total / self.counted if self.counted else math.nan)
        self.valid.append(valid)
        self.maps.append(maps)
        self.observed += observed
        self.total, self.counted = 0.0, 0

    def state(self) -> dict[str, Any]:
        """Everything but the steps to come, of types that a checkpoint may hold."""
        return {
            "steps": self.steps,
            "loss": self.loss,
            "valid": self.valid,
            "maps": self.maps,
            "observed": self.observed,
            "total": self.total,
            "counted": self.counted,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of another log."""
        for name, value in state.items():
            setattr(self, name, value)

    def attention(self) -> tuple[FloatArray, ...]:
        """Attention over records, one array for each layer."""
        layers = zip(*self.maps, strict=True)
        return tuple(frozen(torch.stack(layer).double().numpy()) for layer in layers)

    def seen(self) -> FloatArray | None:
        """What was observed, over records."""
        return frozen(torch.stack(self.observed).double().numpy()) if self.observed else None

    def numbers(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Steps, training loss and validation loss."""
        return frozen(np.array(self.steps)), frozen(np.array(self.loss)), frozen(np.array(self.valid))
