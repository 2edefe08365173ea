r"""Training language models by plain gradient steps, with what attention does on the way.

The windows of a step are drawn from the seed and the number of the step alone, so that a run that goes on
from a checkpoint sees what it would have seen.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from tqdm import tqdm

from svmlib.arrays import FloatArray, IntArray, check_integer, check_positive
from svmlib.dynamics import record_steps
from svmlib.errors import DataError, SolverError

from ._log import Log
from ._streams import first_position, stream_of
from ._team import Team
from .checkpoint import Checkpoint

__all__ = ["LanguageRun", "Training", "train_language"]


@dataclass(frozen=True, slots=True)
class Training:
    """How a language model is trained.

    Attributes
    ----------
    rate : float
        Learning rate.
    steps : int
        Number of steps.
    batch, length : int
        Windows of a step, and tokens of a window.
    optimizer : str
        "sgd" or "adam".
    momentum : float
        Momentum of SGD.
    clip : float or None
        Largest norm of the gradient.
    schedule : str
        "constant", "cosine" (to zero at the last step) or "inverse" (like one over the square root of the
        step, after a tenth of the steps).
    seed : int
        Seed of windows and dropout.
    """

    rate: float
    steps: int
    batch: int = 16
    length: int = 35
    optimizer: str = "sgd"
    momentum: float = 0.0
    clip: float | None = None
    schedule: str = "constant"
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(self.rate, "rate")
        for name in ("steps", "batch"):
            check_integer(getattr(self, name), name)
        check_integer(self.length, "length", 2)
        check_integer(self.seed, "seed", 0)
        if self.optimizer not in ("sgd", "adam"):
            raise DataError(f'optimizer must be "sgd" or "adam", got {self.optimizer!r}.')
        if self.schedule not in ("constant", "cosine", "inverse"):
            raise DataError(f'schedule must be "constant", "cosine" or "inverse", got {self.schedule!r}.')
        if not 0 <= self.momentum < 1:
            raise DataError(f"momentum must lie in [0, 1), got {self.momentum!r}.")
        if self.clip is not None:
            check_positive(self.clip, "clip")

    def rate_at(self, step: int) -> float:
        """Give the learning rate of a step.

        Parameters
        ----------
        step : int
            Number of the step, from 0.

        Returns
        -------
        float
            Its rate.
        """
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))
        if self.schedule == "inverse":
            knee = max(1, self.steps // 10)
            return self.rate * min(1.0, math.sqrt(knee / (step + 1)))
        return self.rate


@dataclass(frozen=True, slots=True, eq=False)
class LanguageRun:
    """What a run recorded."""

    steps: IntArray
    """(r,) numbers of completed steps."""
    loss: FloatArray
    """(r,) mean training loss of the steps since the last record, in nats per token; NaN at step 0."""
    valid: FloatArray
    """(r,) loss on the validation stream; NaN without one, and where it was not evaluated."""
    attention: tuple[FloatArray, ...]
    """For each layer (r, P, H, T, T) attention on the probes; empty without probes."""
    observed: FloatArray | None
    """(r, ...) what ``observe`` returned; None without it."""
    model: nn.Module
    """The trained model, on the CPU."""


def train_language(
    model: nn.Module,
    ids: ArrayLike,
    training: Training,
    *,
    valid: ArrayLike | None = None,
    probes: ArrayLike | None = None,
    observe: Callable[[nn.Module], ArrayLike | Tensor] | None = None,
    record: int | Iterable[int] | None = 10,
    valid_at: Iterable[int] | None = None,
    checkpoint: str | Path | None = None,
    every: int = 500,
    device: str | None = None,
    precision: str | None = None,
    compiled: bool = False,
    progress: bool = False,
) -> LanguageRun:
    """Train a model to predict the next token of a stream.

    Parameters
    ----------
    model : nn.Module
        Gives a :class:`Reading` for tokens of shape (B, T). It is trained in place.
    ids : array_like of int, shape (words,)
        The training stream.
    training : Training
        Learning rate, number of steps, and so on.
    valid : array_like of int, optional
        Validation stream, evaluated whole.
    probes : array_like of int, shape (P, T), optional
        Windows whose attention is recorded.
    observe : callable, optional
        Called with the model at every record, without gradients and without dropout; returns numbers, always
        of the same shape, which are kept in single precision.
    record : int or iterable of int, optional
        When to record, see :func:`svmlib.dynamics.record_steps`.
    valid_at : iterable of int, optional
        The records at which the validation stream is evaluated, which takes long if it is; all by default.
    checkpoint : str or Path, optional
        File to which the state is saved, and from which a run that was broken off goes on.
    every : int
        Steps between two checkpoints.
    device : str, optional
        None or "cpu", "cuda", "auto". Under a launcher of several processes each takes its own device.
    precision : str, optional
        "bf16" or "fp16" for mixed precision; full precision by default.
    compiled : bool
        Whether to compile the model with torch.compile.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    LanguageRun
        Records.

    Raises
    ------
    DataError
        If a stream is too short or holds unknown tokens, or a checkpoint is of another run.
    SolverError
        If the loss leaves the finite numbers.
    """
    stream = stream_of(model, ids, "ids", training.length + 1)
    held = None if valid is None else stream_of(model, valid, "valid", first_position(model) + 2)
    windows = None if probes is None else _probes(model, probes)
    log = Log(record_steps(record, training.steps))
    judged = set(log.when.tolist() if valid_at is None else valid_at)
    if missing := sorted(judged - set(log.when.tolist())):
        raise DataError(
            f"valid_at must hold recorded steps, but {missing[:3]} are not. Put them into record."
        )
    every = check_integer(every, "every")
    store = (
        None if checkpoint is None else Checkpoint(checkpoint, _mark(model, training, stream, windows, log))
    )
    saved = None if store is None else store.load()
    team = Team(model, _optimizer(model, training), device, precision, compiled)
    start = 0
    if saved is not None:
        team.restore(saved)
        log.restore(saved["log"])
        start = int(saved["step"])
    with tqdm(total=training.steps, initial=start, disable=not (progress and team.leads)) as bar:
        for k in range(start, training.steps + 1):
            if log.due(k):
                log.add(k, *team.look(held if k in judged else None, windows, training.length, observe))
            if store is not None and team.leads and k > start and (k % every == 0 or k == training.steps):
                store.save({"step": k, "log": log.state(), **team.state()})
            if k == training.steps:
                break
            rng = np.random.default_rng([training.seed, k])
            loss = team.step(
                _windows(stream, training, rng), training.rate_at(k), training.clip, int(rng.integers(2**40))
            )
            if not math.isfinite(loss):
                raise SolverError(
                    f"The loss left the finite numbers at step {k}. "
                    "Use a smaller rate, or clip gradients (clip=)."
                )
            log.count(loss)
            bar.update()
    return LanguageRun(*log.numbers(), log.attention(), log.seen(), team.plain.cpu())


def _mark(
    model: nn.Module, training: Training, stream: IntArray, windows: IntArray | None, log: Log
) -> dict[str, int | float | str | None]:
    # what a checkpoint must agree with: all that decides the numbers of a run
    start = torch.cat([w.detach().cpu().float().ravel() for w in model.state_dict().values()])
    return {
        **asdict(training),
        "weights at the start": _digest(start.numpy()),
        "text": _digest(stream.astype(np.int64)),
        "probes": None if windows is None else _digest(windows),
        "records": _digest(log.when),
    }


def _digest(a: ArrayLike) -> str:
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]


def _probes(model: nn.Module, probes: ArrayLike) -> IntArray:
    windows = np.asarray(probes)
    if windows.ndim != 2 or not windows.size:
        raise DataError(f"probes must have shape (P, T), windows of tokens, got {windows.shape}.")
    stream_of(model, windows.ravel(), "probes", 1)
    return windows.astype(np.int64)


def _optimizer(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), training.rate)
    return torch.optim.SGD(model.parameters(), training.rate, momentum=training.momentum)


def _windows(stream: IntArray, training: Training, rng: np.random.Generator) -> IntArray:
    starts = rng.integers(0, len(stream) - training.length, training.batch)
    return np.asarray(stream[starts[:, None] + np.arange(training.length + 1)], np.int64)
