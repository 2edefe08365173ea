"""Claims of the chapter on regularisation paths: rates, ties, local paths and nonlinear heads."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from svmlib import compare, data, dynamics, selection, svm
from svmlib.experiments.paths import path_residual

from .paths import PAGE, PAPER, RADII, followed, outside_probability
from .registry import Measured, claim

CONE = 3e-4
WIDE = (1e3, 4e3, 16e3, 64e3)


@claim(
    "thm-path-rate",
    title=r"$R\tan\theta_R\to\|\widetilde W\|_F$ for the angle of $W_R$ and $W^{\mathrm{mm}}$",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, R = 20 to 1,280; degenerate: two features, one multiplier 0, R = 1e2 to 1e6",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def rate(trials: int) -> list[Measured]:
    """Angles against the predicted residual, its direction, and an instance with a vanishing multiplier."""
    p, solution, path = followed(trials, "fro")
    predicted, found, side, linear = [], [], [], []
    for b in range(trials):
        one = svm.attention_svm(p[b])
        rest = path_residual(p[b], one)
        if not np.isfinite(rest).all():
            continue
        B = one.W / one.value
        across = path.W[b] - (path.W[b] * B).sum((-2, -1))[:, None, None] * B
        along = (path.W[b] * B).sum((-2, -1))
        predicted.append(np.linalg.norm(rest))
        found.append(path.radii * np.linalg.norm(across, axis=(-2, -1)) / along)
        side.append(compare.correlation(across[-1], rest))
        linear.append(np.linalg.norm(across[-1] - rest) / np.linalg.norm(rest))
    ratio = np.array(found) / np.array(predicted)[:, None]
    fall = np.median(1.0 - compare.correlation(path.W, solution.W), axis=0)
    slope = np.polyfit(np.log(RADII[1:]), np.log(fall[1:]), 1)[0]
    dull = data.prompt_problem([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0]] * 2)
    far = dynamics.regularization_path(dull, [1e2, 1e4, 1e6])
    spread = far.radii * np.abs(far.p[:, 1] / far.p[:, 0])
    grown = spread[2] / spread[0]
    return [
        Measured("share of instances in general position", len(predicted) / trials, ">=", 0.9),
        Measured("median measured / predicted at R = 1,280", np.median(ratio[:, -1]), "==", 1.0, tol=0.03),
        Measured("the same at R = 80", np.median(ratio[:, 1]), "==", 1.0, tol=0.35),
        Measured("median correlation of the residual with its prediction", np.median(side), ">=", 0.999),
        Measured("median relative error of the residual", np.median(linear), "<=", 0.05),
        Measured("exponent of the median 1 − corr in R, 80 to 1,280", slope, "==", -2.0, tol=0.25),
        Measured("vanishing multiplier: R tan of the angle, 1e6 over 1e2", grown, ">=", 1.8, breaks=True),
    ]


def tied() -> data.Problem:
    """Two sequences in the plane; in the first, two of three tokens share the best score."""
    keys = [[[0.5, 0.2], [0.5, -0.1], [0.0, 0.0]], [[0.4, -0.3], [0.0, 0.0], [-0.5, -0.2]]]
    return data.prompt_problem(keys, [[1.0, 1.0, 0.0], [1.0, 0.0, 0.3]])


def representatives(p: data.Problem) -> dict[tuple[int, ...], svm.AttentionSVM]:
    """SVM of every choice of one best token a sequence, the other best tokens left unconstrained."""
    best = p.scores >= p.scores.max(-1, keepdims=True) - 1e-12
    out = {}
    for choice in itertools.product(*(np.flatnonzero(row) for row in best)):
        alpha = np.array(choice)
        seen = ~best | (np.arange(p.T) == alpha[:, None])
        q = data.Problem(p.X, p.z, p.y, p.v, mask=seen, keys=p.keys)
        out[tuple(map(int, choice))] = svm.attention_svm(q, alpha, errors="nan")
    return out


@claim(
    "prop-path-ties",
    title="With tied best tokens the path turns to the best of a union of SVMs",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="two sequences in the plane, one tie; R = 1e2 to 1e4",
)
def ties(trials: int) -> list[Measured]:
    """Compare the path with the SVM of each representative, and with the SVM that constrains the tie."""
    p = tied()
    path = dynamics.regularization_path(p, [1e2, 1e3, 1e4])
    each = representatives(p)
    ranked = sorted(each.values(), key=lambda s: -float(s.margin))
    full = svm.attention_svm(p, ranked[0].tokens)
    fall = 1.0 - compare.correlation(path.W, ranked[0].W)
    other = compare.correlation(path.W[-1], full.W)
    return [
        Measured("number of representatives that can be separated", len(each), ">=", 2),
        Measured("largest margin over the second", ranked[0].margin / ranked[1].margin, ">=", 1.05),
        Measured("1 − corr with the SVM of the largest margin, R = 1e4", fall[-1], "<=", 1e-5),
        Measured("the same, R = 1e4 over 1e3", fall[-1] / fall[-2], "<=", 0.1),
        Measured("corr with the SVM that constrains the tie too", other, "<=", 0.99, breaks=True),
    ]


@claim(
    "thm-path-local",
    title="In a narrow cone, the path of a locally optimal selection turns to its SVM",
    source=f"after {PAPER}; proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 2, 3, 3, all selections; cone 3e-4 (others: 3e-3), R = 1e3 to 6.4e4",
    seeds="0 to trials − 1",
    trials=(20, 8),
)
def local(trials: int) -> list[Measured]:
    """Paths confined to cones around the SVM directions of all selections but the optimal one."""
    drawn = data.random_problem(2, 3, 3, batch=trials)
    every = np.array(list(itertools.product(range(3), repeat=2)))
    who, which = (a.ravel() for a in np.meshgrid(range(trials), range(len(every)), indexing="ij"))
    use = (every[which] != drawn.optimal[who]).any(-1)
    p, alpha = drawn[who[use]], every[which[use]]
    solution = svm.attention_svm(p, alpha, errors="nan")
    good = selection.locally_optimal(p, solution)
    other = np.flatnonzero(solution.feasible & ~good)[:5]
    path = dynamics.regularization_path(p[good], WIDE, tokens=alpha[good], cone=CONE, starts=0)
    fall = 1.0 - compare.correlation(path.W, solution.W[good])
    falling = ~path.interior.any(-1)
    edge = dynamics.regularization_path(
        p[other], WIDE, tokens=alpha[other], cone=10.0 * CONE, starts=0
    ).edge.all(-1)
    last = fall[:, -2:]
    ratio = last[:, 1] / np.maximum(last[:, 0], 1e-12)  # 0 where a single feature carries the solution
    return [
        Measured("locally optimal selections beside the optimal one", len(last), ">=", 2),
        Measured("share of them whose path uses its whole radius", falling.mean(), "==", 1.0),
        Measured("largest 1 − corr at the last radius", last[:, 1].max(), "<=", 1e-5),
        Measured("largest ratio to that at a quarter of it", ratio.max(), "<=", 0.15),
        Measured(
            "other selections: share on the edge",
            np.mean(edge),
            "==",
            1.0,
            f"{len(other)} paths",
            breaks=True,
        ),
    ]


def squashed(trials: int, gain: float = 2.0) -> tuple[data.Problem, data.Problem]:
    """Random data read by the first coordinate, and the same data read by the head tanh(gain u_1)."""
    drawn = data.random_problem(3, 5, 4, batch=trials)
    plain = data.Problem(drawn.X, drawn.z, drawn.y, np.eye(4)[0])
    return plain, data.Problem(drawn.X, drawn.z, drawn.y, head=lambda u: torch.tanh(gain * u[..., 0]))


def composing() -> data.Problem:
    """Two tokens on the line, at 1 and -1, and the head -u^2: their average is better than both."""
    X, z, y = np.array([[[1.0], [-1.0]]]), np.ones((1, 1)), np.ones(1)
    return data.Problem(X, z, y, head=lambda u: -(u[..., 0] ** 2))


@claim(
    "cor-path-heads",
    title="The theorem holds for every increasing function of a linear head",
    kind="corollary",
    source="Max-Margin Token Selection (2023), general heads; proof in the chapter",
    chapter=PAGE,
    scope="head tanh(2 u_1), n, T, d = 3, 5, 4, both norms, R = 20 to 1,280; head −u² on two tokens",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def heads(trials: int) -> list[Measured]:
    """Paths of a squashed head; and of a concave one, where composing pays."""
    (p, q), rows = squashed(trials), []
    for norm, word in (("fro", "Frobenius"), ("nuc", "nuclear")):
        path = dynamics.regularization_path(q, RADII, norm, tokens=p.optimal, starts=0)
        fall = 1.0 - compare.correlation(path.W, svm.attention_svm(p, norm=norm).W)
        ratio = np.median(fall[:, -1] / fall[:, -2])
        rows += [
            Measured(f"{word}: largest 1 − corr at R = 1,280", fall[:, -1].max(), "<=", 2e-3),
            Measured(f"{word}: its ratio to that at 320, median", ratio, "<=", 0.12),
        ]
    two = composing()
    mixed = dynamics.regularization_path(two, [1.0, 100.0], tokens=[0])
    size, chance = np.abs(mixed.W[-1]).max(), outside_probability(mixed, two)[-1]
    rows += [
        Measured("head −u²: norm of the path at R = 100", size, "<=", 1e-6, breaks=True),
        Measured("head −u²: probability of the token there", chance, "<=", 0.51, breaks=True),
    ]
    return rows
