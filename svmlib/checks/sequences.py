"""Claims of the chapter on sequences: every position is an example, and repeated tokens ask in turn."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import nnls

from svmlib import attention, compare, data, graphs, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Direct
from svmlib.data import Problem

from .registry import Measured, claim

PAGE = "nonlinear/sequences"
PAPER = "Transformers as Support Vector Machines (2023), section on sequential and causal prediction"


def looped_loss(X: FloatArray, y: FloatArray, v: FloatArray, W: torch.Tensor, causal: bool) -> torch.Tensor:
    """Logistic loss of all positions, by loops over sequences and positions.

    Parameters
    ----------
    X, y, v : ndarray, shapes (n, T, d), (n, T) and (d,)
        Tokens, labels and linear head.
    W : Tensor, shape (d, d)
        Attention matrix.
    causal : bool
        Whether position j reads the tokens up to j alone.

    Returns
    -------
    Tensor
        The mean over all positions.
    """
    n, T, _ = X.shape
    tokens, head = torch.tensor(X), torch.tensor(v)
    total: torch.Tensor = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        for j in range(T):
            seen = tokens[i, : j + 1] if causal else tokens[i]
            weights = torch.exp(seen @ W @ tokens[i, j])
            output = (weights / weights.sum()) @ seen
            total = total + torch.log(1.0 + torch.exp(-float(y[i, j]) * (output @ head)))
    mean: torch.Tensor = total / (n * T)
    return mean


def looped_constraints(X: FloatArray, tokens: FloatArray, causal: bool) -> FloatArray:
    """(m, d d) constraint matrices of all positions as rows, by loops.

    Parameters
    ----------
    X : ndarray, shape (n, T, d)
        Tokens.
    tokens : ndarray of int, shape (n, T)
        Selected token of every position.
    causal : bool
        Whether position j reads the tokens up to j alone.

    Returns
    -------
    ndarray
        One row for each position and each other token that it sees.
    """
    rows = []
    for i in range(len(X)):
        for j in range(X.shape[1]):
            for t in range(j + 1 if causal else X.shape[1]):
                if t != tokens[i, j]:
                    rows.append(np.outer(X[i, tokens[i, j]] - X[i, t], X[i, j]).ravel())
    return np.array(rows)


def least_norm(A: FloatArray) -> tuple[FloatArray, float]:
    """Shortest w with A w >= 1 by nonnegative least squares, and how far the rows' hull is from 0.

    Parameters
    ----------
    A : ndarray, shape (m, k)
        Rows.

    Returns
    -------
    w : ndarray, shape (k,)
        The solution; meaningless where the distance is 0.
    distance : float
        Norm of the residual: 0 where a combination of the rows with nonnegative weights vanishes.
    """
    E = np.vstack([A.T, np.ones(len(A))])
    goal = np.r_[np.zeros(A.shape[1]), 1.0]
    u, distance = nnls(E, goal)
    r = E @ u - goal
    return -r[:-1] / r[-1] if distance > 1e-9 else np.full(A.shape[1], np.nan), float(distance)


def _numbers(n: int, T: int, d: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, T, d))
    return X, rng.choice([-1.0, 1.0], (n, T)), rng.normal(size=d), rng.normal(size=(d, d))


@claim(
    "prop-seq-rows",
    title="Every position is a cross-attention example; a causal mask shortens its list",
    kind="proposition",
    source=PAPER,
    chapter=PAGE,
    scope="n = 2, T = 4, d = 8, logistic loss, Gaussian data; loops over positions with autograd",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def rows(trials: int) -> list[Measured]:
    """Compare losses, gradients, constraints and solutions with loops over positions."""
    loss, gradient, solution, same, first, peek = [], [], [], [], [], []
    size, ratio = {}, []
    for seed in range(trials):
        X, y, v, W = _numbers(2, 4, 8, seed)
        margin, value = {}, {}
        for causal in (False, True):
            p = data.sequence_problem(X, y, v, causal=causal)
            w = torch.tensor(W, requires_grad=True)
            by_hand = looped_loss(X, y, v, w, causal)
            (slope,) = torch.autograd.grad(by_hand, w)
            value[causal] = float(attention.loss(p, W))
            loss.append(abs(value[causal] - by_hand.item()))
            G = attention.gradient(p, Direct(W)).matrix()
            gradient.append(np.linalg.norm(G - slope.numpy()) / np.linalg.norm(G))
            # one selection that both masks allow
            tokens = np.array([[0, 1, 0, 2], [0, 0, 2, 3]])
            solved = svm.attention_svm(p, tokens.ravel())
            A = looped_constraints(X, tokens, causal)
            mine = np.einsum("nte,nq->nteq", p.differences(tokens.ravel()), p.z)[solved.constrained]
            same.append(_apart(mine.reshape(len(mine), -1), A))
            solution.append(np.linalg.norm(solved.W.ravel() - least_norm(A)[0]) / solved.value)
            margin[causal] = float(solved.margin)
            size[causal] = len(A)
            if causal:
                flipped = y.copy()
                flipped[:, 0] *= -1
                other = attention.gradient(data.sequence_problem(X, flipped, v, causal=True), Direct(W))
                first.append(np.abs(other.matrix() - G).max())
        ratio.append(margin[True] / margin[False])
        peek.append(abs(value[True] - value[False]))
    return [
        Measured("largest difference of the losses", max(loss), "<=", 1e-12),
        Measured("largest relative difference of the gradients", max(gradient), "<=", 1e-12),
        Measured("largest difference of the sorted constraint matrices", max(same), "<=", 1e-12),
        Measured("largest relative difference of the SVM solutions", max(solution), "<=", 1e-8),
        Measured("constraints, causal over sequence", size[True] / size[False], "==", 0.5),
        Measured("smallest causal margin over sequence margin", min(ratio), ">=", 1.0 - 1e-9),
        Measured("causal: change of the gradient when the first labels flip", max(first), "==", 0.0),
        Measured("without the mask: smallest difference of the losses", min(peek), ">", 1e-4, breaks=True),
    ]


def _apart(a: FloatArray, b: FloatArray) -> float:
    """Largest distance of two sets of rows, infinite where their numbers differ."""
    if a.shape != b.shape:
        return np.inf
    order = [x[np.lexsort(x.T.round(9))] for x in (a, b)]
    return float(np.abs(order[0] - order[1]).max())


def _drawn(n: int, T: int, causal: bool, rng: np.random.Generator) -> FloatArray:
    last = np.tile(np.arange(T), n) if causal else np.full(n * T, T - 1)
    return np.asarray(rng.integers(0, last + 1))


@claim(
    "thm-seq-feasible",
    title="All positions can select as they like if $d\\ge nT$, causal if $d\\ge n(T-1)$",
    kind="theorem",
    source=f"{PAPER}; proof in the chapter",
    chapter=PAGE,
    scope="n = 2, T = 5 at d = 10 (sequence) and 8 (causal), random selections; n = T = 4 at d = 6",
    seeds="0 to trials − 1",
    trials=(60, 15),
)
def feasible(trials: int) -> list[Measured]:
    """Solve at the smallest width of the theorem, far below it, and with a token that asks twice."""
    share: dict[bool, list[bool]] = {False: [], True: []}
    equal, below, twice = [], {False: [], True: []}, []  # type: ignore[var-annotated]
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        for causal, d in ((False, 10), (True, 8)):
            p = data.random_sequence_problem(2, 5, d, seed=seed, causal=causal)
            tokens = _drawn(2, 5, causal, rng)
            share[causal].append(bool(svm.feasible(p, tokens)))
            equal.append(_equal_margins(p, tokens))
            q = data.random_sequence_problem(4, 4, 6, seed=seed, causal=causal)
            below[causal].append(bool(svm.feasible(q, _drawn(4, 4, causal, rng))))
        X, y, v, _ = _numbers(1, 4, 20, seed)
        X[0, 3] = X[0, 2]  # the same token asks at two positions, and chooses the other order
        p = data.sequence_problem(X, y, v, causal=True)
        twice.append(bool(svm.feasible(p, [0, 0, 0, 1])))
    return [
        Measured("sequence, d = nT: share feasible", np.mean(share[False]), "==", 1.0),
        Measured("causal, d = n(T − 1): share feasible", np.mean(share[True]), "==", 1.0),
        Measured("the proof's matrix: largest distance of a margin from 1", max(equal), "<=", 1e-6),
        Measured("causal, d = n(T − 1)/2: share feasible", np.mean(below[True]), ">=", 0.95),
        Measured(
            "one token asks twice and contradicts itself, d = 20: share feasible",
            np.mean(twice),
            "==",
            0.0,
            breaks=True,
        ),
    ]


def _equal_margins(p: Problem, tokens: FloatArray) -> float:
    """Distance from 1 of the margins of the matrix in the proof."""
    delta, constrained = p.differences(tokens), p.visible & (np.arange(p.T) != tokens[:, None])
    asks = constrained.any(-1)
    pointers = [
        np.linalg.lstsq(delta[r][constrained[r]], np.ones(constrained[r].sum()))[0] for r in asks.nonzero()[0]
    ]
    W = np.array(pointers).T @ np.linalg.pinv(p.z[asks].T)
    margins = np.einsum("nte,eq,nq->nt", delta, W, p.z)
    return float(np.abs(margins[constrained] - 1.0).max())


def pairs(keys: FloatArray, queries: FloatArray, edges: BoolArray) -> tuple[Problem, FloatArray]:
    """Problem with one sequence of two tokens for each edge, and its constraint matrices as rows.

    Parameters
    ----------
    keys, queries : ndarray, shapes (V, e) and (G, q)
        Embeddings of token types and queries.
    edges : ndarray of bool, shape (G, V, V)
        Priority graphs.

    Returns
    -------
    problem : Problem
        The first token of each sequence is the one with priority.
    rows : ndarray, shape (m, e q)
        Its constraint matrices.
    """
    g, a, b = np.nonzero(edges)
    tokens = np.stack([keys[a], keys[b]], 1)
    p = Problem(np.zeros((len(g), 2, 1)), queries[g], np.ones(len(g)), keys=tokens)
    return p, np.einsum("me,mq->meq", keys[a] - keys[b], queries[g]).reshape(len(g), -1)


def random_edges(G: int, V: int, density: float, rng: np.random.Generator) -> BoolArray:
    """Random directed graphs, at least one edge in all.

    Parameters
    ----------
    G, V : int
        Graphs and types.
    density : float
        Probability of an edge.
    rng : Generator
        Source of random numbers.

    Returns
    -------
    ndarray of bool, shape (G, V, V)
        Edges.
    """
    edges = (rng.random((G, V, V)) < density) & ~np.eye(V, dtype=bool)
    edges[0, 0, 1] |= not edges.any()
    return edges


@claim(
    "thm-seq-orders",
    title="Conflicting orders: feasible if and only if the priority graphs are acyclic",
    kind="theorem",
    source="proof in the chapter; the graphs are those of Li et al. (2024)",
    chapter=PAGE,
    scope="two queries, four types of tokens, keys in 3 dimensions, queries in 2; random graphs",
    seeds="0 to trials − 1",
    trials=(200, 60),
)
def orders(trials: int) -> list[Measured]:
    """Compare the SVM of all edges with acyclicity, where data are independent and where they are not."""
    agree, ordered, heights, cyclic, flat, hull, lost = [], [], [], [], [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        keys, queries = rng.normal(size=(4, 3)), rng.normal(size=(2, 2))
        edges = random_edges(2, 4, 0.25, rng)
        acyclic = bool(graphs.acyclic(edges).all())
        p, _ = pairs(keys, queries, edges)
        agree.append(bool(svm.feasible(p, np.zeros(p.n))) == acyclic)
        ordered.append(acyclic)
        if acyclic:  # the proof's matrix: logits are heights in the graphs
            affine = np.c_[keys, np.ones(4)]
            P = np.linalg.solve(affine, graphs.levels(edges).T.astype(float))[:3]
            W = P @ np.linalg.inv(queries.T)
            heights.append(compare.margins(W, p.keys, p.z, np.zeros(p.n))[:, 1].min())
        # keys in one dimension, queries parallel: nothing is independent
        narrow, rows_ = pairs(keys[:, :1], queries[:, :1], edges)
        possible = bool(svm.feasible(narrow, np.zeros(p.n)))
        if not acyclic:
            cyclic.append(possible)
        else:
            lost.append(possible)
        flat.append(possible)
        hull.append(possible == (least_norm(rows_ / np.linalg.norm(rows_, axis=1, keepdims=True))[1] > 1e-9))
    return [
        Measured("independent: share where feasible means acyclic", np.mean(agree), "==", 1.0),
        Measured("share of acyclic graphs among them", np.mean(ordered), "in", (0.1, 0.9)),
        Measured("the proof's matrix: smallest margin", min(heights), ">=", 1.0 - 1e-9),
        Measured("dependent keys and queries, some cycle: share feasible", np.mean(cyclic), "==", 0.0),
        Measured(
            "the same, all: share where feasible means no combination vanishes", np.mean(hull), "==", 1.0
        ),
        Measured("the same: share feasible", np.mean(flat), "in", (0.02, 0.9)),
        Measured("dependent, no cycle: share feasible", np.mean(lost), "<", 0.9, breaks=True),
    ]
