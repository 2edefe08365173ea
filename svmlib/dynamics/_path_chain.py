"""From radius to radius: starts, continuation and certificates of regularisation paths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmlib import norms, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.errors import SolverError

from ._path_newton import PATIENCE, Ball, Cap, split
from ._path_objective import Objective

CERTIFIED = 1e-8
"""Largest ``Path.stationarity`` with which a point is handed out."""

SOLUTION = 1  # position of the SVM among the starts; the point of the smaller radius is first
ON_THE_WAY = 8  # patience of Newton's method between the radii that were asked for
ON_SPHERE = 1e-9  # a norm within this share of the radius is equal to it


class Point(NamedTuple):
    """The best point of one radius for each of B instances, as :class:`Path` has it."""

    W: FloatArray
    K: FloatArray
    Q: FloatArray
    log_gap: FloatArray
    excess: FloatArray
    stationarity: FloatArray
    interior: BoolArray
    edge: BoolArray
    attempts: FloatArray
    start: IntArray


class Certified(NamedTuple):
    """Where rows ended, and how far from stationary."""

    x: FloatArray
    value: FloatArray
    rest: FloatArray
    interior: BoolArray
    edge: BoolArray


def stages(R: FloatArray, unit: FloatArray) -> list[tuple[float, bool]]:
    """Radii from one where logits are of order 1, each at most twice the one before."""
    at = min(float(R[0]), float(2.0 / unit.max()))
    out: list[tuple[float, bool]] = []
    for radius in R:
        while 2.0 * at < radius:
            out.append((at, False))
            at *= 2.0
        at = float(radius)
        out.append((at, True))
    return out


class Chain:
    """Rows that are followed from radius to radius: the best point so far, and random starts."""

    def __init__(
        self,
        objective: Objective,
        solution: svm.AttentionSVM,
        norm: str,
        cone: float | None,
        count: int,
        seed: int,
    ) -> None:
        self.objective, self.norm, self.count = objective, norm, count
        self.lowest: Objective | None = None  # where a loss below that of the tokens is measured from
        self.above: FloatArray = np.zeros(0)
        a, b = objective.shape
        self.B, self.width = len(objective.unit), min(a, b) if norm == "nuc" else None
        usable = np.where(solution.solved[:, None, None], solution.W, 0.0)
        self.solution = _unit(objective.reduced(usable))
        self.solved = solution.solved & (np.abs(self.solution).max((-2, -1)) > 0)
        self.cap = None if cone is None else Cap(self.solution.reshape(self.B, -1), 1.0 - cone)
        rng = [np.random.default_rng((seed, k)) for k in range(self.B)]
        drawn = np.stack([r.normal(size=(count, a, b)) for r in rng])
        if self.cap is not None:  # random starts within the cone
            drawn = _unit(drawn) * np.sqrt(float(cone or 0.0)) + self.solution[:, None]
        zero = np.zeros((self.B, a, b))
        first = -objective(np.arange(self.B), zero, 1).G
        flat = ~np.abs(first).any(axis=(-2, -1))  # as at a saddle
        first[flat] = rng[0].normal(size=(a, b))
        if self.cap is not None:
            first = self.solution
        self.rows = np.concatenate([_unit(first)[:, None], _unit(drawn)], axis=1)  # (B, 1 + count, a, b)
        self.inner = np.zeros(self.rows.shape[:2], dtype=bool)  # minima inside a ball stay where they are
        self.last: tuple[FloatArray, FloatArray, BoolArray] | None = None  # W, value and plain of the best

    def advance(self, radius: float, asked: bool) -> Point:
        B, (a, b) = self.B, self.objective.shape
        begin, inner = self.rows, self.inner
        if asked:
            own = np.where(self.solved[:, None, None], self.solution, begin[:, 0])
            begin = np.concatenate([begin[:, :1], own[:, None], begin[:, 1:]], axis=1)
            same = inner[:, :1] & ~self.solved[:, None]
            inner = np.concatenate([inner[:, :1], same, inner[:, 1:]], axis=1)
        S = begin.shape[1]
        who = np.repeat(np.arange(B), S)
        R = radius * self.objective.unit[who]
        ball = Ball(self.objective, who, R, self.width, self.cap)
        if not asked:  # a point on the way is a start for the next radius and need not be certified
            ball.patience = ON_THE_WAY
        found = self._certified(ball, begin.reshape(B * S, a, b), inner.ravel())
        self._keep_last(ball, found, B, S)
        x, value, rest, inside, edge = found
        good = rest <= CERTIFIED
        if asked and self.cap is None:  # nothing but plateaus: to first order the loss is constant there
            none = np.flatnonzero(~np.repeat(good.reshape(B, S).any(-1), S))
            e = self.objective(who[none], ball.matrix(x[none]), 1)
            rest[none] = np.minimum(
                rest[none],
                R[none] * norms.get(self.norm).dual(e.G) / np.maximum(np.abs(e.part), 1e-300),
            )
            good = rest <= CERTIFIED
        order = np.where(ball.plain, -np.inf, value)
        order[~good] = np.inf
        order, level = order.reshape(B, S), np.where(ball.plain, value, 0.0).reshape(B, S)
        lowest = order.min(-1, keepdims=True)
        # rounding must not decide: the first start that is as good as the best one
        near = np.where(np.isfinite(lowest), 1e-11 * (1.0 + np.abs(lowest)), 0.0)
        tied = (order <= lowest + near) | (order == lowest)
        tied &= level <= np.where(tied, level, np.inf).min(-1, keepdims=True) + 1e-14
        winner = tied.argmax(-1)
        W = ball.matrix(x)
        if asked and not good.reshape(B, S).any(-1).all():
            bad = int(np.flatnonzero(~good.reshape(B, S).any(-1))[0])
            raise SolverError(
                f"At radius {radius:g} no start reached a stationary point of instance {bad}: the best ended "
                f"at {rest.reshape(B, S)[bad].min():.1e}, wanted {CERTIFIED:.0e}. {self._advice(radius)}"
            )
        at = np.arange(B) * S + winner
        self._remember(W[at], value[at], ball.plain[at], rest[at])
        others = np.delete(np.arange(1, S), SOLUTION - 1) if asked else np.arange(1, S)
        self.rows = np.concatenate([W[at][:, None], W.reshape(B, S, a, b)[:, others]], axis=1)
        inner = inside & (self.cap is None)
        self.inner = np.concatenate([inner[at][:, None], inner.reshape(B, S)[:, others]], axis=1)
        attempts = np.where(good & ~ball.plain, value, np.nan).reshape(B, S)
        log_gap = np.where(ball.plain, np.nan, value)[at]
        excess = np.where(ball.plain, value, np.exp(np.minimum(value, 700.0)))[at]
        outer = self.objective.expanded(W[at])
        K, Q = self._factors(x[at]) if self.width is not None else (outer[..., :0], outer[..., :0])
        return Point(outer, K, Q, log_gap, excess, rest[at], inside[at], edge[at], attempts, winner)

    def _advice(self, radius: float) -> str:
        logit = radius * float(self.objective.unit.max())
        if logit > 1e8:
            return (
                f"Logits grow up to {logit:.0e} there, too large for margins of order 1 to be told apart in "
                "double precision: stop at a smaller radius, the direction hardly changes beyond."
            )
        return "Try more starts, smaller radii in between, or a smoother head."

    def _remember(self, W: FloatArray, value: FloatArray, plain: BoolArray, rest: FloatArray) -> None:
        """Keep the best point of all radii so far; one that is no minimum yet counts too."""
        if self.last is None:
            self.last = W, value, plain
            return
        old, least, low = self.last
        better = np.where(plain == low, value <= least, plain)
        self.last = (
            np.where(better[:, None, None], W, old),
            np.where(better, value, least),
            np.where(better, plain, low),
        )

    def _keep_last(self, ball: Ball, found: Certified, B: int, S: int) -> None:
        """Restart the first row inside the ball, where all starts end above the smaller ball's best point."""
        if self.last is None or self.cap is not None:
            return
        W, least, plain = self.last
        usable = (found.rest <= CERTIFIED) & (ball.plain | ~np.repeat(plain, S))
        value = np.where(ball.plain & ~np.repeat(plain, S), -np.inf, found.value)
        lowest = np.where(usable, value, np.inf).reshape(B, S).min(-1)
        lost = np.flatnonzero(lowest > least + 1e-10 * (1.0 + np.abs(least)))
        if not len(lost):
            return
        first = lost * S
        again = Ball(self.objective, lost, ball.radius[first], self.width)
        again.patience = 3 * PATIENCE
        inner = np.ones(len(lost), dtype=bool)
        for kept, new in zip(found, self._certified(again, W[lost], inner, least=1e-6), strict=True):
            kept[first] = new
        ball.plain[first] = again.plain

    def _factors(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        K, Q = split(x, *self.objective.shape, int(self.width or 0))
        by = 1.0 / np.sqrt(self.objective.unit)[:, None, None]
        return self.objective.left @ K * by, self.objective.right @ Q * by

    def _certified(self, ball: Ball, W: FloatArray, inner: BoolArray, least: float = 1e-3) -> Certified:
        R = ball.radius
        x = self._variables(W, np.where(inner, norms.get(self.norm)(W), R), least)
        ball.leave_plain = self.lowest is not None
        x, value, _ = ball.solve(x)
        low = np.flatnonzero(ball.plain)
        if self.lowest is not None and len(
            low
        ):  # the loss is below that of the tokens: count from the optimum
            again = Ball(self.lowest, ball.who[low], R[low], self.width, self.cap)
            again.patience = ball.patience
            x[low], logs, _ = again.solve(x[low])
            value[low] = np.exp(logs) + self.above[ball.who[low]]
        rest, inside, edge = self._certificate(ball, x, R)
        for _ in range(5):  # a point that is stationary in (K, Q) and not in W has a missing direction
            stuck = np.flatnonzero(~(rest <= CERTIFIED))
            if self.width is None or not len(stuck):
                break
            part = ball.matrix(x[stuck])
            who = ball.who[stuck]
            G = self.objective(who, part, 1).G
            # from a point that must not be lost, a change by a few logits only
            share = np.where(inner[stuck], np.minimum(0.2, 2.0 / R[stuck]), 0.2)[:, None, None]
            mixed = (1.0 - share) * part + share * R[stuck, None, None] * norms.NUC.steepest(-G)
            again = Ball(self.objective, who, R[stuck], self.width)
            again.plain, again.patience = ball.plain[stuck], ball.patience
            new, reached, _ = again.solve(self._variables(mixed, R[stuck], 10.0 * least))
            lower = ~inner[stuck] | np.where(
                again.plain == ball.plain[stuck], reached <= value[stuck], again.plain
            )
            stuck, new, reached = stuck[lower], new[lower], reached[lower]
            ball.plain[stuck] = again.plain[lower]
            x[stuck], value[stuck] = new, reached
            again = Ball(self.objective, ball.who[stuck], R[stuck], self.width)
            rest[stuck], inside[stuck], edge[stuck] = self._certificate(again, new, R[stuck])
        return Certified(x, value, rest, inside, edge)

    def _variables(self, W: FloatArray, R: FloatArray, least: float) -> FloatArray:
        """Variables on the sphere; factors get singular values of at least a share of the largest."""
        if self.width is None:
            return np.asarray(_unit(W) * R[:, None, None]).reshape(len(W), -1)
        u, s, vt = np.linalg.svd(W, full_matrices=False)
        # a change by about one logit, however large W is
        s = np.maximum(s, least * s[:, :1] / np.maximum(1.0, 0.1 * R)[:, None])
        root = np.sqrt(s * (R / np.maximum(s.sum(-1), 1e-300))[:, None])[:, None]
        K, Q = u * root, np.swapaxes(vt, -1, -2) * root
        return np.concatenate([K.reshape(len(W), -1), Q.reshape(len(W), -1)], axis=-1)

    def _certificate(
        self, ball: Ball, x: FloatArray, R: FloatArray
    ) -> tuple[FloatArray, BoolArray, BoolArray]:
        W = ball.matrix(x)
        e = self.objective(ball.who, W, 1)
        own = norms.get(self.norm)
        dual = own.dual(e.G)
        inside = own(W) < R * (1.0 - ON_SPHERE)
        with np.errstate(divide="ignore", invalid="ignore"):
            u, w = -e.G / dual[:, None, None], W / R[:, None, None]
            if self.norm == "fro":  # 1 - <u, w> without cancellation
                on = 0.5 * ((u - w) ** 2).sum((-2, -1)) + 0.5 * (1.0 - (w * w).sum((-2, -1)))
            else:
                on = 1.0 - (u * w).sum((-2, -1))
            # on a plateau, where attention is saturated, the terms are small too: it is not stationary
            within = dual * np.maximum(own(W), 1.0) / e.size
        edge = np.zeros(len(x), dtype=bool)
        if self.cap is not None:
            axis = self.cap.direction[ball.who].reshape(W.shape)
            along = (axis * w).sum((-2, -1))
            edge = along <= self.cap.level + 1e-9
            tilt = _unit(axis - along[:, None, None] * w)
            outward = np.minimum((u * tilt).sum((-2, -1)), 0.0) * edge
            left = u - outward[:, None, None] * tilt
            forward = (left * w).sum((-2, -1))
            left = left - forward[:, None, None] * w
            within = on = 0.5 * (left**2).sum((-2, -1))
            inside = forward < 0
        rest = np.where(inside, within, np.maximum(on, 0.0))
        return np.where(np.isfinite(rest), rest, np.inf), inside, edge


def _unit(A: FloatArray) -> FloatArray:
    size = np.linalg.norm(A, axis=(-2, -1), keepdims=True)
    return np.asarray(A / np.where(size > 0, size, 1.0))
