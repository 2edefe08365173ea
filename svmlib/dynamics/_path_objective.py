r"""The excess loss of one attention layer with its first two derivatives, however small it is.

Along a regularisation path the excess falls like :math:`e^{-R\Gamma}`, below every float64 for large R. So
everything here is divided by :math:`e^M`, the largest term of the excess, and only M is known as a
logarithm: value, gradient and Hessian of the *logarithm* of the excess then keep all their digits.

Shapes: B instances, n sequences, T tokens; keys are reduced to a dimensions, queries to b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from svmlib._pivoted import apply_head
from svmlib.arrays import FloatArray, IntArray
from svmlib.data import Problem

TIE = 1e-14  # scores nearer than this, relative to the largest, are the same number


class Slopes(NamedTuple):
    """A loss at margin f, reached from f + e: l(f) - l(f + e) over e, then |l'(f)| and l''(f)."""

    ratio: Callable[[FloatArray, FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]
    curvature: Callable[[FloatArray], FloatArray]


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _logistic_ratio(best: FloatArray, e: FloatArray) -> FloatArray:
    s, small = _sigmoid(-best), np.abs(e) < 1e-8
    x = np.where(small, 1.0, np.minimum(e, 30.0))
    near = np.log1p(s * np.expm1(x)) / x
    far = (np.logaddexp(0.0, e - best) - np.logaddexp(0.0, -best)) / np.where(e > 30.0, e, 1.0)
    return np.where(small, s * (1.0 + 0.5 * e * (1.0 - s)), np.where(e > 30.0, far, near))


def _exponential_ratio(best: FloatArray, e: FloatArray) -> FloatArray:
    small = np.abs(e) < 1e-8
    x = np.where(small, 1.0, e)
    return np.asarray(np.exp(-best) * np.where(small, 1.0 + 0.5 * e, np.expm1(x) / x))


def _log_ratio(best: FloatArray, e: FloatArray) -> FloatArray:
    share = e / best
    x = np.where(np.abs(share) < 1e-8, 1.0, share)
    near = 1.0 + 0.5 * share
    return np.asarray(np.where(np.abs(share) < 1e-8, near, -np.log1p(-x) / x) / best)


SLOPES = {
    "logistic": Slopes(_logistic_ratio, lambda f: _sigmoid(-f), lambda f: _sigmoid(f) * _sigmoid(-f)),
    "exponential": Slopes(_exponential_ratio, lambda f: np.exp(-f), lambda f: np.exp(-f)),
    "log": Slopes(_log_ratio, lambda f: 1.0 / f, lambda f: 1.0 / np.square(f)),
    "linear": Slopes(lambda best, e: np.ones_like(e), np.ones_like, np.zeros_like),
}


class Excess(NamedTuple):
    r"""Excess :math:`e^M\,` ``part`` with derivatives of ``part``'s scale, for every instance."""

    M: FloatArray  # (B,)
    part: FloatArray  # (B,): the excess is e^M times this
    G: FloatArray  # (B, a, b) gradient in W over e^M
    size: FloatArray  # (B,) what G would measure if its terms did not cancel; small where attention saturates
    H: FloatArray  # (B, a b, a b) Hessian over e^M, empty where it was not asked for


class Objective:
    """Excess of a flat batch of problems over the loss that its tokens alone would have.

    Keys and queries are reduced to the spans that the loss can see, and scaled to entries near 1. With a
    linear head the excess may be measured from other tokens, ``over``.
    """

    def __init__(self, problem: Problem, tokens: IntArray, loss: str, over: IntArray | None = None) -> None:
        self.loss, self.head, self.y = SLOPES[loss], problem.head, problem.y
        self.problem = problem
        self.visible = problem.visible
        delta = -problem.differences(tokens)  # keys minus the selected token's: no row for that one
        self.left, D, reach = _reduced(delta.reshape(len(delta), -1, delta.shape[-1]))
        self.right, self.z, size = _reduced(problem.z)
        self.D = D.reshape(*delta.shape[:-1], -1)
        self.unit = reach * size  # one unit of the scaled W is 1 / unit of the caller's
        self.lengths = np.linalg.norm(self.D, axis=-1) * np.linalg.norm(self.z, axis=-1)[..., None]
        if self.head is None:
            gamma = np.where(self.visible, problem.scores, 0.0)
            chosen = tokens if over is None else over
            self.best = np.take_along_axis(gamma, chosen[..., None], -1)[..., 0]
            gap = np.where(self.visible, self.best[..., None] - gamma, 0.0)
            floor = TIE * np.abs(gamma).max(-1, keepdims=True)
            self.score_gap = np.where(np.abs(gap) <= floor, 0.0, gap)
        else:
            values = problem.X
            self.chosen = np.take_along_axis(values, tokens[..., None, None], -2)
            self.away = np.where(self.visible[..., None], values - self.chosen, 0.0)
            everything = np.arange(len(values))
            value, slope = self._head(everything, self.chosen[..., 0, :], 1)
            self.best = self.y * value
            every = np.abs(self._head(everything, values, 0)[0] - value[..., None])
            first = np.abs(np.einsum("bntd,bnd->bnt", self.away, slope))
            self.reach = np.where(self.visible, every + first, 0.0).max(-1, keepdims=True)

    @property
    def shape(self) -> tuple[int, int]:
        """Reduced dimensions of keys and queries."""
        return int(self.D.shape[-1]), int(self.z.shape[-1])

    def reduced(self, W: FloatArray) -> FloatArray:
        """Scaled coordinates (B, a, b) of the caller's matrices (B, e, q)."""
        inner = np.swapaxes(self.left, -1, -2) @ W @ self.right
        return np.asarray(inner * self.unit[:, None, None])

    def expanded(self, W: FloatArray) -> FloatArray:
        """Invert :meth:`reduced`."""
        return np.asarray(self.left @ W @ np.swapaxes(self.right, -1, -2) / self.unit[:, None, None])

    def _head(self, rows: IntArray, u: FloatArray, order: int) -> list[FloatArray]:
        """Value, gradient and Hessian of the heads of the instances ``rows``, as far as asked for."""
        head = self.problem[rows].head if getattr(self.head, "batch_shape", ()) else self.head
        assert head is not None
        with torch.enable_grad():
            at = torch.tensor(u, requires_grad=order > 0)
            value = apply_head(head, at)
            out = [value.detach().numpy()]
            if order:
                (slope,) = torch.autograd.grad(value.sum(), at, create_graph=order > 1)
                out.append(slope.detach().numpy())
            if order > 1:
                hessian = []
                for k in range(u.shape[-1]):
                    row = torch.zeros_like(at)
                    if slope.requires_grad:  # a piecewise linear head has none
                        (got,) = torch.autograd.grad(
                            slope[..., k].sum(), at, retain_graph=True, allow_unused=True
                        )
                        row = got if got is not None else row
                    hessian.append(row.detach().numpy())
                out.append(np.stack(hessian, -2))
        return out

    def _scores(
        self, rows: IntArray, log_s: FloatArray, order: int
    ) -> tuple[FloatArray, FloatArray, FloatArray, Any]:
        """Score gaps g, exponent M, missing score over e^M, and curvature of the head in the logits."""
        if self.head is None:
            g = self.score_gap[rows]
            M = _exponent(log_s, g)
            # only tokens of g = 0 reach the limit of the exponent
            return g, M, (np.exp(np.minimum(log_s - M[:, None, None], 690.0)) * g).sum(-1), None
        s = np.exp(log_s)
        y, away, chosen = self.y[rows], self.away[rows], self.chosen[rows]
        moved = (s[..., None] * away).sum(-2)
        _, slope, *curvature = self._head(rows, chosen[..., 0, :] + moved, 2 if order > 1 else 1)
        g = -y[..., None] * np.einsum("bntd,bnd->bnt", away, slope)
        M = _exponent(log_s, g)
        fine = (np.exp(np.minimum(log_s - M[:, None, None], 690.0))[..., None] * away).sum(-2)
        # Gauss-Legendre from the token to the output: right where a difference of values would cancel
        nodes, weights = np.polynomial.legendre.leggauss(5)
        along = chosen[..., 0, :][:, None] + 0.5 * (1.0 + nodes[:, None, None]) * moved[:, None]
        missing = -0.5 * y * np.einsum("k,bknd,bnd->bn", weights, self._head(rows, along, 1)[1], fine)
        direct = self.best[rows] - y * self._head(rows, chosen[..., 0, :] + moved, 0)[0]
        far = s.sum(-1) - np.take_along_axis(s, s.argmax(-1)[..., None], -1)[..., 0] > 0.02
        far |= np.linalg.norm(moved, axis=-1) > 0.05 * np.linalg.norm(away, axis=-1).max(-1)
        missing = np.where(far, direct * np.exp(np.minimum(-M, 600.0))[:, None], missing)
        bend = None
        if order > 1:
            spread = s[..., None] * (away - moved[..., None, :])
            spread *= np.exp(-0.5 * M)[:, None, None, None]
            bend = -y[..., None, None] * (spread @ curvature[0] @ np.swapaxes(spread, -1, -2))
        return g, M, missing, bend

    def __call__(self, rows: IntArray, W: FloatArray, order: int) -> Excess:
        """Evaluate at scaled matrices (len(rows), a, b) of the instances ``rows``; order 0, 1 or 2."""
        D, z = self.D[rows], self.z[rows]
        B, n, T, a = D.shape
        with np.errstate(under="ignore", divide="ignore"):
            logit = np.einsum("bnta,bna->bnt", D, z @ np.swapaxes(W, -1, -2))
            logit = np.where(self.visible[rows], logit, -np.inf)
            shifted = logit - logit.max(-1, keepdims=True)
            log_s = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
            g, M, missing, bend = self._scores(rows, log_s, order)
            scale = np.exp(np.minimum(M, 600.0))[:, None]
            e = missing * scale
            ratio = self.loss.ratio(self.best[rows], e)
            part = (missing * ratio).mean(-1)
            empty = np.empty((B, 0, 0))
            if order == 0:
                return Excess(M, part, empty, np.empty(0), empty)
            # s_t (g_t - mean) as a sum over pairs: nothing cancels at a token with probability 1
            pair = np.exp(np.minimum(log_s[..., None] + log_s[..., None, :] - M[:, None, None, None], 690.0))
            c = (pair * (g[..., None] - g[..., None, :])).sum(-1)
            f = self.best[rows] - e
            slope = self.loss.slope(f)[..., None] / n
            weight = slope * c
            G = np.einsum("bnta,bnt,bnq->baq", D, weight, z)
            size = (np.abs(weight) * self.lengths[rows]).sum((-2, -1))
            if self.head is not None:  # where composing pays, the terms of G vanish one by one
                open_ = np.exp(np.minimum(log_s + np.log1p(-np.exp(log_s)) - M[:, None, None], 690.0))
                size = size + (slope * self.reach[rows] * open_ * self.lengths[rows]).sum((-2, -1))
            if order == 1:
                return Excess(M, part, G, size, empty)
            s = np.exp(log_s)
            inner = -s[..., None] * c[..., None, :]
            inner = inner + np.swapaxes(inner, -1, -2) + c[..., None] * np.eye(T)
            if bend is not None:
                inner = inner + bend
            bent = self.loss.curvature(f)[..., None, None] / n * scale[..., None, None]
            inner = slope[..., None] * inner + bent * c[..., None] * c[..., None, :]
            P = np.einsum("bnta,bntu,bnuc->bnac", D, inner, D, optimize=True).reshape(B, n, a * a)
            zz = (z[..., None] * z[..., None, :]).reshape(B, n, -1)
            H = (np.swapaxes(P, -1, -2) @ zz).reshape(B, a, a, z.shape[-1], z.shape[-1])
            H = H.transpose(0, 1, 3, 2, 4).reshape(B, a * z.shape[-1], -1)
        return Excess(M, part, G, size, H)


def _exponent(log_s: FloatArray, g: FloatArray) -> FloatArray:
    terms = np.where(g != 0, log_s + np.log(np.abs(np.where(g != 0, g, 1.0))), -np.inf).max((-2, -1))
    return np.where(np.isfinite(terms), terms, 0.0)


def _reduced(rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Orthonormal basis (B, e, a) of the rows' span, the rows in it at scale 1, and that scale."""
    top = np.abs(rows).max((-2, -1))
    top = np.where(top > 0, top, 1.0)
    unit = rows / top[:, None, None]
    count = min(rows.shape[-2:])
    if count == rows.shape[-1]:
        basis = np.broadcast_to(np.eye(count), (len(rows), count, count))
        return basis, unit, top
    vt = np.linalg.svd(unit, full_matrices=False)[2]
    basis = np.swapaxes(vt, -1, -2)
    return basis, unit @ basis, top
