"""The training loop: many instances side by side, records only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from svmlib._pivoted import Layer, get_loss
from svmlib.arrays import (
    FloatArray,
    IntArray,
    as_float,
    check_integer,
    frozen,
    resolve_device,
    to_tensor,
)
from svmlib.attention import Direct, Factored, Weights, check_weights, rebuilt
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError, SolverError

from .matrix_rules import MatrixRule, MatrixState
from .rules import Rule

CPU_WORKSPACE = 1 << 17  # doubles of the largest temporary: what a core's cache holds
CUDA_WORKSPACE = 1 << 26
CHECK_EVERY = 100  # steps between two looks for NaN
WIDE = 256  # entries of a matrix from which on copies for a batched matrix product pay, given COLUMNS
COLUMNS = 8
MEND = "Use a smaller step size, or normalized steps."


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What a training run recorded. All arrays are read-only float64 unless said."""

    steps: IntArray
    """(r,) numbers of completed steps at which something was recorded."""
    W: FloatArray
    """(..., r, e, q) attention matrices: e and q are the widths of keys and queries; K Q^T for factors."""
    loss: FloatArray
    """(..., r) training loss."""
    gap: FloatArray
    """(..., r) loss above its infimum, accurate however small; NaN for a nonlinear head."""
    top_probability: FloatArray
    """(..., r, n) largest attention probability of each sequence."""
    top_token: IntArray
    """(..., r, n) token that has it."""
    weights: Weights
    """Final weights: pass them to ``train`` to continue."""

    @property
    def selected(self) -> IntArray:
        """(..., n) token with the largest probability at the end."""
        return np.asarray(self.top_token[..., -1, :])

    def __repr__(self) -> str:
        return (
            f"Run({self.steps[-1]} steps, {len(self.steps)} recorded, W {self.W.shape}, "
            f"mean loss {self.loss[..., -1].mean():.6g})"
        )


def record_steps(record: int | Iterable[int] | None, steps: int) -> IntArray:
    """Turn the ``record`` argument of :func:`train` into sorted step numbers.

    Parameters
    ----------
    record : int, iterable of int or None
        Steps to record, or about how many: a number spreads them geometrically up to ``steps`` and adds 0.
        None means 50.
    steps : int
        Length of the run.

    Returns
    -------
    ndarray of int
        Steps without repetition, the last one always among them.

    Raises
    ------
    ShapeError
        If ``steps`` or a number of records is not a whole number, or too small.
    DataError
        If a step lies outside 0 to ``steps``.

    Examples
    --------
    >>> record_steps([10, 100], 1000).tolist()
    [10, 100, 1000]
    >>> record_steps(4, 1000).tolist()
    [0, 1, 10, 100, 1000]
    """
    steps = check_integer(steps, "steps", 0)
    if record is None or isinstance(record, (int, np.integer)):
        count = min(50 if record is None else check_integer(record, "record"), max(steps, 1))
        spread = np.geomspace(1, max(steps, 1), count).round() if steps else np.zeros(1)
        asked = np.r_[0, spread[-1:] if count == 1 else spread]
    else:
        text = isinstance(record, (str, bytes))
        listed = list(record) if isinstance(record, Iterable) and not text else record
        asked = np.sort(as_float(np.asarray(listed), "record", ndim=1, finite=False))
        if asked.size and not (np.isfinite(asked).all() and (asked == asked.round()).all()):
            raise DataError("record must hold whole numbers of steps.")
        if asked.size and (asked[0] < 0 or asked[-1] > steps):
            raise DataError(f"record must lie in 0..{steps}, got steps from {asked[0]:g} to {asked[-1]:g}.")
    return np.unique(np.r_[asked, steps]).astype(np.int64)


class _DirectState:
    # W is never formed while training: the layer needs P_i = W z_i only. W itself is W(0) plus a sum of
    # steps, kept in the coordinates of the queries' basis.
    def __init__(self, layer: Layer, weights: Direct, device: str) -> None:
        start = np.asarray(weights.W).reshape(-1, *np.shape(weights.W)[-2:])
        self.layer, self.start = layer, to_tensor(start.transpose(1, 2, 0), device)
        self.P = (self.start[:, :, None] * layer.z).sum(1)
        self.sum = torch.zeros((), dtype=self.P.dtype, device=device)

    def mapped(self) -> Tensor:
        return self.P

    def step(self, rows: Tensor, log_scale: Tensor, rule: Rule, state: Any) -> Any:
        z = self.layer.coordinates
        G = (rows[:, None] * z).sum(2)
        (factor,), state = rule.update((G.square().sum((0, 1)).sqrt(),), log_scale, state)
        G *= factor
        self.P = self.P + (G[:, :, None] * z).sum(1)
        self.sum = self.sum + G
        return state

    def weights(self) -> Direct:
        W = self.start
        if self.sum.ndim:  # (e, 1, r, B) times (q, r, B)
            W = W + (self.sum[:, None] * self.layer.basis).sum(2)
        return Direct(W.permute(2, 0, 1).cpu().numpy())


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Matrix products (p, r, B) times (r, n, B), instance by instance."""
    if a.shape[0] * a.shape[1] < WIDE or b.shape[1] < COLUMNS:
        return (a[:, :, None] * b).sum(1)
    return torch.bmm(a.permute(2, 0, 1), b.permute(2, 0, 1)).permute(1, 2, 0).contiguous()


class _FactoredState:
    # The same for (K, Q): the layer needs q_i = Q' z_i only.
    def __init__(self, layer: Layer, weights: Factored, device: str) -> None:
        self.layer = layer
        self.K, self.start = (
            to_tensor(np.asarray(a).reshape(-1, *np.shape(a)[-2:]).transpose(1, 2, 0), device)
            for a in weights
        )
        self.q = _product(self.start.transpose(0, 1), layer.z)  # (m, n, B)
        self.sum = torch.zeros((), dtype=self.q.dtype, device=device)

    def mapped(self) -> Tensor:
        return _product(self.K, self.q)

    def step(self, rows: Tensor, log_scale: Tensor, rule: Rule, state: Any) -> Any:
        z = self.layer.coordinates
        grad_K = _product(rows, self.q.transpose(0, 1))
        pulled = _product(self.K.transpose(0, 1), rows)  # K' r_i; grad_Q = sum_i z_i (K' r_i)'
        grad_Q = _product(pulled, z.transpose(0, 1))  # transposed, in the queries' basis
        sizes = tuple(g.square().sum((0, 1)).sqrt() for g in (grad_K, grad_Q))
        (factor_K, factor_Q), state = rule.update(sizes, log_scale, state)
        grad_Q = factor_Q * grad_Q
        self.K = self.K + factor_K * grad_K
        self.q = self.q + _product(grad_Q, z)
        self.sum = self.sum + grad_Q
        return state

    def weights(self) -> Factored:
        Q = self.start
        if self.sum.ndim:
            Q = Q + (self.layer.basis[:, None] * self.sum).sum(2)
        return Factored(self.K.permute(2, 0, 1).cpu().numpy(), Q.permute(2, 0, 1).cpu().numpy())


def _chunk_size(problem: Problem, weights: Weights, device: str) -> int:
    if problem.head is not None and not hasattr(problem.head, "local"):
        return 1 << 62  # a foreign head may hold parameters of its own for every instance
    width = int(np.shape(weights[-1])[-1])
    largest = problem.n * problem.key_dim * max(problem.T, problem.n, width)
    return max(1, (CUDA_WORKSPACE if device.startswith("cuda") else CPU_WORKSPACE) // largest)


def train(
    problem: Problem,
    weights: Weights,
    rule: Rule | MatrixRule,
    steps: int,
    *,
    record: int | Iterable[int] | None = None,
    loss: str = "logistic",
    device: str | None = None,
    progress: bool = False,
) -> Run:
    r"""Train attention weights by full-batch gradient descent, for all instances of a batch at once.

    Parameters
    ----------
    problem : Problem
        Data and head; batch axes are trained side by side.
    weights : Direct or Factored
        Where to start; weights without batch axes are shared by the batch as a start.
    rule : Rule or MatrixRule
        :func:`gradient_descent` or :func:`normalized`; for ``Direct`` also :func:`steepest` or
        :func:`mirror_descent`.
    steps : int
        Number of steps.
    record : int or iterable of int, optional
        When to record, see :func:`record_steps`.
    loss : str
        "logistic", "exponential", "linear", or "log" for margins that are probabilities.
    device : str, optional
        None or "cpu", "cuda", "auto"; see :func:`svmlib.arrays.resolve_device`.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    Run
        Records at the chosen steps, and the final weights to go on from.

    Raises
    ------
    ShapeError
        If the weights do not fit the problem.
    DataError
        If an argument is out of range, or the problem has no head.
    SolverError
        If the weights become NaN or infinite; the message says at which step and in which instance.

    Notes
    -----
    Gradients are the closed forms of Tarzanagh et al. (2023), *Transformers as Support Vector Machines*,
    evaluated relative to the top token, so that a run may continue long after softmax has saturated.
    The dynamics of (K, Q) amplifies round-off, so after some hundred steps an instance in a batch and the
    same instance alone may differ visibly in K Q^T, as they do after a change of the start by 1e-15.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.planar(1)
    >>> run = sv.dynamics.train(p, sv.attention.Direct.zeros(p), sv.dynamics.normalized(0.1), steps=500)
    >>> run.selected.tolist()
    [0, 2]
    """
    from tqdm import tqdm

    if not isinstance(rule, Rule | MatrixRule):
        raise DataError(
            f"rule must come from svmlib.dynamics.normalized(rate), gradient_descent(rate), "
            f"steepest(norm, rate) or mirror_descent(p, rate), got {rule!r}."
        )
    check_problem(problem)
    chosen_loss = get_loss(loss, problem)
    when = record_steps(record, steps)
    weights = check_weights(problem, weights)
    batch = problem.batch_shape
    B = int(np.prod(batch, dtype=int))
    if B == 0:
        raise ShapeError("The batch of this problem is empty: there is nothing to train.")
    chosen = resolve_device(device, B)
    flat = problem.flat()
    blocks = [np.asarray(w).reshape(-1, *np.shape(w)[-2:]) for w in weights]
    chunk = min(B, _chunk_size(problem, weights, chosen)) or 1
    parts = []
    total = -(-B // chunk) * int(steps)
    with torch.inference_mode(), tqdm(total=total, disable=not progress, unit="step") as bar:
        for first in range(0, B, chunk):
            piece = slice(first, first + chunk)
            part = rebuilt(weights, (b[piece] for b in blocks))
            parts.append(_train_chunk(flat[piece], part, rule, when, chosen_loss, chosen, bar, first))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    shaped = [c.reshape(batch + c.shape[1:]) for c in columns]
    matrices, loss_values, gap_values, probability, token, *final = shaped
    return Run(
        steps=frozen(when),
        W=frozen(matrices),
        loss=frozen(loss_values),
        gap=frozen(gap_values),
        top_probability=frozen(probability),
        top_token=frozen(token),
        weights=rebuilt(weights, map(frozen, final)),
    )


def _train_chunk(
    problem: Problem,
    weights: Weights,
    rule: Any,  # of the kind that its state knows
    when: IntArray,
    loss: Any,
    device: str,
    bar: Any,
    first: int,
) -> tuple[Any, ...]:
    layer = Layer(problem, device)
    state: _DirectState | _FactoredState | MatrixState
    if isinstance(rule, MatrixRule):
        state = MatrixState(layer, weights, rule, device)
    elif isinstance(weights, Direct):
        state = _DirectState(layer, weights, device)
    else:
        state = _FactoredState(layer, weights, device)
    memory = None if isinstance(rule, MatrixRule) else rule.init(layer.B)
    mend = MEND
    if loss.name == "log":
        mend = 'The loss "log" needs margins above 0: use another loss, or start nearer to W = 0.'
    elif isinstance(rule, MatrixRule):
        mend = "Use a smaller step size, fewer steps or, in mirror descent, p nearer to 2."
    due = set(when.tolist())
    log_n = float(np.log(layer.n))
    records: list[tuple[Any, ...]] = []
    for k in range(int(when[-1]) + 1):
        view = layer.view(state.mapped())
        if k in due:
            value, gap = layer.losses(view, loss)
            _check_finite(value, k, first, mend)
            numbers = (value.cpu().numpy(), gap.cpu().numpy())
            tops = (layer.per_sequence(1.0 / view.total), layer.per_sequence(layer.pivot))
            records.append((state.weights().matrix(), *numbers, *tops))
        elif k % CHECK_EVERY == 0:
            _check_finite(view.margin.reshape(layer.n, layer.B).sum(0), k, first, mend)
        if k < when[-1]:
            rows, log_scale = layer.ascent(view, loss)
            memory = state.step(rows, log_scale - log_n, rule, memory)
            if k % CHECK_EVERY == 0:
                bar.update(min(CHECK_EVERY, int(when[-1]) - k))
    return (*(np.stack(c, axis=1) for c in zip(*records, strict=True)), *state.weights())


def _check_finite(values: Tensor, k: int, first: int, mend: str = MEND) -> None:
    bad = ~torch.isfinite(values)
    if bad.any():
        raise SolverError(
            f"Training left the finite numbers by step {k}: {int(bad.sum())} of {len(values)} instances are "
            f"NaN or infinite, the first is instance {first + int(bad.nonzero()[0, 0])} of the batch. {mend}"
        )
