r"""Training the decoder and the attention of one layer on next tokens, many runs at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from tqdm import tqdm

from svmlib.arrays import FloatArray, IntArray, as_float, check_integer, frozen, resolve_device, to_tensor
from svmlib.dynamics import record_steps
from svmlib.errors import DataError, ShapeError, SolverError

from ._engine import Batch, ascent, attention
from ._optimizers import Adam, Optimizer, Sgd
from ._source import Source, Start
from .process import TokenProcess

__all__ = ["ScanRun", "simulate"]

WORKSPACE = 1 << 19  # doubles in the largest temporary
CUDA_WORKSPACE = 1 << 28
OPTIMIZERS: dict[str, type[Sgd] | type[Adam]] = {"sgd": Sgd, "adam": Adam}


@dataclass(frozen=True, slots=True, eq=False)
class ScanRun:
    """What runs recorded; leading axes are those of the learning rates, then the seeds."""

    steps: IntArray
    """(r,) numbers of completed steps at which something was recorded."""
    loss: FloatArray
    """(..., S, r) cross-entropy of the next batch, or of the population."""
    s: FloatArray
    """(..., S, r, C, M) attention by token type in the long-sequence limit, one row for each class."""
    z: FloatArray
    """(..., S, r, Q, M) attention logits of the query tokens; those of other than contextual tokens stay."""
    logits: FloatArray
    """(..., S, r, C, M) decoder logits of each class in the long-sequence limit."""
    sent: FloatArray
    r"""(..., S, r, C, M) :math:`g_c=D(e_c-\pi_c)` there, the gradient sent down; 0 where no context."""
    D: FloatArray
    """(..., S, M, M) decoder at the end."""


def simulate(
    process: TokenProcess,
    decoder_rate: ArrayLike,
    attention_rate: ArrayLike,
    steps: int,
    *,
    T: float | None = None,
    batch: int = 128,
    momentum: float = 0.0,
    optimizer: str = "sgd",
    start: str | tuple[ArrayLike, ArrayLike] = "zero",
    seeds: Sequence[int] = (0,),
    record: int | Iterable[int] | None = None,
    device: str | None = None,
    progress: bool = False,
) -> ScanRun:
    r"""Train on sampled sequences, or on the population of infinitely long ones.

    Parameters
    ----------
    process : TokenProcess
        Where sequences come from.
    decoder_rate, attention_rate : array_like
        Step sizes :math:`\eta_D` and :math:`\eta_Z`, of shapes that broadcast: a run for each, and each seed.
    steps : int
        Number of steps.
    T : int or infinity, optional
        Contextual tokens of a sequence. None means the population: a step uses all classes with their exact
        frequencies. With ``math.inf`` classes are drawn, and their frequencies are exact.
    batch : int
        Sequences of a step; of no meaning for the population.
    momentum : float
        Momentum of SGD.
    optimizer : str
        "sgd" or "adam".
    start : str or tuple of array_like
        "zero"; "uniform" on :math:`\pm M^{-1/2}`, as torch starts a linear layer; or (D, z) of shapes (M, M)
        and (Q, M).
    seeds : sequence of int
        Seeds of samples and starts; runs with the same seed see the same sequences.
    record : int or iterable of int, optional
        When to record, see :func:`svmlib.dynamics.record_steps`.
    device : str, optional
        None or "cpu", "cuda", "auto".
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    ScanRun
        Records.

    Raises
    ------
    ShapeError
        If the rates do not broadcast, or the start does not fit the process.
    DataError
        If an argument is out of range.
    SolverError
        If weights leave the finite numbers.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 1; its experiments have T = 127 without the query, batches of 128 and
    momentum 0.9.

    Examples
    --------
    >>> process = TokenProcess([[2, 1, 0, 0], [2, 0, 1, 0]], query=[3, 3], label=[0, 1])
    >>> run = simulate(process, 1.0, 0.1, 200, record=[0, 200])
    >>> run.s[0, :, 0, 0].round(2)  # attention on the common token
    array([0.67, 0.39])
    """
    rates = _rates(decoder_rate, attention_rate)
    shape = rates[0].shape
    beta = _options(optimizer, momentum)
    length = _length(T)
    first = _start(process, start)
    numbers = np.array([check_integer(s, "each of seeds", 0) for s in seeds])
    if not numbers.size:
        raise DataError("seeds is empty: name at least one, such as seeds=[0].")
    size = process.C if length is None else check_integer(batch, "batch")
    when = record_steps(record, steps)
    of_run = np.stack([np.broadcast_to(a[..., None], (*shape, len(numbers))).ravel() for a in rates])
    seed_of_run = np.broadcast_to(numbers, (*shape, len(numbers))).ravel()
    order = np.argsort(seed_of_run, kind="stable")  # runs of one seed together: they share their samples
    where = resolve_device(device, len(order))
    room = CUDA_WORKSPACE if where.startswith("cuda") else WORKSPACE
    chunk = max(1, room // (size * process.M))
    together = len(order) // len(numbers)
    if chunk > together > 0:
        chunk -= chunk % together  # a seed split over two chunks would be sampled twice
    total = -(-len(order) // chunk) * int(when[-1])
    parts: list[Any] = []
    with torch.inference_mode(), tqdm(total=total, disable=not progress) as bar:
        for lowest in range(0, len(order), chunk):
            runs = order[lowest : lowest + chunk]
            source = Source(process, seed_of_run[runs], length, size, first, where)
            eta_D, eta_Z = (to_tensor(r, where)[:, None, None] for r in of_run[:, runs])
            parts.append(_chunk(source, OPTIMIZERS[optimizer]((eta_D, eta_Z), beta), when, bar))
    back = np.argsort(order, kind="stable")
    columns = [np.concatenate(column)[back] for column in zip(*parts, strict=True)]
    lead = (*shape, len(numbers))
    return ScanRun(frozen(when), *(frozen(a.reshape(lead + a.shape[1:])) for a in columns))


def _rates(decoder_rate: ArrayLike, attention_rate: ArrayLike) -> list[FloatArray]:
    D, Z = as_float(decoder_rate, "decoder_rate"), as_float(attention_rate, "attention_rate")
    try:
        rates = np.broadcast_arrays(D, Z)
    except ValueError:
        raise ShapeError(
            f"decoder_rate and attention_rate have shapes {D.shape} and {Z.shape}, which do not broadcast."
        ) from None
    if (D < 0).any() or (Z < 0).any():
        raise DataError("Learning rates must not be negative: directions already point downhill.")
    return list(rates)


def _options(optimizer: str, momentum: float) -> float:
    if optimizer not in OPTIMIZERS:
        raise DataError(f'optimizer must be "sgd" or "adam", got {optimizer!r}.')
    beta = float(as_float(momentum, "momentum", ndim=0))
    if not 0 <= beta < 1:
        raise DataError(f"momentum must lie in [0, 1), got {momentum!r}.")
    if beta and optimizer == "adam":
        raise DataError("momentum is an option of SGD; Adam has its own. Leave it out.")
    return beta


def _length(T: float | None) -> float | None:
    if T is None or (isinstance(T, float) and math.isinf(T) and T > 0):
        return T
    return check_integer(T, "T (or None, or math.inf)")


def _start(process: TokenProcess, start: str | tuple[ArrayLike, ArrayLike]) -> Start:
    if isinstance(start, str):
        if start not in ("zero", "uniform"):
            raise DataError(f'start must be "zero", "uniform" or a pair (D, z), got {start!r}.')
        return start
    try:
        D, z = start
    except (TypeError, ValueError):
        raise DataError(
            f'start must be "zero", "uniform" or a pair (D, z), got {type(start).__name__}.'
        ) from None
    M, Q = process.M, len(process.queries)
    return (
        as_float(D, "D of start", ndim=2, last=(M, M), meaning="M x M, tokens of the process"),
        as_float(z, "z of start", ndim=2, last=(Q, M), meaning="query tokens x tokens"),
    )


def _chunk(source: Source, optimizer: Optimizer, when: IntArray, bar: Any) -> tuple[FloatArray, ...]:
    D, Z = source.start()
    population = source.population()
    due, records = set(when.tolist()), []
    for k in range(int(when[-1]) + 1):
        batch = population if source.T is None else source.draw()
        step = ascent(D, Z, batch)
        if k in due:
            if not all(bool(torch.isfinite(a).all()) for a in (step.loss, D, Z)):
                raise SolverError(
                    f"Training left the finite numbers by step {k}. Use smaller learning rates."
                )
            seen = step if source.T is None else ascent(D, Z, population)
            mass = attention(population.counts, Z, population.row)
            records.append(
                (
                    step.loss.cpu().numpy(),
                    source.whole(mass / mass.sum(-1, keepdim=True)),
                    source.whole_logits(Z),
                    seen.logits.cpu().numpy(),
                    source.whole(seen.sent / _column(population)),
                )
            )
        if k < when[-1]:
            optimizer.step((D, Z), (step.D, step.Z))
            bar.update()
    return (*(np.stack(column, 1) for column in zip(*records, strict=True)), source.whole_decoder(D))


def _column(batch: Batch) -> torch.Tensor:
    return batch.weight[:, None]
