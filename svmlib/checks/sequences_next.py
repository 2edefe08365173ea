"""Claims of the chapter on sequences: the log loss of next-token prediction and its two parts."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import linprog

from svmlib import attention, data, graphs, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct
from svmlib.data import Problem
from svmlib.experiments.sequences import finite_minimum, priority_data, split_loss

from .registry import Measured, claim
from .sequences import PAGE, pairs, random_edges

SIZES = (6, 2, 12, 4, 8)  # types, queries, sequences for each, tokens, width


@cache
def instances(trials: int) -> tuple[Problem, FloatArray, BoolArray, BoolArray]:
    """Random data with cycles and repeated tokens: problems, embeddings, graphs, the labels' components.

    Parameters
    ----------
    trials : int
        Number of instances.

    Returns
    -------
    tuple
        As :func:`svmlib.experiments.sequences.priority_data`.
    """
    return priority_data(*SIZES, levels=2, repeats=2, batch=trials)


def cyclic_basis(problem: Problem, inside: BoolArray) -> FloatArray:
    """(r, e q) orthonormal basis of the span of the cyclic features.

    Parameters
    ----------
    problem : Problem
        One problem.
    inside : ndarray of bool, shape (n, T)
        Tokens of the label's component.

    Returns
    -------
    ndarray
        Rows.
    """
    first = (problem.X[..., 0] > 0).argmax(-1)
    A = np.einsum("nte,nq->nteq", problem.differences(first), problem.z)[inside]
    _, size, V = np.linalg.svd(A.reshape(len(A), -1), full_matrices=False)
    return np.asarray(V[size > 1e-9 * max(float(size.max()), 1e-300)])


def projected(problem: Problem, inside: BoolArray, W: FloatArray) -> FloatArray:
    """(..., e, q) orthogonal projections onto the span of the cyclic features.

    Parameters
    ----------
    problem : Problem
        One problem.
    inside : ndarray of bool, shape (n, T)
        Tokens of the label's component.
    W : ndarray, shape (..., e, q)
        Matrices.

    Returns
    -------
    ndarray
        Their projections.
    """
    basis = cyclic_basis(problem, inside)
    flat = W.reshape(*W.shape[:-2], -1)
    return np.asarray((flat @ basis.T @ basis).reshape(W.shape))


def log_loss(problem: Problem, W: FloatArray) -> float:
    """Log loss by loops over sequences, with nothing but exponentials.

    Parameters
    ----------
    problem : Problem
        One problem.
    W : ndarray, shape (e, q)
        Attention matrix.

    Returns
    -------
    float
        The mean of minus the logarithm of the attention on the label.
    """
    total = 0.0
    for keys, z, value in zip(problem.keys, problem.z, problem.X[..., 0], strict=True):
        weights = np.exp(keys @ W @ z)
        total -= np.log(weights[value > 0].sum() / weights.sum())
    return float(total / problem.n)


def lipschitz(problem: Problem) -> float:
    """Constant of the chapter: a quarter of the largest eigenvalue of the mean of squared key distances.

    Parameters
    ----------
    problem : Problem
        One problem.

    Returns
    -------
    float
        Lipschitz constant of the gradient.
    """
    apart = problem.keys[:, :, None] - problem.keys[:, None]
    widest = (apart**2).sum(-1).max((-2, -1))
    second = np.einsum("n,nq,nr->qr", widest, problem.z, problem.z) / problem.n
    return float(np.linalg.eigvalsh(second)[-1] / 4.0)


def _repeats(seed: int) -> Problem:
    """Sequences with repeated types, labels among them."""
    rng = np.random.default_rng(seed)
    sequences = rng.integers(0, 4, (6, 5))
    labels = np.take_along_axis(sequences, rng.integers(0, 5, (6, 1)), 1)[:, 0]
    return data.next_token_problem(sequences, labels, rng.normal(size=(4, 3)))


@claim(
    "prop-ntp-convex",
    title="The log loss is convex in $W$ where equal labels have equal keys",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 5, four types in 3 dimensions, repeated types; weights of norm 1 to 30",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def convex(trials: int) -> list[Measured]:
    """Midpoints, curvatures and gradients at random weights; then labels with two different keys."""
    bend, gradient, curvature, ratio, value = [], [], [], [], []
    for seed in range(trials):
        p, rng = _repeats(seed), np.random.default_rng([1, seed])
        L = lipschitz(p)
        for scale in (1.0, 5.0, 30.0):
            A, B, V = rng.normal(size=(3, 3, 3)) * scale / 3.0
            ends, middle = (log_loss(p, A) + log_loss(p, B)) / 2, log_loss(p, (A + B) / 2)
            bend.append((ends - middle) / ends)
            value.append(abs(float(attention.loss(p, A, "log")) - log_loss(p, A)) / log_loss(p, A))
            G, H = (attention.gradient(p, Direct(M), "log").matrix() for M in (A, B))
            ratio.append(np.linalg.norm(G - H) / np.linalg.norm(A - B) / L)
            gradient.append(np.abs(G - _gradient(p, A)).max())
            V /= np.linalg.norm(V)
            # the second derivative is a variance: compare with differences of gradients
            step = 1e-5
            ahead, behind = (attention.gradient(p, Direct(A + e * V), "log").matrix() for e in (step, -step))
            curvature.append(abs(((ahead - behind) * V).sum() / (2 * step) - _variance(p, A, V)))
    # the label stands at two positions with opposite keys
    indicator, one = np.array([[[1.0], [1.0], [0.0]]]), np.ones(1)
    split = Problem(indicator, one[None], one, one, keys=[[[1.0], [-1.0], [0.0]]])
    bump = log_loss(split, np.zeros((1, 1))) - log_loss(split, np.full((1, 1), 2.0))
    two = data.next_token_problem([[0, 1]], [0], [[1.0], [0.0]], z=[[1.0]])
    # a list of two tokens with equal attention: no smaller constant will do
    G, H = (attention.gradient(two, Direct(np.array([[w]])), "log").matrix() for w in (1e-3, -1e-3))
    tight = float(np.abs(G - H).max()) / 2e-3 / lipschitz(two)
    saddle = log_loss(two, np.zeros((1, 1))) - log_loss(two, np.ones((1, 1)))
    return [
        Measured("loss against loops, largest relative error", max(value), "<=", 1e-12),
        Measured("smallest relative excess of the chord over the midpoint", min(bend), ">=", -1e-12),
        Measured("gradient against its formula", max(gradient), "<=", 1e-12),
        Measured("second derivative against the variance, largest error", max(curvature), "<=", 1e-6),
        Measured("largest change of the gradient over L times the change of W", max(ratio), "<=", 1.0),
        Measured("the same at equal attention on two tokens", tight, "==", 1.0, tol=1e-5),
        Measured(
            "label at two positions with different keys: middle above both ends by",
            bump,
            ">",
            0.1,
            breaks=True,
        ),
        Measured("loss at W = 0 above both ends, (k, q) = ±(1, 1), W = kq", saddle, ">", 0.1, breaks=True),
    ]


def _gradient(problem: Problem, W: FloatArray) -> FloatArray:
    s = attention.probabilities(problem, W)
    first = (problem.X[..., 0] > 0).argmax(-1)
    A = np.einsum("nte,nq->nteq", problem.differences(first), problem.z)
    return np.asarray(-np.einsum("nt,nteq->eq", s, A) / problem.n)


def _variance(problem: Problem, W: FloatArray, V: FloatArray) -> float:
    s, b = attention.probabilities(problem, W), attention.logits(problem, V)
    mean = (s * b).sum(-1, keepdims=True)
    return float((s * (b - mean) ** 2).sum(-1).mean())


def balanced(rows: FloatArray) -> BoolArray:
    """(m,) whether a vanishing combination with nonnegative weights contains each row.

    Parameters
    ----------
    rows : ndarray, shape (m, k)
        Features of the edges.

    Returns
    -------
    ndarray of bool
        By one linear program for each row.
    """
    out = np.zeros(len(rows), dtype=bool)
    for e in range(len(rows)):
        cost = np.zeros(len(rows))
        cost[e] = -1.0
        found = linprog(cost, A_eq=rows.T, b_eq=np.zeros(rows.shape[1]), bounds=(0.0, 1.0))
        out[e] = found.status == 0 and found.fun < -1e-4  # the solver's tolerance is 1e-7
    return out


@claim(
    "lem-ntp-balanced",
    title="Cyclic edges balance; the graph SVM is feasible if and only if no other edge does",
    kind="lemma",
    source="proof in the chapter",
    chapter=PAGE,
    scope="two queries in 2 dimensions, four types, keys in 3 (independent) and in 2 dimensions (dependent)",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def balance(trials: int) -> list[Measured]:
    """Find balanced edges by linear programs and compare with components and with the solver."""
    agree, only, always, iff, some, tilt, tied = [], [], [], [], [], [], []
    for seed, width in product(range(trials), (3, 2)):
        rng = np.random.default_rng(seed)
        keys, queries = rng.normal(size=(4, width)), rng.normal(size=(2, 2))
        if width == 2:  # one key in the middle of two others
            keys[1] = (keys[0] + keys[2]) / 2
        edges = random_edges(2, 4, 0.3, rng)
        _, rows = pairs(keys, queries, edges)
        found, cyclic = balanced(rows), ~graphs.strict(edges)[edges]
        solved = svm.graph_svm(keys, queries, edges, errors="nan")
        always.append(bool(found[cyclic].all()))
        iff.append(bool(solved.feasible) == bool((found == cyclic).all()))
        if width == 3:
            agree.append(bool((found == cyclic).all()))
            only.append(bool(solved.feasible))
            margins = rows @ solved.W.ravel()
            tilt.append(np.abs(margins[cyclic]).max(initial=0.0))
            tied.append(margins[~cyclic].min(initial=np.inf))
        else:
            some.append(bool(solved.feasible))
    return [
        Measured("cyclic edges are balanced: share of instances", np.mean(always), "==", 1.0),
        Measured("independent: share where only they are", np.mean(agree), "==", 1.0),
        Measured("independent: share where the graph SVM is feasible", np.mean(only), "==", 1.0),
        Measured("its largest margin on a cyclic edge", max(tilt), "<=", 1e-9),
        Measured("its smallest margin on another", min(tied), ">=", 1.0 - 1e-9),
        Measured("all: share where feasible means that no other edge is balanced", np.mean(iff), "==", 1.0),
        Measured("a key between two others: share feasible", np.mean(some), "<", 0.95, breaks=True),
    ]


@claim(
    "thm-ntp-split",
    title="The loss is the choice of a component plus the choice inside it",
    source="proof in the chapter",
    chapter=PAGE,
    scope="6 types, 2 queries, 12 sequences each of 4 tokens and 2 repeated ones, embeddings in 8 dimensions",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def split(trials: int) -> list[Measured]:
    """Check the sum, what the first part depends on, its minimum, and the bounds of the second."""
    p, keys, edges, inside = instances(trials)
    parts, blind, tangent, rise, low, high, decay = [], [], [], [], [], [], []
    for b in range(trials):
        q, own = p[b], inside[b]
        finite, least = finite_minimum(q, own)
        goal = svm.graph_svm(keys[b], keys[b][:2], edges[b])
        rng = np.random.default_rng(b)
        for scale in (1.0, 10.0):
            W = scale * rng.normal(size=finite.shape)
            within, outside = split_loss(q, W, own)
            flat = projected(q, own, W)
            parts.append(abs(within + outside - log_loss(q, W)) / log_loss(q, W))
            blind.append(abs(within - split_loss(q, flat, own)[0]) / within)
            bounds = _bounds(q, own, W)
            low.append(outside / bounds[0])
            high.append(outside / bounds[1])
            rise.append(split_loss(q, finite + 0.1 * flat / np.linalg.norm(flat), own)[0] - least)
        slope = attention.gradient(q, Direct(finite), "log").matrix()
        # the second part has a gradient in the complement as well as in the span: remove it
        outer = (split_loss(q, finite + e * _unit(projected(q, own, slope)), own)[0] for e in (1e-4, -1e-4))
        up, down = outer
        tangent.append(abs(up - down) / 2e-4)
        far = split_loss(q, finite + np.array([40.0, 50.0])[:, None, None] * goal.W, own)
        decay.append(np.log(far[1][0] / far[1][1]) / 10.0)
        parts.append(abs(far[0][1] - least))
    middle, attained = _between(), _attained()
    return [
        Measured("the parts against the loss, largest relative error", max(parts), "<=", 1e-12),
        Measured("first part at W and at its projection, relative", max(blind), "<=", 1e-11),
        Measured("slope of the first part at its minimiser", max(tangent), "<=", 1e-7),
        Measured("smallest rise of the first part at distance 0.1 from it", min(rise), ">", 1e-6),
        Measured("second part over its lower bound", min(low), ">=", 1.0 - 1e-12),
        Measured("second part over its upper bound", max(high), "<=", 1.0 + 1e-12),
        Measured("two lists where the lower bound is attained: ratio", attained[0], "==", 1.0, tol=1e-9),
        Measured("the same for the upper bound, with far logits: ratio", attained[1], "==", 1.0, tol=1e-3),
        Measured("exponent of the second part along the graph SVM", np.mean(decay), "==", 1.0, tol=1e-3),
        Measured(
            "a key between two others: infimum of the loss minus that of the first part",
            middle,
            ">",
            0.5,
            breaks=True,
        ),
    ]


def _unit(W: FloatArray) -> FloatArray:
    return np.asarray(W / np.linalg.norm(W))


def _bounds(problem: Problem, inside: BoolArray, W: FloatArray) -> tuple[float, float]:
    """Bounds of the second part by the smallest margin between components."""
    a, value = attention.logits(problem, W), problem.X[..., 0]
    label = value > 0
    own = np.where(label, a, -np.inf).max(-1)
    count = value.sum(-1)
    outer = ~(inside | label)
    margin = float(np.where(outer, own[:, None] - a, np.inf).min())
    odds = np.where(inside | label, np.exp(a - own[:, None]), 0.0).sum(-1) / count
    low = np.log1p(np.exp(-margin) / count.max() / odds.max()) / problem.n
    high = (outer.sum(-1) / count).sum() / problem.n * np.exp(-margin)
    return float(low), float(high)


def _attained() -> tuple[float, float]:
    """Second part over its two bounds, where one strict edge and one list decide."""
    # a a b c is followed by a, a a b b by b: the smallest weight w is 1/2
    lists, labels = [[0, 0, 1, 2], [0, 0, 1, 1]], [0, 1]
    q = data.next_token_problem(lists, labels, np.eye(3), z=np.ones((2, 1)))
    inside = np.array([[True, True, True, False], [True] * 4])
    below, above = np.array([[0.0], [3.0], [-2.0]]), np.array([[0.0], [-20.0], [-12.0]])
    low = float(split_loss(q, below, inside)[1]) / _bounds(q, inside, below)[0]
    return low, float(split_loss(q, above, inside)[1]) / _bounds(q, inside, above)[1]


def _between() -> float:
    """Two edges away from a key in the middle of two others: no cycle, and no infimum of 0."""
    keys = np.array([[1.0], [0.0], [-1.0]])
    q = data.next_token_problem([[1, 0], [1, 2]], [1, 1], keys, z=np.ones((2, 1)))
    return min(log_loss(q, np.full((1, 1), w)) for w in np.linspace(-5, 5, 1001))


@claim(
    "prop-ntp-counts",
    title="At the finite part every token wins as often as expected; repeats move it, and not the direction",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="6 types, 2 queries, 12 sequences of 4 tokens each; the same with tokens written twice",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def counts(trials: int) -> list[Measured]:
    """Count wins against expectations, then repeat tokens."""
    off, moved, turned = [], [], []
    for seed in range(trials):
        rng = np.random.default_rng([2, seed])
        sequences, labels = data.random_next_tokens(6, 2, 12, 4, levels=2, seed=seed)
        keys = rng.normal(size=(6, 8)) / np.sqrt(8.0)
        extra = np.take_along_axis(sequences, rng.integers(0, 3, (24, 2)), 1)
        twice = np.concatenate([extra, sequences], 1)
        W, goal = {}, {}
        for name, seen in (("once", sequences), ("twice", twice)):
            edges = graphs.priority_graphs(seen, labels, 6)[:2]
            label = graphs.components(edges)
            q = data.next_token_problem(seen, labels, keys)
            own = graphs.in_component(seen, labels, label)
            W[name], goal[name] = finite_minimum(q, own)[0], svm.graph_svm(keys, keys[:2], edges).W
            off.append(_surplus(q, own, W[name], seen, labels))
        moved.append(np.linalg.norm(W["once"] - W["twice"]))
        turned.append(np.abs(goal["once"] - goal["twice"]).max())
    line = data.next_token_problem([[0, 1]] * 4, [0, 0, 0, 1], np.eye(2), z=np.ones((4, 1)))
    w = finite_minimum(line, np.ones((4, 2)))[0][:, 0]
    return [
        Measured("largest surplus of wins over expected wins", max(off), "<=", 1e-9),
        Measured(
            "won three times of four: the difference of the logits", w[0] - w[1], "==", np.log(3.0), tol=1e-9
        ),
        Measured("tokens repeated: median move of the finite part", np.median(moved), ">", 0.05),
        Measured("tokens repeated: change of the graph SVM", max(turned), "<=", 1e-12),
    ]


def _surplus(q: Problem, own: BoolArray, W: FloatArray, seen: IntArray, labels: IntArray) -> float:
    """Wins of each type, for each query, minus the wins that attention within components expects."""
    s = np.where(own, attention.probabilities(q, W), 0.0)
    s /= s.sum(-1, keepdims=True)
    out = np.zeros((2, 6))
    for i in range(q.n):
        out[seen[i, -1], labels[i]] += 1.0
        np.subtract.at(out[seen[i, -1]], seen[i], s[i])
    return float(np.abs(out).max())
