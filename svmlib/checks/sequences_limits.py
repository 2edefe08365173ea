"""Claims of the chapter on sequences: where regularisation paths and gradient descent go."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize

from svmlib import attention, compare, data, dynamics, graphs, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Direct
from svmlib.data import Problem
from svmlib.experiments.sequences import finite_minimum, priority_data, priority_path, split_loss

from .registry import Measured, claim
from .sequences import PAGE
from .sequences_next import SIZES, instances, lipschitz, projected

DECAY = np.array([1e-2, 1e-4, 1e-7, 1e-10, 1e-15, 1e-20, 1e-30, 1e-40])


@claim(
    "thm-ntp-path",
    title="The path is the finite part plus the radius times the graph SVM",
    source="proof in the chapter",
    chapter=PAGE,
    scope="6 types, 2 queries, 12 lists each of 4 tokens and 2 repeated ones, decay to 1e-40; nuclear: one",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def path(trials: int) -> list[Measured]:
    """Follow the path of the Frobenius norm far out, and that of the nuclear norm a little."""
    p, keys, edges, inside = instances(trials)
    last, apart, rate, slope, along, order, fall = [], [], [], [], [], [], []
    for b in range(trials):
        goal = svm.graph_svm(keys[b], keys[b][:2], edges[b])
        finite, _ = finite_minimum(p[b], inside[b])
        found = priority_path(p[b], inside[b], DECAY)
        miss = 1.0 - compare.correlation(found.W, goal.W)
        error = np.linalg.norm(found.inside - finite, axis=(-2, -1))
        last.append(miss[-1])
        apart.append(error[-1])
        order.append(bool((np.diff(miss) < 0).all() and (np.diff(error[:4]) < 0).all()))
        rate.append((found.radius * miss)[-1] / (found.radius * miss)[2])
        slope.append(np.polyfit(np.log(found.radius[3:]), np.log(miss[3:]), 1)[0])
        far = np.flatnonzero(error > 1e-13)[-2:]  # beyond them the distance is round-off
        fall.append(-np.diff(np.log(error[far]))[0] / np.diff(found.radius[far] * float(goal.margin))[0])
        along.append(_slope(-found.log_outside, found.radius * float(goal.margin)))
    nuclear = _nuclear_path(p[0], keys[0], edges[0], inside[0])
    middle = data.next_token_problem([[1, 0], [1, 2]], [1, 1], [[1.0], [0.0], [-1.0]], z=np.ones((2, 1)))
    stays = priority_path(middle, np.ones((2, 2), dtype=bool), [1e-1, 1e-12]).radius[-1]
    return [
        Measured("largest 1 − corr with the graph SVM at the end", max(last), "<=", 3e-4),
        Measured(
            "largest distance of the projection from the finite part at the end", max(apart), "<=", 1e-9
        ),
        Measured("share of instances where both fall at every radius", np.mean(order), "==", 1.0),
        Measured("fall of the logarithm of that distance, per unit of ΓR: smallest", min(fall), ">=", 0.98),
        Measured("R (1 − corr), last over third radius: largest", max(rate), "<=", 1.0),
        Measured("exponent of 1 − corr in R, mean", np.mean(slope), "==", -2.0, tol=0.25),
        Measured(
            "growth of −log of the second part per unit of the margin, mean",
            np.mean(along),
            "==",
            1.0,
            tol=0.02,
        ),
        Measured("nuclear: 1 − corr with its own graph SVM, last over first", nuclear[0], "<=", 0.2),
        Measured("nuclear: 1 − corr with its own over that with the Frobenius one", nuclear[1], "<=", 0.2),
        Measured("nuclear: distance of the projection from the same finite part", nuclear[2], "<=", 1e-3),
        Measured("a key between two others: radius at decay 1e-12", stays, "<", 1e-3, breaks=True),
    ]


def _slope(y: FloatArray, x: FloatArray) -> float:
    return float((y[-1] - y[-3]) / (x[-1] - x[-3]))


def _nuclear_path(
    problem: Problem, keys: FloatArray, edges: BoolArray, inside: BoolArray
) -> tuple[float, float, float]:
    """Minimise loss plus decay on two factors, which is decay on the nuclear norm, by BFGS."""
    e, q = problem.key_dim, problem.query_dim
    m = 2
    x = 0.1 * np.random.default_rng(0).normal(size=(e + q) * m)

    def objective(x: FloatArray, c: float) -> tuple[float, FloatArray]:
        K, Q = x[: e * m].reshape(e, m), x[e * m :].reshape(q, m)
        W = K @ Q.T
        G = attention.gradient(problem, Direct(W), "log").matrix()
        value = float(attention.loss(problem, W, "log")) + c / 2 * float(x @ x)
        return value, np.r_[(G @ Q).ravel(), (G.T @ K).ravel()] + c * x

    found = []
    for c in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        x = minimize(objective, x, args=(c,), jac=True, method="BFGS", options={"gtol": 1e-2 * c}).x
        found.append(x[: e * m].reshape(e, m) @ x[e * m :].reshape(q, m).T)
    W = np.array(found)
    own, other = (svm.graph_svm(keys, keys[:2], edges, norm=norm).W for norm in ("nuc", "fro"))
    finite, _ = finite_minimum(problem, inside)
    miss = 1.0 - compare.correlation(W, own)
    error = float(np.linalg.norm(projected(problem, inside, W[-1]) - finite))
    return float(miss[-1] / miss[1]), float(miss[-1] / (1.0 - compare.correlation(W[-1], other))), error


@claim(
    "cor-ntp-generalized",
    title="The generalised SVM and the finite part of the limiting attention are these two",
    kind="corollary",
    source="Li et al. (2024) formalise the formula; statement and proof in the chapter",
    chapter=PAGE,
    scope="6 types, 2 queries, 12 sequences each of 4 tokens and 2 repeated ones",
    seeds="0 to trials − 1",
    trials=(10, 4),
)
def generalized(trials: int) -> list[Measured]:
    """Solve the programs of the preceding chapter, sequence by sequence, and compare."""
    p, keys, edges, inside = instances(trials)
    direction, part, probability, straight = [], [], [], []
    for b in range(trials):
        goal = svm.graph_svm(keys[b], keys[b][:2], edges[b])
        finite, _ = finite_minimum(p[b], inside[b])
        direction.append(np.linalg.norm(svm.generalized_svm(p[b], inside[b]).W - goal.W) / float(goal.value))
        far = priority_path(p[b], inside[b], [1e-1, 1e-25]).W[-1]
        limit = attention.probabilities(p[b], far)
        probability.append(limit[~inside[b]].max())
        other = svm.finite_part(p[b], limit, selected=inside[b])
        part.append(np.linalg.norm(other.W - finite))
        straight.append(abs(float((finite * goal.W).sum())))
    return [
        Measured("generalised SVM against graph SVM, relative", max(direction), "<=", 1e-8),
        Measured(
            "largest attention outside the component, far out on the path", max(probability), "<=", 1e-15
        ),
        Measured("finite part from that attention against the minimiser", max(part), "<=", 1e-6),
        Measured("largest inner product of the two parts", max(straight), "<=", 1e-9),
    ]


@cache
def _descended(trials: int) -> dict[str, FloatArray]:
    """Plain runs from random starts: steps, excess, errors, norms and correlations."""
    p, keys, edges, inside = instances(trials)
    rate = 1.0 / max(lipschitz(p[b]) for b in range(trials))
    start = Direct(0.3 * np.random.default_rng(5).normal(size=(trials, SIZES[-1], SIZES[-1])))
    when = [*range(101), 300, 1000, 3000, 10_000]
    run = dynamics.train(p, start, dynamics.gradient_descent(rate), 10_000, loss="log", record=when)
    out: dict[str, list[FloatArray]] = {}
    for b in range(trials):
        goal = svm.graph_svm(keys[b], keys[b][:2], edges[b])
        finite, least = finite_minimum(p[b], inside[b])
        within, outside = split_loss(p[b], run.W[b], inside[b])
        away = run.W[b] - finite
        for key, value in (
            ("excess", within - least + outside),
            ("error", np.linalg.norm(projected(p[b], inside[b], away), axis=(-2, -1))),
            ("norm", np.linalg.norm(away, axis=(-2, -1))),
            ("grown", float(goal.margin) * np.linalg.norm(run.W[b], axis=(-2, -1))),
            ("miss", 1.0 - compare.correlation(away, goal.W)),
        ):
            out.setdefault(key, []).append(np.asarray(value))
    return {"steps": run.steps.astype(float), **{key: np.stack(a) for key, a in out.items()}}


@claim(
    "thm-ntp-gd",
    title="Gradient descent finds the finite part and turns to the graph SVM, from every start",
    source="proof in the chapter; rate of the direction as in Ji and Telgarsky (2019)",
    chapter=PAGE,
    scope="6 types, 2 queries, 12 sequences each of 4 tokens and 2 repeated ones, step 1/L",
    seeds="0 to trials − 1",
    trials=(8, 4),
)
def descent(trials: int) -> list[Measured]:
    """Loss, finite part, norm and direction along plain runs, and normalised steps on a cycle."""
    r = _descended(trials)
    k = r["steps"]
    scaled = r["excess"][:, 2:] * k[2:] / np.log(k[2:]) ** 2
    slack = r["grown"][:, -3:] - (np.log(k[-3:]) - 2 * np.log(np.log(k[-3:])))
    closing = r["miss"] * r["norm"] / (1.0 + np.log(np.maximum(r["norm"], 1.0)))
    floor, width = _floor(0.1)
    return [
        Measured(
            "largest rise of the excess in the first 100 steps",
            np.diff(r["excess"][:, :101]).max(),
            "<=",
            1e-13,
        ),
        Measured(
            "excess times k / log² k, at 10,000 over 300: largest",
            (scaled[:, -1] / scaled[:, -4]).max(),
            "<=",
            1.0,
        ),
        Measured(
            "distance from the finite part times √k / log k, 10,000 over 300: largest",
            _fall(r["error"][:, 2:] * np.sqrt(k[2:]) / np.log(k[2:])),
            "<=",
            1.0,
        ),
        Measured(
            "distance from the finite part after 10,000 steps: largest", r["error"][:, -1].max(), "<=", 0.1
        ),
        Measured(
            "growth of the norm beyond its lower bound, 1,000 to 10,000: smallest",
            np.diff(slack[:, [0, 2]]).min(),
            ">=",
            0.0,
        ),
        Measured("median 1 − corr after 10,000 steps", np.median(r["miss"][:, -1]), "<=", 0.03),
        Measured(
            "(1 − corr) times norm over its logarithm, 10,000 over 300: largest", _fall(closing), "<=", 1.0
        ),
        Measured(
            "normalised steps on a cycle: excess after 4,000 steps over that after 2,000",
            floor,
            ">",
            0.9,
            breaks=True,
        ),
        Measured("the same: change of a − b in a step over √2 times its length", width, "==", 1.0, tol=0.1),
    ]


def _fall(a: FloatArray) -> float:
    return float((a[:, -1] / a[:, -4]).max())


def _floor(length: float) -> tuple[float, float]:
    """Excess of normalised steps late over half-way, and how far a step moves a - b."""
    # a and b win two to one against each other, both win against c: no step lands on log 2 exactly
    sequences, labels, asks = [[0, 1]] * 3 + [[0, 2], [1, 2]], [0, 0, 1, 0, 1], [0] * 5
    p = data.next_token_problem(sequences, labels, np.eye(3), z=np.ones((5, 1)))
    component = graphs.components(graphs.priority_graphs(sequences, labels, 3, queries=asks))
    inside = graphs.in_component(sequences, labels, component, queries=asks)
    start = Direct(np.array([[0.5], [-0.2], [0.1]]))
    run = dynamics.train(
        p, start, dynamics.normalized(length), 4000, loss="log", record=[1999, 2000, 3999, 4000]
    )
    within, _ = split_loss(p, run.W, inside)
    excess = within - finite_minimum(p, inside)[1]
    swing = np.diff(run.W[2:, 0, 0] - run.W[2:, 1, 0])
    return float(excess[2:].mean() / excess[:2].mean()), float(np.abs(swing[0]) / (np.sqrt(2.0) * length))


@claim(
    "cor-ntp-normalized",
    title="Without cycles, normalised steps of any length turn to the graph SVM from every start",
    kind="corollary",
    source="proof in the chapter",
    chapter=PAGE,
    scope="acyclic graphs of 6 types, 2 queries, 12 sequences of 4 tokens each; step lengths 0.1 and 2",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def normalized(trials: int) -> list[Measured]:
    """Train from several starts with two step lengths."""
    p, keys, edges, _ = priority_data(*SIZES, batch=trials)
    goals = [svm.graph_svm(keys[b], keys[b][:2], edges[b]) for b in range(trials)]
    goal, margin = np.stack([g.W for g in goals]), np.array([float(g.margin) for g in goals])
    apart = np.linalg.norm(p.keys[..., :, None, :] - p.keys[..., None, :, :], axis=-1).max((-3, -2, -1))
    reach = apart * np.linalg.norm(p.z, axis=-1).max(-1)
    late, ratio, speed = [], [], []
    for length, seed in ((0.1, 0), (0.1, 1), (2.0, 2)):
        start = Direct(3.0 * np.random.default_rng(seed).normal(size=goal.shape) / np.sqrt(goal.shape[-1]))
        steps = 3000 if length < 1 else 1000
        run = dynamics.train(
            p, start, dynamics.normalized(length), steps, loss="log", record=[steps // 8, steps]
        )
        miss, norm = 1.0 - compare.correlation(run.W, goal[:, None]), np.linalg.norm(run.W, axis=(-2, -1))
        bound = miss * norm / (1.0 + np.log(norm))
        late.append(miss[:, -1].max())
        ratio.append((bound[:, 1] / bound[:, 0]).max())
        gained = ((run.W - np.asarray(start.W)[:, None]) * goal[:, None]).sum((-2, -1)) * margin[:, None]
        speed.append((gained[:, -1] / (steps * length * margin / reach)).min())
    return [
        Measured("largest 1 − corr at the end, all starts and lengths", max(late), "<=", 2e-3),
        Measured(
            "(1 − corr) times norm over its logarithm, end over an eighth: largest", max(ratio), "<=", 1.0
        ),
        Measured("gain along the graph SVM over its lower bound: smallest", min(speed), ">=", 1.0),
    ]
