"""The joint regularisation path of head and attention, and the directions in which it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from svmlib import svm
from svmlib._pivoted import Loss, get_loss
from svmlib.arrays import FloatArray, IntArray, as_float, frozen, to_tensor
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError, SolverError

from .joint import _log_loss

__all__ = ["JointLimit", "JointPath", "joint_limit", "joint_path"]

STATIONARY = 1e-6  # largest angle, in radians, between a block and its negative gradient
ROUNDS = 60
SLACK = 1e-7
"""A selected token has slack when its label margin exceeds the smallest by more than this, relatively."""


@dataclass(frozen=True, slots=True, eq=False)
class JointLimit:
    """Directions in which head and attention grow together. All arrays are read-only float64."""

    ratio: float
    """Limit of the norm of the head over the norm of W; may be 0 or infinite."""
    v: FloatArray
    """(d,) head of norm 1 with the largest label margin."""
    W: FloatArray
    """(e, q) attention matrix of norm 1."""
    label_margin: float
    """Label margin of the selected tokens."""
    slack: FloatArray
    """(n,) label margin of each selected token beyond that."""
    margin: float
    """Largest joint margin: the smallest token margin, with ``ratio`` times the slack added."""
    threshold: float
    """Ratio from which W is the relaxed SVM's; infinite where no support sequence has a second token."""
    tokens: IntArray
    """(n,) selected tokens."""

    def __repr__(self) -> str:
        return (
            f"JointLimit(ratio {self.ratio:g}, label margin {self.label_margin:.6g}, "
            f"joint margin {self.margin:.6g}, threshold {self.threshold:.6g})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class JointPath:
    """Minimisers over growing balls. All arrays are read-only float64."""

    radii: FloatArray
    """(r,) norms of W; the heads have ``ratio`` times these norms."""
    v: FloatArray
    """(r, d) heads."""
    W: FloatArray
    """(r, e, q) attention matrices."""
    log_excess: FloatArray
    """(r,) logarithm of the loss above that of the same head reading the selected tokens alone."""
    residual: FloatArray
    """(r,) largest angle in radians between a block and its negative gradient."""

    def __repr__(self) -> str:
        return f"JointPath({len(self.radii)} radii, worst residual {self.residual.max():.1e})"


def joint_limit(problem: Problem, ratio: float, tokens: ArrayLike | None = None) -> JointLimit:
    r"""Solve for the directions of head and attention when their norms grow at a fixed ratio.

    The head is that of :func:`svmlib.svm.value_svm`, with label margin :math:`\Lambda` and slack
    :math:`\xi_i=y_i\hat v^\top x_{i\alpha_i}-\Lambda`. The attention direction solves

    .. math:: \max_{\|W\|_F\le1}\ \min_{i,\,t\ne\alpha_i}\big(\langle A_{it},W\rangle+c\,\xi_i\big)
        \quad\text{s.t.}\quad\langle A_{it},W\rangle\ge0 .

    For c = 0 that is the attention SVM, for large c the relaxed one. A selected token that has the label
    margin but needs no multiplier counts as one without slack; the joint path agrees for finite c.

    Parameters
    ----------
    problem : Problem
        One problem, without batch axes. Its head is used only to choose tokens.
    ratio : float
        The ratio c, norm of the head over norm of W; may be infinite.
    tokens : array_like of int, shape (n,), optional
        Selected tokens; ``problem.optimal`` by default.

    Returns
    -------
    JointLimit
        Directions, margins and slack.

    Raises
    ------
    InfeasibleError
        If head or attention cannot separate the selected tokens.
    DataError
        If ``ratio`` is negative or NaN, or there are no other tokens to separate from the selected ones (for
        an infinite ratio: in the sequences without slack).

    Examples
    --------
    >>> X = [[[0, 0], [1, 1]], [[0, 0], [1, -1]], [[0, 0], [0.5, 1.25]]]
    >>> p = Problem(X, z=[[1]] * 3, y=[1, -1, 1], keys=X)
    >>> joint_limit(p, 2.0, [1, 1, 1]).W[:, 0].round(6)
    array([1., 0.])
    """
    from scipy.optimize import brentq

    c = float(as_float(ratio, "ratio", ndim=0, finite=False))
    if not c >= 0:
        raise DataError(f"ratio must be a number >= 0 or infinite, got {ratio!r}.")
    head = svm.value_svm(check_problem(problem), tokens)
    index = problem.checked_tokens(tokens)
    reach = problem.y * (problem.X[np.arange(problem.n), index] @ head.w) * head.margin
    # not head.support: its tolerance is coarse, and a small slack counts when the ratio is large
    slack = np.where(reach > head.margin * (1 + SLACK), reach - head.margin, 0.0)
    relaxed = svm.attention_svm(problem, index, relaxed=slack > 0)
    direction, margin, threshold = relaxed.W, float(relaxed.margin), np.inf
    if np.isfinite(margin):
        direction = direction * margin
        short = margin - _margins(problem, direction, index)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where((slack > 0) & (short > 1e-12 * margin), short / slack, 0.0)
        threshold = float(needed.max())
    elif c == np.inf or not np.isfinite(svm.attention_svm(problem, index).margin):
        which = "no sequence" if c < np.inf else "none of the sequences without slack"
        raise DataError(
            f"Attention has nothing to separate: {which} has a second visible token. Unmask tokens"
            + (", or take a finite ratio." if c == np.inf else ".")
        )
    if c < threshold:
        full = svm.attention_svm(problem, index)
        low, direction = float(full.margin), full.W * full.margin

        def solution(rho: float) -> FloatArray:
            level = np.clip(rho - c * slack, 0.0, None)
            scaled = problem.keys / np.where(level > 0, level, 1.0)[:, None, None]
            levelled = Problem(problem.X, problem.z, problem.y, mask=problem.mask, keys=scaled)
            return svm.attention_svm(levelled, index, relaxed=level == 0).W

        def excess(rho: float) -> float:
            return float(np.linalg.norm(solution(rho))) - 1.0

        high = min(margin, low + c * float(slack.max()))
        if high > low * (1 + 1e-12):
            # its value is the joint margin at which the program in SVM form has a solution of norm 1
            margin = high
            if excess(high) > 0:
                margin = float(brentq(excess, low, high, xtol=1e-14 * high))
            W = solution(margin)
            direction = W / np.linalg.norm(W)
        else:
            margin = low
    return JointLimit(
        c,
        frozen(head.w * head.margin),
        frozen(direction),
        head.margin,
        frozen(slack),
        margin,
        threshold,
        frozen(index),
    )


def _margins(problem: Problem, W: FloatArray, tokens: IntArray) -> FloatArray:
    """(n,) smallest token margin of each sequence."""
    delta = np.einsum("nte,nq,eq->nt", problem.differences(tokens), problem.z, W)
    other = problem.visible & (np.arange(problem.T) != tokens[:, None])
    return np.asarray(np.where(other, delta, np.inf).min(-1))


def joint_path(
    problem: Problem,
    ratio: ArrayLike,
    radii: ArrayLike,
    tokens: ArrayLike | None = None,
    *,
    starts: int = 6,
    seed: int = 0,
    loss: str = "logistic",
) -> JointPath:
    r"""Follow the minimisers of the loss over :math:`\|v\|\le cR,\ \|W\|_F\le R` as R grows.

    Head and attention are minimised in turn until neither moves. The loss hardly depends on the attention
    once it has saturated, so the attention minimises the logarithm of what it alone loses, which is computed
    without cancellation. The search is local: the head starts at that of the selected tokens, attention at
    their SVM, where there is one, and at random points, and the best end is kept.

    Parameters
    ----------
    problem : Problem
        One problem, without batch axes. Its head is used only to choose tokens.
    ratio : float or array_like, shape (r,)
        The ratio c > 0 of the two radii, or one for each radius.
    radii : array_like, shape (r,)
        Norms of W, increasing.
    tokens : array_like of int, shape (n,), optional
        Tokens near which to start; ``problem.optimal`` by default.
    starts : int
        Number of random starts of attention at the smallest radius, 0 or more.
    seed : int
        Seed of the starts.
    loss : str
        "logistic" or "exponential".

    Returns
    -------
    JointPath
        Minimisers with their residuals.

    Raises
    ------
    InfeasibleError
        If no head separates the selected tokens.
    SolverError
        If a point is not stationary to 1e-6 radian.
    DataError, ShapeError
        If an argument is out of range.

    Notes
    -----
    *Max-Margin Token Selection* (2023), the regularisation path of joint training.
    """
    chosen = get_loss(loss)
    if chosen.name == "linear":
        raise DataError("loss must be 'logistic' or 'exponential': a linear loss has no label margin.")
    R, c = as_float(radii, "radii", ndim=1), as_float(ratio, "ratio")
    if c.shape not in ((), R.shape):
        raise ShapeError(f"ratio must be one number, or one for each of {R.size} radii; got shape {c.shape}.")
    if not (c > 0).all() or not R.size or not (R > 0).all() or not (np.diff(R) > 0).all():
        raise DataError(f"ratio must be > 0, and radii positive and increasing; got {ratio!r}, {R[:5]}.")
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 0:
        raise DataError(f"starts must be an integer >= 0, got {starts!r}.")
    if check_problem(problem).batch_shape:
        raise ShapeError(f"joint_path takes one problem, got a batch of shape {problem.batch_shape}.")
    path = _Path(problem, problem.checked_tokens(tokens), chosen)
    if not (problem.visible.sum(-1) > 1).any():
        raise DataError("Attention has nothing to separate: no sequence has two visible tokens.")
    head = svm.value_svm(problem, tokens).w
    rng = np.random.default_rng(seed)
    points = [rng.normal(size=path.shape) for _ in range(starts)]
    separating = svm.attention_svm(problem, path.tokens, errors="nan")
    if separating.solved and separating.value > 0:
        points.append(separating.W)
    r = c * R
    found = [path.solve(head, W, r[0], R[0]) for W in points]
    if not found:
        raise DataError("starts must be at least 1 where attention cannot separate the selected tokens.")
    rows = [min(found, key=lambda item: (round(path.total(item), 9), item[2]))]
    for of_head, of_weights in zip(r[1:], R[1:], strict=True):
        rows.append(path.solve(rows[-1][0], rows[-1][1], of_head, of_weights))
    v, W, excess, residual = (np.stack(column) for column in zip(*rows, strict=True))
    if not residual.max() <= STATIONARY:
        at = int(residual.argmax())
        raise SolverError(
            f"The point at radius {R[at]:g} is stationary to {residual[at]:.1e} radian only, "
            f"{STATIONARY:g} is asked for. Take smaller steps between the radii."
        )
    return JointPath(frozen(R), frozen(v), frozen(W), frozen(excess), frozen(residual))


class _Path:
    """Loss of one problem as a function of head and attention, in logarithms."""

    def __init__(self, problem: Problem, tokens: IntArray, loss: Loss) -> None:
        self.loss, self.tokens = loss, tokens
        self.y, self.X = to_tensor(problem.y), to_tensor(problem.X)
        self.z, self.delta = to_tensor(problem.z), to_tensor(problem.differences(tokens))
        self.hidden = to_tensor(np.where(problem.visible, 0.0, -np.inf))
        self.shape = (problem.key_dim, problem.query_dim)
        top = to_tensor(tokens).long()[:, None, None].expand(-1, 1, problem.d)
        self.top = self.y[:, None] * self.X.gather(1, top)[:, 0]
        self.lost = self.top[:, None] - self.y[:, None, None] * self.X  # signed value differences

    def errors(self, W: Tensor) -> Tensor:
        """(n, d) signed value that attention W loses against the selected tokens."""
        logits = -torch.einsum("nte,eq,nq->nt", self.delta, W.reshape(self.shape), self.z) + self.hidden
        return (torch.softmax(logits, -1)[..., None] * self.lost).sum(1)

    def log_loss(self, v: Tensor, errors: Tensor) -> Tensor:
        return torch.logsumexp(_log_loss(self.loss, (self.top - errors) @ v), 0)

    def log_excess(self, v: Tensor, W: Tensor) -> Tensor:
        margin, missing = self.top @ v, self.errors(W) @ v
        plain = self.loss.excess(margin.clamp_max(30.0), missing).log()
        # beyond 30 both losses are exponential to all digits, and do not underflow as logarithms
        far = missing + torch.log(-torch.expm1(-missing)) - margin
        return torch.logsumexp(torch.where(margin > 30.0, far, plain), 0)

    def total(self, point: tuple[FloatArray, FloatArray, float, float]) -> float:
        return float(self.log_loss(to_tensor(point[0]), self.errors(to_tensor(point[1].reshape(-1)))))

    def solve(
        self, v: FloatArray, W: FloatArray, r: float, R: float
    ) -> tuple[FloatArray, FloatArray, float, float]:
        head, attention = to_tensor(r * v / np.linalg.norm(v)), to_tensor(W.reshape(-1))
        best = (v, W, np.inf, np.inf)
        for _ in range(ROUNDS):
            attention = _on_sphere(lambda x: self.log_excess(head, x), attention, R)  # noqa: B023
            errors = self.errors(attention)
            head = _on_sphere(lambda x: self.log_loss(x, errors), head, r)  # noqa: B023
            residual = max(
                _angle(lambda x: self.log_loss(x, errors), head),  # noqa: B023
                _angle(lambda x: self.log_excess(head, x), attention),  # noqa: B023
            )
            if residual < best[3]:
                value = float(self.log_excess(head, attention))
                best = (head.numpy(), attention.numpy().reshape(self.shape), value, residual)
            if residual < STATIONARY / 10:
                break
        return best


def _on_sphere(f: Callable[[Tensor], Tensor], start: Tensor, radius: float) -> Tensor:
    """Local minimiser of f on a sphere around 0."""
    from scipy.optimize import minimize

    def value(x: FloatArray) -> tuple[float, Any]:
        free = torch.from_numpy(x.copy()).requires_grad_(True)
        out = f(radius * free / free.norm())
        (slope,) = torch.autograd.grad(out, free)
        return float(out.detach()), slope.numpy()

    found = minimize(value, (start / start.norm()).numpy(), jac=True, method="BFGS", options={"gtol": 1e-10})
    return torch.from_numpy(radius * found.x / np.linalg.norm(found.x))


def _angle(f: Callable[[Tensor], Tensor], at: Tensor) -> float:
    """Angle between a point and the negative gradient of f there."""
    free = at.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(f(free), free)
    if not slope.any():
        return 0.0  # every point is stationary
    a, b = at / at.norm(), -slope / slope.norm()
    return float(2.0 * torch.atan2((a - b).norm(), (a + b).norm()))
