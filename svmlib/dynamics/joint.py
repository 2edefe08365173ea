"""Training of the head together with the attention weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from svmlib._pivoted import NEVER, Layer, Loss, View, get_loss
from svmlib.arrays import FloatArray, IntArray, as_float, frozen, resolve_device, to_tensor
from svmlib.attention import Direct, Weights, check_weights, rebuilt
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError

from .rules import Rule
from .training import (
    CHECK_EVERY,
    _check_finite,
    _chunk_size,
    _DirectState,
    _FactoredState,
    record_steps,
)

__all__ = ["JointRun", "train_jointly"]


@dataclass(frozen=True, slots=True, eq=False)
class JointRun:
    """What a run of :func:`train_jointly` recorded. All arrays are read-only float64 unless said."""

    steps: IntArray
    """(r,) numbers of completed steps at which something was recorded."""
    v: FloatArray
    """(..., r, d) heads."""
    W: FloatArray
    """(..., r, e, q) attention matrices; K Q^T for factors."""
    loss: FloatArray
    """(..., r) training loss; 0 once it lies below the smallest number of float64."""
    log_loss: FloatArray
    """(..., r) its logarithm, accurate for any size; NaN for the linear loss."""
    margin: FloatArray
    """(..., r, n) prediction margins, label times prediction."""
    top_probability: FloatArray
    """(..., r, n) largest attention probability of each sequence."""
    top_token: IntArray
    """(..., r, n) token that has it."""
    head: FloatArray
    """(..., d) final head."""
    weights: Weights
    """Final weights: pass them with ``head`` to ``train_jointly`` to continue."""

    @property
    def selected(self) -> IntArray:
        """(..., n) token with the largest probability at the end."""
        return np.asarray(self.top_token[..., -1, :])

    @property
    def label_margin(self) -> FloatArray:
        """(..., r) smallest prediction margin over the norm of the head; NaN where the head is 0."""
        size = np.linalg.norm(self.v, axis=-1)
        safe = np.where(size > 0, size, np.nan)
        return np.asarray(self.margin.min(-1) / safe)

    def __repr__(self) -> str:
        return (
            f"JointRun({self.steps[-1]} steps, {len(self.steps)} recorded, v {self.v.shape}, "
            f"W {self.W.shape}, mean log-loss {self.log_loss[..., -1].mean():.6g})"
        )


def train_jointly(
    problem: Problem,
    v: ArrayLike,
    weights: Weights,
    rule: Rule,
    steps: int,
    *,
    head_rule: Rule | None = None,
    together: bool = False,
    record: int | Iterable[int] | None = None,
    loss: str = "logistic",
    device: str | None = None,
    progress: bool = False,
) -> JointRun:
    r"""Train a linear head and attention weights at once, full batch, many instances side by side.

    .. math::
        \mathcal L(v,W)=\frac1n\sum_i\ell\big(y_iv^\top u_i\big),\qquad u_i=X_i^\top\mathbb S(K_iWz_i),\qquad
        \nabla_v\mathcal L=\frac1n\sum_i\ell_i'\,y_iu_i ,

    and the gradient in W is that of a fixed head v. Both blocks step at the same time.

    Parameters
    ----------
    problem : Problem
        Data; a head in it is ignored, the trained one starts at ``v``.
    v : array_like, shape (..., d)
        Where the head starts; without batch axes it is shared by the batch.
    weights : Direct or Factored
        Where attention starts, likewise.
    rule : Rule
        Rule of the weights, and of the head unless ``head_rule`` is given. With
        :func:`normalized` each block is divided by the norm of its own gradient.
    steps : int
        Number of steps.
    head_rule : Rule, optional
        Rule of the head, for another step size or another kind of step.
    together : bool
        Treat (v, W) as one vector: normalised steps then divide both blocks by the norm of the whole
        gradient, so that a run with short steps follows plain gradient flow at another speed.
    record : int or iterable of int, optional
        When to record, see :func:`record_steps`.
    loss : str
        "logistic", "exponential" or "linear".
    device : str, optional
        None or "cpu", "cuda", "auto"; see :func:`svmlib.arrays.resolve_device`.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    JointRun
        Records at the chosen steps, and the final head and weights to go on from.

    Raises
    ------
    ShapeError
        If head or weights do not fit the problem.
    DataError
        If an argument is out of range, or ``together`` comes with a rule of the head.
    SolverError
        If head or weights become NaN or infinite.

    Notes
    -----
    The loss underflows once the prediction margins exceed 745, and with it every slope. Slopes are therefore
    kept as logarithms and the largest is subtracted before they are exponentiated, as for the attention
    weights in :func:`train`, so that the direction of a step stays right at any size of the head. The
    experiment is that of Tarzanagh et al. (2023), *Max-Margin Token Selection*, on joint training.

    Examples
    --------
    >>> import svmlib as sv
    >>> X = [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1]]]
    >>> p = sv.data.Problem(X, z=[[1]] * 3, y=[1, -1, 1], keys=X)
    >>> start = sv.attention.Direct([[0], [-1]])
    >>> run = sv.dynamics.train_jointly(p, [-1, 0], start, sv.dynamics.normalized(0.1), steps=200)
    >>> run.selected.tolist()
    [1, 1, 1]
    """
    from tqdm import tqdm

    for name, given in (("rule", rule), ("head_rule", rule if head_rule is None else head_rule)):
        if not isinstance(given, Rule):
            raise DataError(
                f"{name} must come from svmlib.dynamics.normalized(rate) or gradient_descent(rate), "
                f"got {given!r}."
            )
    if together and head_rule is not None:
        raise DataError("together=True moves head and weights by one rule: leave head_rule out.")
    check_problem(problem)
    chosen_loss = get_loss(loss)
    when = record_steps(record, steps)
    weights = check_weights(problem, weights)
    batch = problem.batch_shape
    head = as_float(v, "v", last=(problem.d,), meaning=f"d of X, which has shape {problem.X.shape}")
    try:
        head = np.broadcast_to(head, (*batch, problem.d))
    except ValueError:
        raise ShapeError(
            f"v must have the batch axes of the problem, {batch}, or none; got shape {head.shape}."
        ) from None
    B = int(np.prod(batch, dtype=int))
    if B == 0:
        raise ShapeError("The batch of this problem is empty: there is nothing to train.")
    chosen = resolve_device(device, B)
    flat = Problem(problem.X, problem.z, problem.y, head, mask=problem.mask, keys=_own_keys(problem)).flat()
    blocks = [np.asarray(w).reshape(-1, *np.shape(w)[-2:]) for w in weights]
    chunk = min(B, _chunk_size(flat, weights, chosen))
    parts = []
    total = -(-B // chunk) * int(steps)
    with torch.inference_mode(), tqdm(total=total, disable=not progress, unit="step") as bar:
        for first in range(0, B, chunk):
            piece = slice(first, first + chunk)
            part = rebuilt(weights, (b[piece] for b in blocks))
            trainer = _Trainer(flat[piece], part, rule, head_rule, together, chosen_loss, chosen)
            parts.append(trainer.run(when, bar, first))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    shaped = [frozen(c.reshape(batch + c.shape[1:])) for c in columns]
    heads, matrices, values, log_values, margins, probability, token, final, *blocks = shaped
    return JointRun(
        steps=frozen(when),
        v=heads,
        W=matrices,
        loss=values,
        log_loss=log_values,
        margin=margins,
        top_probability=probability,
        top_token=token,
        head=final,
        weights=rebuilt(weights, blocks),
    )


def _own_keys(problem: Problem) -> FloatArray | None:
    return None if problem.keys is problem.X else problem.keys


def _log_loss(loss: Loss, margin: Tensor) -> Tensor:
    """Return log l(f), elementwise: the loss itself underflows at margins above 745."""
    if loss.name == "linear":
        return torch.full_like(margin, torch.nan)
    if loss.name == "exponential":
        return -margin
    return torch.where(margin > 30.0, -margin, loss.value(margin.clamp_max(30.0)).log())


class _Trainer:
    """Head and attention of one chunk of the batch; instances are on the last axis, as in the layer."""

    def __init__(
        self,
        problem: Problem,
        weights: Weights,
        rule: Rule,
        head_rule: Rule | None,
        together: bool,
        loss: Loss,
        device: str,
    ) -> None:
        self.layer = Layer(problem, device)
        kind = _DirectState if isinstance(weights, Direct) else _FactoredState
        self.attention: Any = kind(self.layer, weights, device)  # type: ignore[arg-type]
        self.v = to_tensor(np.asarray(problem.v).T, device)  # (d, B)
        self.rule, self.head_rule = rule, rule if head_rule is None else head_rule
        self.together, self.loss = together, loss
        self.memory = rule.init(self.layer.B)
        self.head_memory = self.head_rule.init(self.layer.B)
        self.log_n = float(np.log(self.layer.n))

    def view(self) -> View:
        """Evaluate the layer at the present head: its scores move from step to step."""
        layer = self.layer
        layer.scores = layer.y * (layer.X * self.v.repeat(1, layer.n)).sum(1)
        layer.pivot_score = layer.scores.gather(0, layer.pivot)
        layer.relative = layer.scores - layer.pivot_score
        return layer.view(self.attention.mapped())

    def head_ascent(self, view: View) -> tuple[Tensor, Tensor]:
        """Scaled negative gradient in v, (d, B), and the logarithm (B,) of its scale (without 1/n)."""
        layer = self.layer
        slope = self.loss.log_slope(view.margin).reshape(layer.n, layer.B)
        top = slope.amax(0).clamp_min(NEVER)
        pull = layer.y.reshape(layer.n, layer.B) * (slope - top).exp()
        u = layer.output(view.weight / view.total).permute(2, 1, 0)  # (B, n, d)
        return (u.permute(2, 1, 0) * pull).sum(1), top

    def step(self, view: View) -> None:
        """Move head and weights along the gradient at one point."""
        push, log_head = self.head_ascent(view)
        rows, log_rows = self.layer.ascent(view, self.loss)
        log_head, log_rows = log_head - self.log_n, log_rows - self.log_n
        size = push.square().sum(0).sqrt()
        if self.together:
            self._step_together(push, size, log_head, rows, log_rows)
            return
        (factor,), self.head_memory = self.head_rule.update((size,), log_head, self.head_memory)
        self.memory = self.attention.step(rows, log_rows, self.rule, self.memory)
        self.v = self.v + factor * push

    def _step_together(
        self, push: Tensor, size: Tensor, log_head: Tensor, rows: Tensor, log_rows: Tensor
    ) -> None:
        common = torch.maximum(log_head, log_rows)
        of_head, of_rows = (log_head - common).exp(), (log_rows - common).exp()
        factors: list[Tensor] = []

        def update(sizes: tuple[Tensor, ...], log_scale: Tensor, state: Any) -> tuple[Any, Any]:
            # the attention block tells its norm here; the whole gradient is one block for the rule
            squares = (size * of_head).square() + sum((s * of_rows).square() for s in sizes)
            (factor,), state = self.rule.update((squares.sqrt(),), common, state)
            factors.append(factor)
            return (factor * of_rows,) * len(sizes), state

        whole = Rule(self.rule.name, self.rule.init, update)
        self.memory = self.attention.step(rows, log_rows, whole, self.memory)
        self.v = self.v + factors[0] * of_head * push

    def run(self, when: IntArray, bar: Any, first: int) -> tuple[Any, ...]:
        """Train to the last of the recorded steps; returns records and the final blocks, batch axis first."""
        due, last = set(when.tolist()), int(when[-1])
        records = []
        for k in range(last + 1):
            view = self.view()
            if k in due or k % CHECK_EVERY == 0:
                _check_finite(view.margin.reshape(self.layer.n, self.layer.B).sum(0), k, first)
            if k in due:
                records.append(self._record(view))
            if k < last:
                self.step(view)
                if k % CHECK_EVERY == 0:
                    bar.update(min(CHECK_EVERY, last - k))
        columns = (np.stack(c, axis=1) for c in zip(*records, strict=True))
        return (*columns, self.v.T.cpu().numpy(), *self.attention.weights())

    def _record(self, view: View) -> tuple[Any, ...]:
        layer = self.layer
        margin = view.margin.reshape(layer.n, layer.B)
        log_loss = torch.logsumexp(_log_loss(self.loss, margin), 0) - self.log_n
        return (
            self.v.T.cpu().numpy(),
            self.attention.weights().matrix(),
            self.loss.value(margin).mean(0).cpu().numpy(),
            log_loss.cpu().numpy(),
            margin.T.cpu().numpy(),
            layer.per_sequence(1.0 / view.total),
            layer.per_sequence(layer.pivot),
        )
