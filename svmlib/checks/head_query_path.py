"""Claims of the chapter on head and query together: the joint path, and who moves faster."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, gradient, outputs, probabilities
from svmlib.data import Problem
from svmlib.dynamics import normalized
from svmlib.dynamics.joint import JointRun, train_jointly
from svmlib.dynamics.joint_path import joint_limit, joint_path
from svmlib.errors import SvmlibError
from svmlib.experiments.joint import HEAD, QUERY, three_sequences

from .head_query import PAGE, PAPER, best_selection, label_margin
from .registry import Measured, claim

RADII = (40.0, 80.0, 160.0)


def degrees(p: FloatArray) -> FloatArray:
    """Angle of vectors (..., 2) or columns (..., 2, 1) to the first axis."""
    flat = p[..., 0] if p.shape[-1] == 1 else p
    return np.asarray(np.degrees(np.arctan2(flat[..., 1], flat[..., 0])))


def admissible(n: int, T: int, d: int, count: int) -> list[tuple[int, float]]:
    """Seeds and thresholds of random instances on which the assumption of the joint path holds with room."""
    found: list[tuple[int, float]] = []
    for seed in range(200):
        p, tokens, margins = best_selection(n, T, d, seed)
        try:
            limit, head = joint_limit(p, 1.0, tokens), svm.value_svm(p, tokens)
            if svm.attention_svm(p, tokens).margin < 0.2 or np.diff(np.sort(margins))[-1] < 0.05:
                continue
        except SvmlibError:
            continue
        scores = p.y[:, None] * (p.X @ limit.v)
        other = np.where(np.arange(T) == tokens[:, None], -np.inf, scores)
        apart = (other < limit.label_margin - 0.05).all() and limit.slack.max() > 0.05
        firm = (head.multipliers[head.support] * head.margin**2 > 0.02).all()
        if apart and firm and limit.threshold > 0.2:
            found.append((seed, limit.threshold))
        if len(found) == count:
            break
    return found


@claim(
    "thm-joint-path",
    title="The joint regularisation path",
    source=f"{PAPER}, joint regularisation path; ratio, rates and proof are ours",
    chapter=PAGE,
    scope="three sequences in the plane, random n = T = 3, d = 4; ratios 0.5 to 4, 0 and ∞; radii 40 to 160",
    seeds="the first trials seeds from 0 that satisfy the assumption with slack",
    trials=(2, 1),
)
def joint_regularisation_path(trials: int) -> list[Measured]:
    """Minimise the joint loss over growing balls and measure the angle to the predicted directions."""
    angles, heads = [], []
    cases = [(0.0, 1.0), (0.25, 0.5), (0.25, 1.0), (0.25, 4.0)][: 2 + trials]
    for epsilon, ratio in cases:
        p = three_sequences(epsilon)
        attention, head = _along(p, ratio, np.array([1, 1, 1]))
        angles.append(attention)
        heads.append(head)
    for seed, threshold in admissible(3, 3, 4, trials):
        p, tokens, _ = best_selection(3, 3, 4, seed)
        for share in (0.5, 1.5):
            attention, head = _along(p, share * threshold, tokens)
            angles.append(attention)
            heads.append(head)
    A, H = np.array(angles), np.array(heads)
    ends, apart = _ends(admissible(3, 3, 4, 1)[0][0])
    rival, violated = _rival()
    return [
        Measured("query: largest angle to the limit at radius 160", A[:, -1].max(), "<=", 0.02, "radian"),
        Measured(
            "query: largest ratio of the angle at 160 to that at 40",
            (A[:, -1] / np.maximum(A[:, 0], 1e-5)).max(),
            "<=",
            0.35,
            "1/R gives 0.25",
        ),
        Measured("head: largest angle to its SVM at radius 160", H[:, -1].max(), "<=", 0.003),
        Measured(
            r"head radius $\sqrt R$ or $R^2/4$, radius 160: largest angle to the tight or the relaxed SVM",
            ends,
            "<=",
            0.03,
            "the ratio goes to 0 or to infinity",
        ),
        Measured("the same: smallest angle to the other of the two", apart, ">", 0.1),
        Measured(
            "two tokens reach the label margin: smallest margin of the third sequence over the radius",
            violated,
            "<",
            -0.5,
            f"the relaxed SVM asks for 0 or more; angle to it {rival:.2f}",
            breaks=True,
        ),
    ]


def _along(p: Problem, ratio: float, tokens: ArrayLike) -> tuple[FloatArray, FloatArray]:
    limit = joint_limit(p, ratio, tokens)
    path = joint_path(p, ratio, RADII, tokens, starts=2)
    return compare.angle(path.W, limit.W), compare.angle(path.v[:, :, None], limit.v[:, None])


def _ends(seed: int) -> tuple[float, float]:
    """Angles to the right and to the wrong end when the ratio itself goes to 0 or to infinity."""
    random, selected, _ = best_selection(3, 3, 4, seed)
    right, wrong = [], []
    radii = np.array(RADII)[[0, -1]]
    for p, tokens in ((three_sequences(0.25), [1, 1, 1]), (random, selected)):
        limits = [joint_limit(p, c, tokens) for c in (0.0, np.inf)]
        for k, ratio in enumerate((radii**-0.5, radii / 4)):
            W = joint_path(p, ratio, radii, tokens, starts=1).W[-1]
            right.append(float(compare.angle(W, limits[k].W)))
            wrong.append(float(compare.angle(W, limits[1 - k].W)))
    return max(right), min(wrong)


def _rival() -> tuple[float, float]:
    """Third sequence with two tokens above the label margin, where the path picks the worse-scored one."""
    X = three_sequences(0.5).X.copy()
    X[2, 0] = 0.0, 1.2
    keys = X.copy()
    keys[2] = [[1.0, 0.0], [0.0, 1.2]]  # the feature's key minus the rival's is (-1, 1.2)
    p = Problem(X, np.ones((3, 1)), [1.0, -1.0, 1.0], keys=keys)  # type: ignore[arg-type]
    path = joint_path(p, 8.0, [40.0], [1, 1, 1], starts=2)
    loose = svm.token_svm(keys, [1, 1, 1], relaxed=[False, False, True])
    third = path.W[-1, :, 0] @ np.array([-1.0, 1.2]) / path.radii[-1]
    return float(compare.angle(path.W[-1], loose.W)), float(third)


def switch(epsilon: ArrayLike, ratio: ArrayLike) -> FloatArray:
    """Angle in degrees of the limit direction of the query for three sequences, in closed form."""
    e, c = np.broadcast_arrays(np.asarray(epsilon, dtype=float), np.asarray(ratio, dtype=float))
    worth = np.where(e > 0, np.where(e > 0, c, 0.0) * e, 0.0)  # no slack is worth nothing at any ratio
    turn = np.arccos(np.minimum(worth / np.hypot(0.5, 2.0 + e), 1.0)) - np.arctan2(2.0 + e, 0.5)
    return np.asarray(np.where(worth < 0.5, np.degrees(turn), 0.0))


@cache
def _family() -> tuple[FloatArray, FloatArray, JointRun]:
    epsilon, ratio = (a.ravel() for a in np.meshgrid([0.0, 0.1, 0.25, 0.4, 0.5], [0.5, 1.0, 2.0]))
    start = np.asarray(HEAD) / ratio[:, None]
    p = three_sequences(epsilon, ratio)
    run = train_jointly(p, start, Direct(QUERY), normalized(0.1), 2000, record=[200, 500, 1000, 2000])
    return epsilon, ratio, run


@claim(
    "prop-joint-switch",
    title="The third token and the ratio",
    kind="proposition",
    source=f"own statement; instances of {PAPER}",
    chapter=PAGE,
    scope="three sequences, slack 0 to 0.5, ratios 0.5, 1, 2; 2000 normalised steps of 0.1 and its multiples",
)
def third_token(trials: int) -> list[Measured]:
    """Compare the closed form with the program, and with the directions in which training goes."""
    epsilon, ratio, run = _family()
    solved = [
        degrees(joint_limit(three_sequences(e), c, [1, 1, 1]).W) for e, c in zip(epsilon, ratio, strict=True)
    ]
    limit = switch(epsilon, ratio)
    off = np.abs(degrees(run.W) - limit[:, None])
    equal = ratio == 1.0
    between = equal & (epsilon > 0) & (epsilon < 0.5)
    at = [int(np.flatnonzero(equal & (epsilon == e))[0]) for e in (0.0, 0.5)]
    tight, loose = (run.W[b, 0, :, 0] for b in at)
    corr = {
        "tight": _correlation(tight, [4.0, 1.0]),
        "relaxed": _correlation(loose, [1.0, 0.0]),
        "full": _correlation(loose, [5.0, 1.0]),
        "head": min(_correlation(run.v[b, 0], [0.0, 1.0]) for b in at),
    }
    return [
        Measured("closed form − program, degrees", np.abs(solved - limit).max(), "<=", 1e-6),
        Measured(
            "training: largest distance from the limit at 2000 steps, degrees", off[:, -1].max(), "<=", 0.15
        ),
        Measured(
            "training: largest ratio of that distance to the one at 500 steps",
            (off[:, -1] / np.maximum(off[:, 1], 0.01)).max(),
            "<=",
            0.5,
        ),
        Measured("tight, step 200: correlation of the query with its SVM", corr["tight"], ">", 0.999),
        Measured("loose, step 200: correlation with the relaxed SVM", corr["relaxed"], ">", 0.999),
        Measured("loose, step 200: correlation with the unrelaxed SVM", corr["full"], "<", 0.99),
        Measured("both, step 200: correlation of the head with its SVM", corr["head"], ">", 0.999),
        Measured(
            "slack between 0 and 1/2, equal steps: smallest distance from the relaxed direction, degrees",
            degrees(run.W)[between, -1].min(),
            ">",
            2.0,
            "the head is not fast enough for the relaxed SVM",
            breaks=True,
        ),
    ]


def _correlation(a: FloatArray, b: ArrayLike) -> float:
    return float(compare.correlation(a[:, None], np.asarray(b)[:, None]))


def _speeds(p: Problem, v: FloatArray, W: FloatArray) -> tuple[float, float]:
    """Ratio of the gradient norms of query and head, and the bound on it."""
    own = Problem(p.X, p.z, p.y, v, keys=p.keys)
    pull = np.linalg.norm(gradient(own, Direct(W)).matrix())
    s, u = probabilities(own, W), outputs(own, W)
    margin = p.y * (u @ v)
    slope = np.exp(-np.logaddexp(0.0, margin))
    push = np.linalg.norm((slope * p.y) @ u / p.n)
    missing = slope @ (1.0 - s.max(-1)) / slope.sum()
    keys, values = (_spread(a) for a in (p.keys, p.X))
    bound = np.linalg.norm(v) * values * keys * missing / label_margin(p, u)
    return float(pull / push), float(bound)


def _spread(a: FloatArray) -> float:
    return float(np.linalg.norm(a[:, :, None] - a[:, None], axis=-1).max())


@claim(
    "prop-joint-speed",
    title="Who moves faster",
    kind="proposition",
    source="own statement",
    chapter=PAGE,
    scope="random n = 3, T = 3, d = 4 with label margin, 10 heads and queries each; three sequences, flow",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def speed(trials: int) -> list[Measured]:
    """Compare the two gradients with the bound, and the growth of the two norms along the flow."""
    shares = []
    for seed in range(trials):
        p, _, _ = best_selection(3, 3, 4, seed)
        rng = np.random.default_rng(seed)
        for scale in np.geomspace(0.3, 30.0, 10):
            v, W = rng.normal(size=4) * scale, rng.normal(size=(4, 1)) * scale
            if label_margin(p, outputs(p, W)) > 1e-6:
                ratio, bound = _speeds(p, v, W)
                shares.append(ratio / bound)
    q = three_sequences([0.0, 0.1, 0.5])
    run = train_jointly(
        q, HEAD, Direct(QUERY), normalized(0.5), 2000, together=True, record=[500, 1000, 2000]
    )
    size, head = np.linalg.norm(run.W, axis=(-2, -1)), np.linalg.norm(run.v, axis=-1)
    slope = np.diff(size, axis=1) / np.diff(np.log(head), axis=1)
    predicted = np.array([2.0 * np.hypot(4 / 3, 1 / 3), 2.0, 2.0])
    apart = normalized(0.5)
    own = train_jointly(q, HEAD, Direct(QUERY), apart, 1000, record=[500, 1000])
    grown = np.diff(np.linalg.norm(own.W, axis=(-2, -1)), axis=1)
    return [
        Measured(
            "largest ratio of the speeds over its bound", max(shares), "<=", 1.0, f"{len(shares)} points"
        ),
        Measured("the same: the bound is within a factor 20", max(shares), ">", 0.05),
        Measured(
            "flow: largest error of the growth of |p| per unit of log |v|, relative to 2/β",
            np.abs(slope[:, -1] / predicted - 1).max(),
            "<=",
            0.03,
            "β is the margin of the tight SVM, and of the relaxed one with slack",
        ),
        Measured(
            "each block normalised by itself: growth of |p| over that of |v|",
            (grown[:, 0] / np.diff(np.linalg.norm(own.v, axis=-1), axis=1)[:, 0]).min(),
            ">",
            0.99,
            "such steps are no gradient flow",
            breaks=True,
        ),
    ]
