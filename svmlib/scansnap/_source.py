"""Where a chunk of runs gets its sequences and its first weights."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from svmlib.arrays import FloatArray, IntArray, to_tensor

from ._engine import Batch
from .process import TokenProcess

Start = str | tuple[FloatArray, FloatArray]


class Source:
    """Samples and starts. Only contextual tokens have columns in Z and rows in D that move."""

    def __init__(
        self, process: TokenProcess, seeds: IntArray, T: float | None, size: int, start: Start, device: str
    ) -> None:
        self.process, self.T, self.size, self.device = process, T, size, device
        self.context: IntArray = np.flatnonzero(process.P.any(0))
        own, index = np.unique(seeds, return_inverse=True)
        self.R, self.seeds, self.index = len(seeds), index, to_tensor(index, device)
        self.generators = [np.random.default_rng([int(s), 1]) for s in own]
        self.P = to_tensor(process.P[:, self.context], device)
        self.row, self.label = to_tensor(process.row, device), to_tensor(process.label, device)
        M, Q = process.M, len(process.queries)
        self.D0, self.Z0 = np.zeros((len(own), M, M)), np.zeros((len(own), Q, M))
        for k, s in enumerate(own):
            if isinstance(start, tuple):
                self.D0[k], self.Z0[k] = start
            elif start == "uniform":  # as torch starts a linear layer
                rng = np.random.default_rng([int(s), 0])
                self.D0[k] = rng.uniform(-(M**-0.5), M**-0.5, (M, M))
                self.Z0[k] = rng.uniform(-(M**-0.5), M**-0.5, (Q, M))

    def start(self) -> tuple[Tensor, Tensor]:
        """(R, L, M) and (R, Q, L) first weights."""
        D, Z = self.D0[:, self.context], self.Z0[..., self.context]
        return to_tensor(D, self.device)[self.index], to_tensor(Z, self.device)[self.index]

    def population(self) -> Batch:
        """All classes with their exact frequencies."""
        C = self.process.C
        prior = to_tensor(self.process.prior, self.device)
        return Batch(
            self.P.expand(self.R, -1, -1), self.row.expand(self.R, C), self.label.expand(self.R, C), prior
        )

    def draw(self) -> Batch:
        """Sequences of the next step, the same ones for runs with the same seed."""
        weight = torch.full((self.size,), 1.0 / self.size, dtype=torch.float64, device=self.device)
        classes, counts = [], []
        for g in self.generators:
            if self.T is None or math.isinf(self.T):
                classes.append(g.choice(self.process.C, self.size, p=self.process.prior))
            else:
                drawn = self.process.sample(g, self.size, int(self.T))
                classes.append(drawn[0])
                counts.append(drawn[1][:, self.context].astype(np.float64))
        of = to_tensor(np.stack(classes), self.device)[self.index]
        seen = to_tensor(np.stack(counts), self.device)[self.index] if counts else self.P[of]
        return Batch(seen, self.row[of], self.label[of], weight)

    def whole_decoder(self, D: Tensor) -> FloatArray:
        """(R, M, M) decoder with the rows that never move."""
        out = np.array(self.D0[self.seeds])
        out[:, self.context] = D.cpu().numpy()
        return out

    def whole_logits(self, Z: Tensor) -> FloatArray:
        """(R, Q, M) attention logits with the columns that never move."""
        out = np.array(self.Z0[self.seeds])
        out[..., self.context] = Z.cpu().numpy()
        return out

    def whole(self, a: Tensor) -> FloatArray:
        """(R, C, M) values of contextual tokens, and 0 elsewhere."""
        out = np.zeros((*a.shape[:-1], self.process.M))
        out[..., self.context] = a.cpu().numpy()
        return out
