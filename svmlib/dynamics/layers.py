"""Training of transformers of several layers: autograd with a softmax whose gradient survives saturation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from svmlib._pivoted import get_loss
from svmlib.arrays import FloatArray, IntArray, frozen, resolve_device
from svmlib.attention import Architecture, Direct, Factored, TransformerWeights, check_transformer
from svmlib.attention._network import Blocks, Network, tensors
from svmlib.data import Problem
from svmlib.errors import DataError, SolverError

from .rules import Rule
from .training import CHECK_EVERY, record_steps

__all__ = ["LayersRun", "train_layers"]

BLOCKS = ("W", "V", "E", "F", "v")
SMALLEST = 1e-300  # gradients whose largest entry is below have lost digits to underflow: the block stays


@dataclass(frozen=True, slots=True, eq=False)
class LayersRun:
    """What a run of :func:`train_layers` recorded. All arrays are read-only float64 unless said."""

    steps: IntArray
    """(r,) numbers of completed steps at which something was recorded."""
    W: FloatArray
    """(..., r, L, H, d, d) attention matrices; K Q^T for factors."""
    loss: FloatArray
    """(..., r) training loss."""
    log_loss: FloatArray
    """(..., r) its logarithm, accurate for any size; NaN for the linear loss."""
    margin: FloatArray
    """(..., r, n) prediction margins, label times prediction."""
    top_probability: FloatArray
    """(..., r, L, H) largest attention probability of the read-out stream, mean over sequences."""
    history: tuple[TransformerWeights, ...]
    """(r,) all weights at the recorded steps, each with the axes of the problem."""

    @property
    def weights(self) -> TransformerWeights:
        """Final weights: pass them to ``train_layers`` to continue."""
        return self.history[-1]

    @property
    def accuracy(self) -> FloatArray:
        """(..., r) share of sequences whose label is predicted."""
        return np.asarray((self.margin > 0).mean(-1))

    def __repr__(self) -> str:
        return (
            f"LayersRun({self.steps[-1]} steps, {len(self.steps)} recorded, W {self.W.shape}, mean loss "
            f"{self.loss[..., -1].mean():.6g}, accuracy {self.accuracy[..., -1].mean():.3f})"
        )


def train_layers(
    problem: Problem,
    architecture: Architecture,
    weights: TransformerWeights,
    rule: Rule,
    steps: int,
    *,
    trainable: Iterable[str] = ("W",),
    together: bool = False,
    record: int | Iterable[int] | None = None,
    loss: str = "logistic",
    device: str | None = None,
    progress: bool = False,
) -> LayersRun:
    r"""Train a transformer by full-batch gradient descent, for all instances of a batch at once.

    Parameters
    ----------
    problem : Problem
        Data; a head in it is ignored, the read-out belongs to the weights.
    architecture : Architecture
        What the transformer is made of.
    weights : TransformerWeights
        Where to start; blocks without batch axes are shared by the batch as a start.
    rule : Rule
        :func:`gradient_descent` or :func:`normalized`. A block is one matrix: the W (or K, or Q) or V of one
        head, the E or F of one layer, the read-out v. Normalised steps divide each block by the norm of its
        own gradient: gradients of different layers and heads shrink at different exponential rates, and
        divided by a common norm all blocks but one would soon stand still, their directions untested.
    steps : int
        Number of steps.
    trainable : iterable of str
        Which blocks move, any of "W", "V", "E", "F", "v"; "W" stands for K and Q of factored weights.
    together : bool
        Divide all blocks by the norm of the whole gradient instead, as gradient flow moves at another speed.
    record : int or iterable of int, optional
        When to record, see :func:`record_steps`; 10 records by default, each keeps all weights.
    loss : str
        "logistic", "exponential" or "linear".
    device : str, optional
        None or "cpu", "cuda", "auto"; see :func:`svmlib.arrays.resolve_device`.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    LayersRun
        Records at the chosen steps, and the final weights to go on from.

    Raises
    ------
    ShapeError
        If the weights do not fit.
    DataError
        If an argument is out of range.
    SolverError
        If something becomes NaN or infinite; the message says at which step and in which instance.

    Notes
    -----
    Two places lose the gradient when written naively. In the softmax the entry of the top logit is computed
    as minus the sum of the others, so that directions stay right once a probability has rounded to 1; and
    the logarithm of the loss is differentiated, so that a loss below the smallest number of float64 still
    has a direction. What remains is underflow: a block whose gradient falls below 1e-300, at logit margins
    of about 690, stays where it is. One layer with one head, no MLP and V = I agrees with :func:`train` to
    round-off.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.random_problem(4, 5, 6, batch=3)
    >>> a = sv.attention.Architecture(layers=2, heads=2)
    >>> start = sv.attention.TransformerWeights.random(p, a)
    >>> train_layers(p, a, start, sv.dynamics.normalized(0.1), 20).W.shape
    (3, 10, 2, 2, 6, 6)
    """
    from tqdm import tqdm

    if not isinstance(rule, Rule):
        raise DataError(
            f"rule must come from svmlib.dynamics.normalized(rate) or gradient_descent(rate), got {rule!r}."
        )
    checked = check_transformer(problem, architecture, weights)
    names = _trainable(trainable, checked)
    get_loss(loss)
    if not isinstance(together, (bool, np.bool_)):
        raise DataError(f"together must be True or False, got {together!r}.")
    when = record_steps(10 if record is None else record, steps)
    where = resolve_device(device, int(np.prod(problem.batch_shape, dtype=int)))
    network = Network(problem, architecture, where)
    blocks = tensors(problem, checked, where)
    state, due, parts = rule.init(network.B), set(when.tolist()), []
    with tqdm(total=int(steps), disable=not progress, unit="step") as bar:
        for k in range(int(when[-1]) + 1):
            recorded = k in due
            if k < when[-1]:
                value, margin, grads = _gradient(network, blocks, names, loss)
            elif recorded:
                with torch.no_grad():
                    value, margin = _objective(network, blocks, loss)
            if recorded or k % CHECK_EVERY == 0:
                _check(value, margin, k)
            if recorded:
                parts.append(_recorded(network, blocks, value, margin, loss))
            if k < when[-1]:
                blocks, state = _stepped(blocks, names, grads, value, rule, state, together, loss)
                if k % CHECK_EVERY == 0:
                    bar.update(min(CHECK_EVERY, int(when[-1]) - k))
    return _run(problem, checked, when, parts)


def _trainable(trainable: Iterable[str], weights: TransformerWeights) -> tuple[str, ...]:
    listed = isinstance(trainable, Iterable) and not isinstance(trainable, str)
    names: tuple[Any, ...] = tuple(trainable) if listed else (trainable,)
    unknown = [n for n in names if n not in BLOCKS]
    if unknown or not names:
        raise DataError(f"trainable must name blocks out of {', '.join(BLOCKS)}; got {names!r}.")
    missing = [n for n in ("E", "F") if n in names and getattr(weights, n) is None]
    if missing:
        raise DataError(f"trainable names {missing[0]}, but the architecture has no MLP: leave it out.")
    return tuple(dict.fromkeys(names))


def _leaves(blocks: Blocks, names: tuple[str, ...]) -> list[Tensor]:
    out: list[Tensor] = []
    for name in names:
        out += blocks.attention if name == "W" else (getattr(blocks, name),)
    return out


def _replaced(blocks: Blocks, names: tuple[str, ...], leaves: Iterable[Tensor]) -> Blocks:
    rest = iter(leaves)
    changed: dict[str, Any] = {}
    for name in names:
        if name == "W":
            changed["attention"] = tuple(next(rest) for _ in blocks.attention)
        else:
            changed[name] = next(rest)
    return blocks._replace(**changed)


def _objective(network: Network, blocks: Blocks, loss: str) -> tuple[Tensor, Tensor]:
    """(B,) logarithm of the loss, or the linear loss itself; (B, n) margins."""
    margin = network.y * network.predict(blocks)
    if loss == "linear":
        return -margin.mean(-1), margin
    if loss == "logistic":  # softplus(-m) = e^-m (1 - e^-m / 2 + ...)
        far = margin > 30.0
        log = torch.where(far, -margin, softplus(-torch.where(far, 0.0, margin)).log())
    else:
        log = -margin
    return torch.logsumexp(log, -1) - float(np.log(network.n)), margin


def _gradient(
    network: Network, blocks: Blocks, names: tuple[str, ...], loss: str
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    leaves = [a.detach().requires_grad_(True) for a in _leaves(blocks, names)]
    with torch.enable_grad():
        value, margin = _objective(network, _replaced(blocks, names, leaves), loss)
        grads = torch.autograd.grad(value.sum(), leaves)
    return value.detach(), margin.detach(), grads


def _norms(g: Tensor, own: int) -> Tensor:
    """Frobenius norms over the last axes without underflow of squares; 0 where digits are lost."""
    dims = tuple(range(g.ndim - own, g.ndim))
    top = g.abs().amax(dims, keepdim=True)
    safe = torch.where(top > SMALLEST, top, 1.0)
    size = top * (g / safe).square().sum(dims, keepdim=True).sqrt()
    return torch.where(top > SMALLEST, size, 0.0)


def _stepped(
    blocks: Blocks,
    names: tuple[str, ...],
    grads: tuple[Tensor, ...],
    value: Tensor,
    rule: Rule,
    state: Any,
    together: bool,
    loss: str,
) -> tuple[Blocks, Any]:
    leaves = _leaves(blocks, names)
    B = len(value)
    log_scale = torch.zeros_like(value) if loss == "linear" else value
    sizes = [
        _norms(g, 1 if name == "v" else 2) for name, g in zip(_labels(blocks, names), grads, strict=True)
    ]
    if together:
        total = _norms(torch.cat([s.reshape(B, -1) for s in sizes], 1), 1)[:, 0]
        (factor,), state = rule.update((total,), log_scale, state)
        factors = [factor.reshape(-1, *(1,) * (g.ndim - 1)) for g in grads]
    else:
        columns = [s.reshape(B, -1) for s in sizes]
        flat, state = rule.update(tuple(torch.cat(columns, 1).unbind(1)), log_scale, state)
        parts = torch.split(torch.stack(flat, 1), [c.shape[1] for c in columns], 1)
        factors = [f.reshape(s.shape) for f, s in zip(parts, sizes, strict=True)]
    moved = [w - f * g for w, f, g in zip(leaves, factors, grads, strict=True)]
    return _replaced(blocks, names, moved), state


def _labels(blocks: Blocks, names: tuple[str, ...]) -> list[str]:
    return [n for name in names for n in ([name] * len(blocks.attention) if name == "W" else [name])]


def _check(value: Tensor, margin: Tensor, k: int) -> None:
    bad = ~(torch.isfinite(value) & torch.isfinite(margin).all(-1))
    if bad.any():
        raise SolverError(
            f"Training left the finite numbers by step {k}: {int(bad.sum())} of {len(value)} instances are "
            f"NaN or infinite, the first is instance {int(bad.nonzero()[0, 0])} of the batch. Use a smaller "
            "step size, normalized steps, or train fewer blocks."
        )


def _recorded(network: Network, blocks: Blocks, value: Tensor, margin: Tensor, loss: str) -> tuple[Any, ...]:
    kept: list[Any] = []
    with torch.no_grad():
        network.predict(blocks, kept)
    top = torch.stack([s[..., network.T, :].amax(-1).mean(-1) for _, s, _ in kept], 1)
    linear = loss == "linear"
    arrays = (
        value if linear else value.exp(),
        torch.full_like(value, torch.nan) if linear else value,
        margin,
        top,
    )
    mlp = [None if a is None else a.cpu().numpy() for a in (blocks.E, blocks.F)]
    weights = [a.cpu().numpy() for a in (*blocks.attention, blocks.V)] + mlp + [blocks.v.cpu().numpy()]
    return (*(a.cpu().numpy() for a in arrays), weights)


def _run(
    problem: Problem, like: TransformerWeights, when: IntArray, parts: list[tuple[Any, ...]]
) -> LayersRun:
    batch = problem.batch_shape

    def shaped(a: Any) -> Any:
        return None if a is None else frozen(a.reshape(batch + a.shape[1:]))

    *numbers, weights = zip(*parts, strict=True)
    loss, log_loss, margin, top = (shaped(np.stack(c, 1)) for c in numbers)
    history = []
    for blocks in weights:
        *attention, V, E, F, v = map(shaped, blocks)
        kind: Direct | Factored = (
            Direct(*attention) if isinstance(like.attention, Direct) else Factored(*attention)
        )
        history.append(TransformerWeights(kind, V, E, F, v))
    return LayersRun(
        steps=frozen(when),
        W=frozen(np.stack([w.W for w in history], axis=len(batch))),
        loss=loss,
        log_loss=log_loss,
        margin=margin,
        top_probability=top,
        history=tuple(history),
    )
