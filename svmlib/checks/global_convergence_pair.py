"""Claim of the chapter on global convergence: two sequences of two tokens, solved."""

from __future__ import annotations

import numpy as np

from svmlib import data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Direct
from svmlib.experiments.wrong_limits import p2_wrong_limit, separatrix, two_sequences

from .global_convergence import OWN, PAGE
from .registry import Measured, claim


def gram(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers a, b, c of the theorem for differences (..., e)."""
    return (first**2).sum(-1), (second**2).sum(-1), -(first * second).sum(-1)


def trapped(first: FloatArray, second: FloatArray, p: FloatArray) -> BoolArray:
    """Whether starts p lie in the set from which the theorem proves a wrong limit, linear loss, c > b."""
    a, b, c = gram(first, second)
    u, w = (p * first).sum(-1), (p * second).sum(-1)
    return np.asarray((u < 0) & (w >= 0) & ((c - b) * np.cosh(u / 2) ** 2 > (a - c) * np.cosh(w / 2) ** 2))


def beside(border: FloatArray, p: FloatArray) -> FloatArray:
    """Height of points p above the border; below it sequence 1 keeps its worse token."""
    order = border[:, 0].argsort()
    return np.asarray(p[..., 1] - np.interp(p[..., 0], border[order, 0], border[order, 1]))


def _beside_the_border(loss: str, offset: float = 0.1) -> float:
    """Share of 16 starts just above and below the border that end on the predicted side, steps of 0.02."""
    border = separatrix(loss=loss)
    near = border[np.abs(border).max(-1) < 7.0]
    some = near[np.linspace(0, len(near) - 1, 8).astype(int)]
    up = np.array([0.0, offset])
    start = np.concatenate([some + up, some - up])
    many, rule = two_sequences().expand(len(start)), dynamics.normalized(0.02)
    run = dynamics.train(many, Direct(start[..., None]), rule, 4000, record=[4000], loss=loss)
    return float(((run.selected[:, 0] != 0) == (np.arange(16) >= 8)).mean())


def _differences(trials: int, contrary: bool) -> tuple[FloatArray, FloatArray]:
    """Random pairs of differences in the plane with c > b, or with c at most 0.95 min(a, b)."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 400 * trials, 2))
    a, b, c = gram(first, second)
    low, high = np.minimum(a, b), a * b - c * c
    keep = (c > 1.1 * b) if contrary else (c < 0.95 * low) & (c > 0.3 * low)
    keep &= (high > 0.1 * a * b) & (low > 0.1)
    return first[keep][:trials], second[keep][:trials]


def _wrong(
    first: FloatArray, second: FloatArray, p0: FloatArray, steps: int = 2000
) -> tuple[BoolArray, FloatArray]:
    """Whether a worse token is selected at the end, linear loss, and the final p (instances, starts, e)."""
    many = two_sequences(first[:, None], second[:, None])
    spread = data.Problem(
        np.broadcast_to(many.X, (*p0.shape[:-1], *many.X.shape[-3:])),
        many.z,
        many.y,
        many.v,
        keys=np.broadcast_to(many.keys, (*p0.shape[:-1], *many.keys.shape[-3:])),
    )
    run = dynamics.train(
        spread, Direct(p0[..., None]), dynamics.normalized(0.1), steps, record=[steps], loss="linear"
    )
    return (run.selected != 0).any(-1), run.W[..., -1, :, 0]


@claim(
    "thm-two-by-two",
    title="Two sequences of two tokens: when a wrong limit exists",
    source=OWN,
    chapter=PAGE,
    scope="random differences in the plane, linear loss, 2000 normalised steps of 0.1, starts in a square of "
    "half width 5; the differences (−2, 1) and (1, 0), 289 starts in a square of half width 8, and 16 starts "
    "beside the border with 4000 steps of 0.02",
    seeds="0",
    trials=(20, 10),
)
def two_by_two(trials: int) -> list[Measured]:
    """Run from random starts where the theorem says that all are global, and where some are not."""
    rng = np.random.default_rng(1)
    tame, wild = _differences(trials, False), _differences(trials, True)
    p0 = rng.uniform(-5.0, 5.0, size=(trials, 12, 2))
    fine = _wrong(*tame, p0[: len(tame[0])])[0]
    one, two = (d[:, None] for d in wild)
    inside = trapped(one, two, p0)
    safe = ((one + two) * p0).sum(-1) > 0
    lost, end = _wrong(*wild, p0)
    cosine = (end * two).sum(-1) / np.linalg.norm(end, axis=-1) / np.linalg.norm(two, axis=-1)
    p = two_sequences()
    solution, other = svm.attention_svm(p), svm.attention_svm(p, [1, 0])
    grid = {loss: p2_wrong_limit(loss=loss, steps=2000) for loss in ("linear", "logistic")}
    aside = {loss: beside(r["border"], r["start"]) for loss, r in grid.items()}
    agree = [(r["wrong"] == (aside[loss] < 0))[np.abs(aside[loss]) > 0.2].mean() for loss, r in grid.items()]
    r = grid["logistic"]
    corners = np.array([[4.0, -4.0], [8.0, -4.0], [12.0, -4.0]])
    scan = np.array([0.8, 0.9, 0.95, 1.05, 1.1, 1.2])
    line = np.stack([-scan, np.ones(6)], axis=-1), np.broadcast_to([1.0, 0.0], (6, 2))
    threshold = _wrong(*line, np.broadcast_to(corners, (6, 3, 2)), 4000)[0]
    from_zero = grid["logistic"]["start"].tolist().index([0.0, 0.0])
    from_four = grid["logistic"]["start"].tolist().index([4.0, 0.0])
    return [
        Measured(r"$c\le\min(a,b)$: share of global runs", (~fine).mean(), "==", 1.0, f"{fine.size} runs"),
        Measured(
            "$c>b$, starts in the proved set: share with a wrong limit",
            lost[inside].mean(),
            "==",
            1.0,
            f"{inside.sum()} runs",
        ),
        Measured(r"from there: smallest correlation with $\Delta_2$", cosine[inside].min(), ">=", 0.995),
        Measured(
            "$c>b$, starts with $u_1+u_2>0$: share of global runs",
            (~lost[safe]).mean(),
            "==",
            1.0,
            f"{safe.sum()} runs",
        ),
        Measured(
            "(−2, 1), (1, 0): error of the solutions (1, 3) and (1, 0)",
            np.abs(np.c_[solution.W, other.W] - [[1, 1], [3, 0]]).max(),
            "<=",
            1e-8,
        ),
        Measured(
            "all tokens are support tokens, and the wrong selection is locally optimal",
            bool(solution.support[:, 1].all() and selection.locally_optimal(p, other)),
            "==",
            True,
        ),
        Measured(
            "share of the 289 starts with a wrong limit, logistic loss",
            r["wrong"].mean(),
            "in",
            (0.34, 0.375),
        ),
        Measured(
            "share of starts off the border by 0.2 that lie on the predicted side",
            min(agree),
            "==",
            1.0,
            "both losses",
        ),
        Measured(
            "share of starts 0.1 above and below the border that end on the predicted side",
            min(_beside_the_border(loss) for loss in grid),
            "==",
            1.0,
            "both losses",
        ),
        Measured("start (4, 0): correlation with (1, 0)", r["wrong_correlation"][from_four], ">=", 0.999),
        Measured("start (0, 0): correlation with (1, 3)", r["global_correlation"][from_zero], ">=", 0.999),
        Measured(
            "$c\\le0.95$, $b=1$: wrong limits from three starts far out",
            threshold[scan < 1].mean(),
            "==",
            0.0,
        ),
        Measured("$c\\ge1.05$, $b=1$: the same", threshold[scan > 1].mean(), "==", 1.0, breaks=True),
    ]
