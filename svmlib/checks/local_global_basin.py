"""Claim of the chapter on local and global directions: how wide a cone of starts keeps a selection."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from svmlib import compare, data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct

from .descent_local import _aperture, _beside
from .local_global import PAGE, better_tokens, features
from .registry import Measured, claim


def safe_angle(problem: data.Problem, solution: svm.AttentionSVM) -> tuple[float, FloatArray]:
    """Angle from the solution to the nearest W at which a better token has the smallest margin.

    Parameters
    ----------
    problem : Problem
        One problem with a linear head, no batch.
    solution : AttentionSVM
        Its Frobenius SVM for a locally optimal selection.

    Returns
    -------
    angle : float
        In radians; pi / 2 where no better token exists or the cone of such W lies that far.
    nearest : ndarray, shape (d, d)
        Unit matrix there; zeros where there is none.
    """
    tokens = solution.tokens
    A = features(problem, tokens).reshape(problem.n, problem.T, -1)
    better = better_tokens(problem, tokens)
    selected = np.arange(problem.T) == tokens[:, None]
    worse = A[~better & ~selected]
    unit = solution.W.ravel() * solution.margin
    best = np.pi / 2, np.zeros_like(solution.W)
    for i, t in np.argwhere(better):
        # the cone {W: <A_j - A_b, W> >= 0 for all worse j}; projecting on it is a least-squares problem
        normals = worse - A[i, t]
        y, _ = nnls(-normals.T, unit, maxiter=100 * len(normals))
        near = unit + normals.T @ y
        size = float(np.linalg.norm(near))
        angle = float(np.arctan2(np.linalg.norm(unit - near), size))
        if size > 1e-9 and angle < best[0]:
            best = angle, (near / size).reshape(solution.W.shape)
    return best


class Basins(NamedTuple):
    """Selections where runs from zero end that are not the optimal ones, and the cones around them."""

    problem: data.Problem
    """(runs) instances."""
    solution: svm.AttentionSVM
    """Their selections' solutions."""
    angle: FloatArray
    """(runs,) angles, radians."""
    nearest: FloatArray
    """(runs, d, d) nearest unit matrix at which a better token has the smallest margin."""
    aperture: FloatArray
    r"""(runs,) angle of the cone that the proof of local convergence asks for, arccos(1 - mu)."""


@cache
def basins(count: int) -> Basins:
    """Find local, not global ends of runs from zero in ``count`` instances with n = 6, T = 8, d = 10."""
    p = data.random_problem(n=6, T=8, d=10, batch=count)
    end = dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.4), 2000, record=1).selected
    s = svm.attention_svm(p, end)
    use = selection.locally_optimal(p, s) & (end != p.optimal).any(-1)
    p, tokens = p[use], end[use]
    angles, near, mu = [], [], []
    for b in range(len(tokens)):
        one = svm.attention_svm(p[b], tokens[b])
        angle, W = safe_angle(p[b], one)
        angles.append(angle)
        near.append(W)
        mu.append(_aperture(p[b], one))
    return Basins(
        p, svm.attention_svm(p, tokens), np.array(angles), np.array(near), np.arccos(1 - np.array(mu))
    )


def kept(problem: data.Problem, tokens: IntArray, W: FloatArray) -> BoolArray:
    """Train from W until the fate is settled: who selects the tokens at the end.

    The steps of length 0.4 add up to 150, and 2 more for each unit of the largest norm: a run that walks back
    needs a time proportional to it.
    """
    size = float(np.linalg.norm(W, axis=(-2, -1)).max())
    run = dynamics.train(problem, Direct(W), dynamics.normalized(0.4), int(375 + 5 * size), record=1)
    return np.asarray((run.selected == tokens).all(-1))


def towards(start: FloatArray, target: FloatArray, angle: FloatArray, size: float) -> FloatArray:
    """Matrices of a norm at given angles from ``start`` in the plane that it spans with ``target``."""
    a = start / np.linalg.norm(start, axis=(-2, -1), keepdims=True)
    off = target - (target * a).sum((-2, -1), keepdims=True) * a
    off = off / np.linalg.norm(off, axis=(-2, -1), keepdims=True)
    theta = np.asarray(angle)[..., None, None]
    return np.asarray(size * (np.cos(theta) * a + np.sin(theta) * off))


def directed_shares(b: Basins, factors: tuple[float, ...], size: float) -> FloatArray:
    """Share of runs that keep their selection, started towards the nearest bad cone, for each factor."""
    starts = towards(b.solution.W, b.nearest, np.multiply.outer(factors, b.angle), size)
    return np.asarray(kept(b.problem.expand(len(factors)), b.solution.tokens, starts).mean(-1))


def random_shares(
    problem: data.Problem,
    solution: svm.AttentionSVM,
    degrees: tuple[float, ...],
    size: float,
    copies: int = 4,
) -> FloatArray:
    """Share of runs that keep their selection, started at angles from the solution in random directions."""
    W = np.broadcast_to(solution.W, (copies, *solution.W.shape))
    starts = [_beside(W, size, float(np.cos(np.radians(a))), seed=int(a)) for a in degrees]
    p = problem.expand(len(degrees), copies)
    return np.asarray(kept(p, solution.tokens, np.stack(starts)).mean((-2, -1)))


@claim(
    "prop-local-basin",
    title="The angle within which a worse token has the smallest margin",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, local but not global ends of runs from zero; starts of norm 160",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def basin(trials: int) -> list[Measured]:
    """Check the angle at random and at the nearest matrices, then train from inside and from outside."""
    b = basins(trials)
    bad, tie = 0, []
    rng = np.random.default_rng(0)
    for k in range(len(b.angle)):
        p, tokens = b.problem[k], b.solution.tokens[k]
        better = better_tokens(p, tokens)
        noise = rng.normal(size=(200, p.d, p.d))
        inside = towards(b.solution.W[k], noise, np.full(200, 0.999 * b.angle[k]), 1.0)
        m = compare.margins(
            np.concatenate([inside, b.nearest[k : k + 1]]), p.keys[None], p.z[None], tokens[None]
        )
        least_better = np.where(better, m, np.inf).min((-2, -1))
        least_worse = np.where(better, np.inf, m).min((-2, -1))
        bad += int((least_better[:-1] <= least_worse[:-1]).sum())
        tie.append(abs(least_better[-1] / least_worse[-1] - 1.0))
    on = compare.angle(b.nearest, b.solution.W)
    inner, outer = directed_shares(b, (0.9, 1.5), 160.0)
    return [
        Measured(
            "matrices inside at which a better token has the smallest margin",
            bad,
            "==",
            0,
            f"{200 * len(tie)}",
        ),
        Measured("relative difference of the two margins at the nearest matrix", max(tie), "<=", 1e-6),
        Measured(
            "angle of the nearest matrix over the predicted one, error",
            np.abs(on / b.angle - 1).max(),
            "<=",
            1e-6,
        ),
        Measured("median safe angle, degrees", np.median(np.degrees(b.angle)), "in", (2.0, 15.0)),
        Measured("largest angle of the proof's cone over it", (b.aperture / b.angle).max(), "<=", 0.05),
        Measured(
            "starts at 0.9 of the angle that keep the tokens", inner, "==", 1.0, f"{len(tie)} selections"
        ),
        Measured(
            "starts at 1.5 of the angle that keep them", outer, "<=", 0.3, "nearest direction", breaks=True
        ),
    ]
