r"""Newton's method on a ball, for many rows at once: the solver of regularisation paths.

Both paths live on a Euclidean ball. For the Frobenius norm the variables are W with :math:`\|W\|_F\le R`;
for the nuclear norm they are (K, Q) with :math:`\frac12(\|K\|_F^2+\|Q\|_F^2)\le R`, and W = K Q^T. The
objective is the logarithm of the excess loss (or the excess itself, once it is not positive).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmlib.arrays import BoolArray, FloatArray, IntArray

from ._path_objective import Objective

ITERATIONS = 200
EXACT = 1e-13  # sine of the angle between the gradient and the normal, at which a row is finished
GOOD = 1e-9  # ... with which it may end when rounding stops it
PATIENCE = 40  # iterations without halving the residual, after which a row is given up
INSIDE = 1e-11  # a point is on the sphere up to this share of the radius


class Rows(NamedTuple):
    """What is known at the present point of every row."""

    value: FloatArray  # (N,) log excess, or the excess in ``plain`` rows
    g: FloatArray  # (N, D)
    H: FloatArray  # (N, D, D)
    unit: FloatArray  # (N,) that g and H are to be multiplied by


class Cap(NamedTuple):
    """Part of a sphere around a direction: inner product with it at least ``level`` times the radius."""

    direction: FloatArray  # (B, D) unit vectors
    level: float


class Ball:
    """The minimisation over one ball for rows that belong to instances ``who`` of an objective."""

    def __init__(
        self,
        objective: Objective,
        who: IntArray,
        radius: FloatArray,
        width: int | None = None,
        cap: Cap | None = None,
    ) -> None:
        self.objective, self.who, self.width, self.cap = objective, who, width, cap
        self.radius = radius
        self.R = radius if width is None else np.sqrt(2.0 * radius)  # of the variables
        self.plain = np.zeros(len(who), dtype=bool)
        self.leave_plain = False  # whether rows that become plain are left to another objective
        self.patience = PATIENCE

    def matrix(self, x: FloatArray) -> FloatArray:
        """W of variables (N, D)."""
        a, b = self.objective.shape
        if self.width is None:
            return x.reshape(-1, a, b)
        K, Q = split(x, a, b, self.width)
        return np.asarray(K @ np.swapaxes(Q, -1, -2))

    def _value(self, rows: IntArray, x: FloatArray) -> FloatArray:
        e = self.objective(self.who[rows], self.matrix(x), 0)
        with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
            log = e.M + np.log(np.maximum(e.part, 0.0))
            return np.where(self.plain[rows], np.exp(np.minimum(e.M, 600.0)) * e.part, log)

    def _look(self, rows: IntArray, x: FloatArray) -> Rows:
        W = self.matrix(x)
        e = self.objective(self.who[rows], W, 2)
        self.plain[rows] |= ~(e.part > 0)
        plain = self.plain[rows]
        with np.errstate(divide="ignore", under="ignore"):
            scale = np.exp(np.minimum(e.M, 600.0))
            value = np.where(plain, scale * e.part, e.M + np.log(np.maximum(e.part, 1e-300)))
        # relative to e^M in plain rows too: a positive factor moves no minimiser, and no digit is lost
        by = np.where(plain, 1.0, 1.0 / np.where(plain, 1.0, e.part))[:, None, None]
        G, H = e.G * by, e.H * by
        unit = np.where(plain, scale, 1.0)
        flat = G.reshape(len(rows), -1)
        H = H - np.where(plain, 0.0, 1.0)[:, None, None] * flat[:, :, None] * flat[:, None]
        if self.width is None:
            return Rows(value, flat, H, unit)
        return Rows(value, *self._through_factors(x, G, H), unit)

    def _through_factors(self, x: FloatArray, G: FloatArray, H: FloatArray) -> tuple[FloatArray, FloatArray]:
        a, b = self.objective.shape
        m, N = int(self.width or 0), len(x)
        K, Q = split(x, a, b, m)
        g = np.concatenate([(G @ Q).reshape(N, -1), (np.swapaxes(G, -1, -2) @ K).reshape(N, -1)], -1)
        left, right = np.zeros((N, a, b, a, m)), np.zeros((N, a, b, b, m))  # derivatives of W in K, in Q
        for i in range(a):
            left[:, i, :, i, :] = Q
        for j in range(b):
            right[:, :, j, j, :] = K
        flat = np.concatenate([left.reshape(N, a, b, -1), right.reshape(N, a, b, -1)], -1)
        flat = flat.reshape(N, a * b, -1)
        out = np.swapaxes(flat, -1, -2) @ (H @ flat)
        cross = np.einsum("Nab,kl->Nakbl", G, np.eye(m)).reshape(N, a * m, b * m)
        out[:, : a * m, a * m :] += cross
        out[:, a * m :, : a * m] += np.swapaxes(cross, -1, -2)
        return g, out

    def _split_off(self, rows: IntArray, x: FloatArray, edge: BoolArray) -> FloatArray:
        """What a sphere constraint measures of x: all of it, or the part orthogonal to the cap's axis."""
        if self.cap is None:
            return x
        u = self.cap.direction[self.who[rows]]
        return x - np.where(edge, (x * u).sum(-1), 0.0)[:, None] * u

    def _back(self, rows: IntArray, x: FloatArray, onto: BoolArray) -> FloatArray:
        """Pull points onto the sphere (``onto``) or into the ball, then into the cap."""
        size = np.linalg.norm(x, axis=-1)
        R = self.R[rows]
        far = onto | (size > R)
        x = x * np.where(far, R / np.maximum(size, 1e-300), 1.0)[:, None]
        if self.cap is None:
            return x
        u, level = self.cap.direction[self.who[rows]], self.cap.level
        along = (x * u).sum(-1)
        rest = x - along[:, None] * u
        across = R * np.sqrt(1.0 - level**2) / np.maximum(np.linalg.norm(rest, axis=-1), 1e-300)
        edge = level * R[:, None] * u + across[:, None] * rest
        return np.where((along < level * R)[:, None], edge, x)

    def solve(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Minimise from points x (N, D) of the ball; points, values and the loop's own residuals."""
        N = len(x)
        residual = np.full(N, np.inf)
        value, stalled = np.full(N, np.inf), np.zeros(N, dtype=int)
        live = np.arange(N)
        x = self._back(live, x, np.zeros(N, dtype=bool))
        best = x.copy()
        for _ in range(ITERATIONS):
            here = self._look(live, x[live])
            step, slope, free, res = self._step(live, x[live], here)
            better = res < residual[live]
            stalled[live] = np.where(res < 0.5 * residual[live], 0, stalled[live] + 1)
            done = live[better]
            best[done], residual[done], value[done] = x[done], res[better], here.value[better]
            settled = (residual[live] < GOOD) & (stalled[live] > 3)
            keep = ~((res < EXACT) | settled | (stalled[live] > self.patience))
            if self.leave_plain:
                left = live[self.plain[live]]
                best[left] = x[left]
                keep &= ~self.plain[live]
            live, step, slope, free = live[keep], step[keep], slope[keep], free[keep]
            if not len(live):
                break
            x[live], moved = self._search(live, x[live], here.value[keep], step, slope, free)
            live = live[moved]
            if not len(live):
                break
        return best, value, residual

    def _step(
        self, rows: IntArray, x: FloatArray, here: Rows
    ) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
        R, g, H = self.R[rows], here.g, here.H
        edge = np.zeros(len(rows), dtype=bool)
        if self.cap is not None:
            u = self.cap.direction[self.who[rows]]
            tangent = g - ((g * x).sum(-1) / np.maximum((x * x).sum(-1), 1e-300))[:, None] * x
            at = (x * u).sum(-1) <= (self.cap.level + INSIDE) * R
            edge = at & ((tangent * u).sum(-1) > 0)  # descending would leave the cap
        part = self._split_off(rows, x, edge)
        square = np.maximum((part * part).sum(-1), 1e-300)  # 0 at the centre of the ball, where rows are free
        pull = -(g * part).sum(-1) / square
        free = (np.linalg.norm(x, axis=-1) < R * (1 - INSIDE)) | (pull <= 0)
        if self.cap is not None:
            free[:] = False
        pull = np.where(free, 0.0, pull)
        r = g + pull[:, None] * part
        normals = np.where(free, 0.0, 1.0)[:, None] * part / np.sqrt(square)[:, None]
        M = H + pull[:, None, None] * np.eye(x.shape[-1])
        M = _without(M, normals)
        if self.cap is not None:
            axis = np.where(edge, 1.0, 0.0)[:, None] * u
            r = r - (r * axis).sum(-1)[:, None] * axis
            M = _without(M, axis)
        size = np.linalg.norm(g, axis=-1)
        # inside the ball the gradient vanishes: compare it with the one on the sphere, of order 1 / radius
        against = np.where(free, np.maximum(np.abs(H).max((-2, -1)) * R, 1e-300), np.maximum(size, 1e-300))
        values, vectors = np.linalg.eigh(0.5 * (M + np.swapaxes(M, -1, -2)))
        curved = np.maximum(np.abs(values), 1e-12 * np.abs(values).max(-1, keepdims=True) + 1e-300)
        turned = np.einsum("nij,ni->nj", vectors, r)
        step = -np.einsum("nij,nj->ni", vectors, turned / curved)
        if self.cap is not None:  # from the edge, a step out of the cap is replaced by one along the gradient
            out = at & ~edge & ((step * u).sum(-1) < 0)
            step = np.where(out[:, None], -r / np.maximum(curved.max(-1), 1e-300)[:, None], step)
        top = np.maximum(np.abs(step).max(-1), 1e-300)
        length = top * np.linalg.norm(step / top[:, None], axis=-1)  # its square may overflow on a plateau
        step *= (np.minimum(length, 0.5 * R) / np.maximum(length, 1e-300))[:, None]
        slope = here.unit * (r * step).sum(-1)
        return step, slope, free, np.linalg.norm(r, axis=-1) / against

    def _search(
        self,
        rows: IntArray,
        x: FloatArray,
        value: FloatArray,
        step: FloatArray,
        slope: FloatArray,
        free: BoolArray,
    ) -> tuple[FloatArray, BoolArray]:
        """Halve steps until the objective falls; rows that cannot move are done."""
        out, moved = x.copy(), np.zeros(len(rows), dtype=bool)
        slack = 8e-16 * np.where(self.plain[rows], np.abs(value), 1.0 + np.abs(value))
        pending = np.arange(len(rows))
        for k in range(40):
            t = 0.5**k
            trial = self._back(rows[pending], x[pending] + t * step[pending], ~free[pending])
            new = self._value(rows[pending], trial)
            ok = new <= value[pending] + 1e-4 * t * slope[pending] + slack[pending]
            out[pending[ok]] = trial[ok]
            moved[pending[ok]] = True
            pending = pending[~ok]
            if not len(pending):
                break
        return out, moved


def split(x: FloatArray, a: int, b: int, m: int) -> tuple[FloatArray, FloatArray]:
    """Factors K (N, a, m) and Q (N, b, m) of variables (N, (a + b) m)."""
    return x[:, : a * m].reshape(-1, a, m), x[:, a * m :].reshape(-1, b, m)


def _without(M: FloatArray, n: FloatArray) -> FloatArray:
    """Restrict symmetric matrices to the complement of unit (or zero) vectors n."""
    Mn = (M @ n[..., None])[..., 0]
    nMn = (n * Mn).sum(-1)[:, None, None]
    outer = n[:, :, None] * Mn[:, None]
    return np.asarray(M - outer - np.swapaxes(outer, -1, -2) + nMn * n[:, :, None] * n[:, None])
