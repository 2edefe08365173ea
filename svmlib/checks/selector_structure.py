"""Claims of the chapter on attention as a selector: where gradients and steps can go, and descent."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from svmlib import attention, compare, data, dynamics, norms
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .selector import LOSSES, OWN, PAGE, PAPER, STANDARD, autograd, worst_entry


def conflict() -> data.Problem:
    """Two sequences with the same tokens and query and opposite labels: no matrix separates both."""
    return data.Problem(np.array([[[1.0], [-1.0]]] * 2), np.ones((2, 1)), np.array([1.0, -1.0]), np.ones(1))


def _repeat(problem: data.Problem, r: int) -> data.Problem:
    # one copy for each of r iterates, so that gradients can be taken at all of them at once
    assert problem.v is not None
    arrays = (problem.X, problem.z, problem.y, problem.v)
    return data.Problem(*(np.repeat(a[:, None], r, axis=1) for a in arrays))


def _outside(M: FloatArray, basis: FloatArray) -> float:
    """Share of M (as a vector) outside the span of the rows of ``basis``."""
    _, size, rows = np.linalg.svd(basis, full_matrices=False)
    keep = rows[size > 1e-10 * size[0]]
    m = M.ravel()
    return float(np.linalg.norm(m - keep.T @ (keep @ m)) / np.linalg.norm(m))


@claim(
    "prop-span",
    title="Rank and span of gradients and iterates",
    kind="proposition",
    source=PAPER,
    chapter=PAGE,
    scope="n = 2, T = 4, d = 8; 150 steps of gradient descent, $\\eta=2$, with gradients from autograd",
    seeds="0 to trials − 1",
    trials=(3, 2),
)
def span(trials: int) -> list[Measured]:
    """Train with autograd, which is told nothing of the span, and project the iterates on its complement."""
    worst: dict[str, list[float]] = {"span": [], "rows": [], "columns": [], "rank": [], "sign": []}
    for seed in range(trials):
        p = data.random_problem(2, 4, 8, seed=seed)
        pairs = p.X[:, :, None] - p.X[:, None]
        basis = np.einsum("ntud,ne->ntude", pairs, p.z).reshape(-1, 64)
        start = np.random.default_rng(seed).normal(size=(8, 8))
        (G,) = autograd(p, attention.Direct(start))
        for W0 in (start, np.zeros((8, 8))):
            W = W0
            for _ in range(150):
                (g,) = autograd(p, attention.Direct(W))
                W = W - 2.0 * g
            worst["span"].append(_outside(W - W0, basis))
        worst["rank"].append(int(compare.rank(W, rtol=1e-10)))
        worst["rows"].append(max(_outside(row, p.z) for row in W))
        worst["columns"].append(max(_outside(column, pairs.reshape(-1, 8)) for column in W.T))
        worst["sign"].append(_outside(np.sign(G), basis))
    return [
        Measured("share of $W(k)-W(0)$ outside the span", max(worst["span"]), "<=", 1e-12),
        Measured("rank of $W(k)$ from $W(0)=0$", max(worst["rank"]), "<=", 2),
        Measured("share of its rows outside the span of the queries", max(worst["rows"]), "<=", 1e-12),
        Measured(
            "share of its columns outside the span of the token differences",
            max(worst["columns"]),
            "<=",
            1e-12,
        ),
        Measured(
            "share of a step of sign descent outside the span", min(worst["sign"]), ">=", 0.1, breaks=True
        ),
    ]


@claim(
    "prop-flow-invariant",
    title="$K^\\top K-Q^\\top Q$ is conserved by gradient flow",
    kind="proposition",
    source=STANDARD,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6, m = 3; logistic loss; training time 50",
    seeds="0 to trials − 1",
    trials=(4, 2),
)
def flow_invariant(trials: int) -> list[Measured]:
    """One step against the exact formula; total drift at three step sizes."""
    p = data.random_problem(4, 5, 6, batch=trials)
    K, Q = 0.5 * np.random.default_rng(0).normal(size=(2, trials, 6, 3))

    def invariant(w: Any) -> FloatArray:
        return np.asarray(np.swapaxes(w.K, -1, -2) @ w.K - np.swapaxes(w.Q, -1, -2) @ w.Q)

    start = attention.Factored(K, Q)
    g = [autograd(p[b], attention.Factored(K[b], Q[b])) for b in range(trials)]
    gK, gQ = (np.stack(x) for x in zip(*g, strict=True))
    step = attention.Factored(K - 0.1 * gK, Q - 0.1 * gQ)
    exact = 0.01 * invariant(attention.Factored(gK, gQ))
    drift = []
    for rate in (0.2, 0.1, 0.02):
        run = dynamics.train(p, start, dynamics.gradient_descent(rate), round(50 / rate), record=1)
        change = norms.FRO(invariant(run.weights) - invariant(start))
        drift.append(float((change / norms.FRO(invariant(start))).mean()))
    zero = attention.gradient(p, attention.Factored(0 * K, 0 * Q))
    note = "mean over the instances"
    return [
        Measured(
            "one step: change against the formula",
            worst_entry(invariant(step) - invariant(start), exact),
            "<=",
            1e-14,
        ),
        Measured("relative drift at $\\eta=0.2$", drift[0], "<=", 0.02, note),
        Measured("relative drift at $\\eta=0.02$", drift[2], "<=", 0.002, note),
        Measured(
            "drift at $\\eta=0.2$ over drift at $\\eta=0.02$",
            drift[0] / drift[2],
            "in",
            (9.0, 11.0),
            "order $\\eta$",
        ),
        Measured(
            "drift at $\\eta=0.2$ over drift at $\\eta=0.1$",
            drift[0] / drift[1],
            "in",
            (1.8, 2.2),
            "order $\\eta$",
        ),
        Measured(
            "gradient at $K=Q=0$", max(worst_entry(x, 0) for x in zero), "==", 0.0, "a stationary point"
        ),
    ]


def _curvature(problem: data.Problem, W: FloatArray, loss: str) -> float:
    """Operator norm of the Hessian of the training loss at W, by automatic differentiation."""
    X, z, gamma = (torch.tensor(a) for a in (problem.X, problem.z, problem.scores))

    def value(weights: torch.Tensor) -> torch.Tensor:
        s = torch.softmax(torch.einsum("ntd,de,ne->nt", X, weights, z), -1)
        return torch.as_tensor(LOSSES[loss]((s * gamma).sum(-1)).mean())

    hessian = torch.autograd.functional.hessian(value, torch.tensor(W))  # type: ignore[no-untyped-call]
    return float(np.linalg.norm(hessian.reshape(W.size, W.size).numpy(), 2))


@claim(
    "prop-smooth",
    title="Lipschitz constant of the gradient",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 4, d = 3; logistic and exponential loss; Hessians by autograd at W of scale 0.1 to 10",
    seeds="0 to trials − 1",
    trials=(12, 5),
)
def smooth(trials: int) -> list[Measured]:
    """Operator norm of the Hessian against the bound."""
    ratios: dict[str, list[float]] = {"logistic": [], "exponential": []}
    for seed in range(trials):
        p, rng = data.random_problem(3, 4, 3, seed=seed), np.random.default_rng(seed)
        for loss, out in ratios.items():
            for scale in (0.1, 1.0, 10.0):
                curvature = _curvature(p, scale * rng.normal(size=(3, 3)), loss)
                out.append(curvature / float(attention.smoothness(p, loss)))
    note = "the constant holds for all W at once, so most points lie far below"
    return [
        Measured(f"largest curvature over $L_W$, {loss} loss", max(out), "<=", 1.0, note)
        for loss, out in ratios.items()
    ]


@claim(
    "lem-descent",
    title="Descent lemma",
    kind="lemma",
    source="Transformers as Support Vector Machines (2023), descent lemma; proved in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, logistic loss, 500 steps with $\\eta=1/L_W$ of the roughest instance",
    seeds="0 to trials − 1",
    trials=(10, 4),
)
def descent(trials: int) -> list[Measured]:
    """Run gradient descent and look at every step; then with a step size that is too large."""
    p = data.random_problem(6, 8, 10, batch=trials)
    L = float(attention.smoothness(p).max())
    run = dynamics.train(
        p, attention.Direct.random(p), dynamics.gradient_descent(1 / L), 500, record=range(501)
    )
    slopes = attention.gradient(_repeat(p, 501), attention.Direct(run.W))[0]
    squared = norms.FRO(slopes) ** 2
    change = np.diff(run.loss, axis=-1) + squared[:, :-1] / (2 * L)
    budget = squared[:, :-1].sum(-1) / (2 * L) / (run.loss[:, 0] - dynamics.infimum(p))
    wild = dynamics.train(
        conflict(),
        attention.Direct([[0.5]]),
        dynamics.gradient_descent(40 / float(attention.smoothness(conflict()))),
        50,
        record=range(51),
    )
    return [
        Measured(
            "largest value of $\\mathcal{L}(k+1)-\\mathcal{L}(k)+\\frac{\\eta}{2}\\|\\nabla\\|^2$",
            change.max(),
            "<=",
            1e-15,
        ),
        Measured(
            "$\\frac{\\eta}{2}\\sum_k\\|\\nabla\\|^2$ over $\\mathcal{L}(0)-\\mathcal{L}_*$",
            budget.max(),
            "<=",
            1.0,
        ),
        Measured(
            "gradient norm at the end over its start",
            np.sqrt(squared[:, -1] / squared[:, 0]).max(),
            "<=",
            0.5,
        ),
        Measured(
            "steps of 50 at which the loss rises, $\\eta=40/L_W$, two sequences in conflict",
            int((np.diff(wild.loss) > 0).sum()),
            ">=",
            1,
            breaks=True,
        ),
    ]
