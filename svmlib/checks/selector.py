"""Claims of the chapter on attention as a selector: softmax and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from svmlib import attention, data
from svmlib.arrays import FloatArray

from .registry import Measured, claim

PAGE = "foundations/selector"
STANDARD = "standard; proved in the chapter"
OWN = "derived and proved in the chapter"
PAPER = "Transformers as Support Vector Machines (2023), section 2; proved in the chapter"
LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "logistic": lambda f: torch.nn.functional.softplus(-f),
    "exponential": lambda f: torch.exp(-f),
    "linear": lambda f: -f,
}


def autograd(problem: data.Problem, weights: attention.Weights, loss: str = "logistic") -> list[FloatArray]:
    """Gradients by automatic differentiation of the plain forward pass: knows none of the closed forms."""
    X, z, y = (torch.tensor(a) for a in (problem.X, problem.z, problem.y))
    blocks = [torch.tensor(np.asarray(w), requires_grad=True) for w in weights]
    W = blocks[0] if len(blocks) == 1 else blocks[0] @ blocks[1].mT
    s = torch.softmax(torch.einsum("ntd,de,ne->nt", X, W, z), -1)
    u = torch.einsum("nt,ntd->nd", s, X)
    head = attention.linear(problem.v) if problem.v is not None else problem.head
    assert head is not None
    value = LOSSES[loss](y * head(u)).mean()
    value.backward()  # type: ignore[no-untyped-call]
    return [b.grad.numpy() for b in blocks if b.grad is not None]


def worst_entry(a: Any, b: Any) -> float:
    """Largest absolute difference of two arrays."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def _library_softmax(a: FloatArray) -> FloatArray:
    # one token dimension, W = z = 1: the layer's logits are the numbers in a
    problem = data.Problem(a[..., None, :, None], np.ones((*a.shape[:-1], 1, 1)), np.ones((*a.shape[:-1], 1)))
    return attention.probabilities(problem, np.ones((1, 1)))[..., 0, :]


@claim(
    "prop-softmax-facts",
    title="Softmax facts",
    kind="proposition",
    source=STANDARD,
    chapter=PAGE,
    scope="T = 7 Gaussian logits of standard deviation 2",
    seeds="0",
    trials=(400, 100),
)
def softmax_facts(trials: int) -> list[Measured]:
    """Compare every item with a computation that does not use it."""
    rng = np.random.default_rng(0)
    a, gamma, b = 2.0 * rng.normal(size=(3, trials, 7))
    h = 1e-6
    s = _library_softmax(a)
    J = attention.softmax_jacobian(s)
    numeric = np.stack([(softmax(a + h * e, -1) - softmax(a - h * e, -1)) / (2 * h) for e in np.eye(7)], -1)
    values = np.linalg.eigvalsh(J)
    covariance = (
        s * (gamma - (s * gamma).sum(-1, keepdims=True)) * (b - (s * b).sum(-1, keepdims=True))
    ).sum(-1)
    pair = np.linalg.eigvalsh(attention.softmax_jacobian([0.5, 0.5]))[-1]
    return [
        Measured(
            "item 1: change of $s$ when 100 is added to all logits",
            worst_entry(_library_softmax(a + 100), s),
            "<=",
            1e-12,
        ),
        Measured("item 2: Jacobian against central differences", worst_entry(J, numeric), "<=", 1e-8),
        Measured(
            "item 2: entries of Jacobian times the constant vector", worst_entry(J.sum(-1), 0), "<=", 1e-15
        ),
        Measured("item 2: smallest eigenvalue", values[:, 0].min(), ">=", -1e-15, "zero up to round-off"),
        Measured(
            "item 2: second smallest eigenvalue", values[:, 1].min(), ">", 1e-9, "the kernel is one line"
        ),
        Measured("item 2: largest eigenvalue", values[:, -1].max(), "<=", 0.5),
        Measured(
            "item 2: largest eigenvalue at $s=(1/2,1/2)$", pair, "==", 0.5, "the bound is sharp", tol=1e-15
        ),
        Measured(
            "item 3: bilinear form against covariance",
            worst_entry(np.einsum("bt,btu,bu->b", gamma, J, b), covariance),
            "<=",
            1e-13,
        ),
    ]


@claim(
    "prop-selector",
    title="Softmax as a selector",
    kind="proposition",
    source=STANDARD,
    chapter=PAGE,
    scope="T = 2, 8 and 64; margins between 0 and 30",
    seeds="0",
    trials=(400, 100),
)
def selector(trials: int) -> list[Measured]:
    """Odds and bounds over random logits; the lower bound for a token that is far behind."""
    rng = np.random.default_rng(0)
    odds, sums, low, high = 0.0, 0.0, np.inf, 0.0
    for T in (2, 8, 64):
        delta = rng.uniform(0, 30, (trials, 1)) + rng.exponential(2.0, (trials, T - 1)) * rng.integers(
            0, 2, (trials, 1)
        )
        s = _library_softmax(np.concatenate([np.zeros((trials, 1)), -delta], -1))
        missing, smallest = s[:, 1:].sum(-1), delta.min(-1)
        odds = max(odds, float(np.abs(s[:, 1:] / s[:, :1] * np.exp(delta) - 1).max()))
        E = np.exp(-delta).sum(-1)
        sums = max(sums, float(np.abs(missing * (1 + E) / E - 1).max()))
        low = min(low, float((2 * missing * np.exp(smallest)).min()))
        high = max(high, float((missing / ((T - 1) * np.exp(-smallest))).max()))
    behind = 1 - _library_softmax(np.array([-5.0, 0.0]))[0]
    return [
        Measured("relative error of $s_t/s_o=e^{-\\delta_t}$", odds, "<=", 1e-13),
        Measured("relative error of $1-s_o=E/(1+E)$", sums, "<=", 1e-13),
        Measured("missing probability over the lower bound", low, ">=", 1.0, "smallest ratio"),
        Measured("missing probability over the upper bound", high, "<=", 1.0, "largest ratio"),
        Measured(
            "lower bound over missing probability, $T=2$, $\\delta=-5$",
            np.exp(5.0) / 2 / behind,
            ">",
            1.0,
            breaks=True,
        ),
    ]


@claim(
    "prop-gradients",
    title="Gradients in closed form",
    kind="proposition",
    source=PAPER,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6, m = 3; heads linear, quadratic, ReLU (at points where it is differentiable); "
    "losses logistic, exponential, linear",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def gradients(trials: int) -> list[Measured]:
    """Largest entry of (closed form − autograd) over all heads, losses and seeds."""
    worst = {"W": 0.0, "K": 0.0, "Q": 0.0}
    for seed in range(trials):
        p = data.random_problem(4, 5, 6, seed=seed)
        rng = np.random.default_rng(seed)
        K, Q, V = rng.normal(size=(3, 6, 3))
        assert p.v is not None
        heads = (attention.quadratic(p.v, 0.3), attention.mlp(V))
        for problem in (p, *(data.Problem(p.X, p.z, p.y, head=h) for h in heads)):
            for loss in LOSSES:
                for weights in (attention.Direct(rng.normal(size=(6, 6))), attention.Factored(K, Q)):
                    ours = attention.gradient(problem, weights, loss)
                    for name, g, reference in zip(
                        weights._fields, ours, autograd(problem, weights, loss), strict=True
                    ):
                        worst[name] = max(worst[name], worst_entry(g, reference))
    return [
        Measured(f"$\\nabla_{k}$: largest difference of an entry", v, "<=", 1e-14) for k, v in worst.items()
    ]


@claim(
    "prop-covariance",
    title="Covariance and pairs",
    kind="proposition",
    source=PAPER,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6, logistic loss",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def covariance(trials: int) -> list[Measured]:
    """Sum the votes pair by pair; compare with autograd, and entries with the matrix form."""
    votes, directional, entries = [], [], []
    for seed in range(trials):
        p, rng = data.random_problem(4, 5, 6, seed=seed), np.random.default_rng(seed)
        W, V = rng.normal(size=(2, 6, 6))
        (G,) = autograd(p, attention.Direct(W))
        s, gamma = attention.probabilities(p, W), p.scores
        slope = 1 / (1 + np.exp((s * gamma).sum(-1)))  # |l'| of the logistic loss
        total = np.zeros((6, 6))
        for i in range(p.n):
            for t in range(p.T):
                for u in range(t):
                    vote = s[i, t] * s[i, u] * (gamma[i, t] - gamma[i, u])
                    total += slope[i] * vote * np.outer(p.X[i, t] - p.X[i, u], p.z[i]) / p.n
        b = attention.logits(p, V)
        mean = (s * gamma).sum(-1, keepdims=True)
        cov = (s * (gamma - mean) * (b - (s * b).sum(-1, keepdims=True))).sum(-1)
        votes.append(worst_entry(total, -G))
        directional.append(worst_entry(-(slope * cov).mean(), (G * V).sum()))
        matrix = np.einsum("ntu,nu->nt", attention.softmax_jacobian(s), gamma)
        entries.append(
            worst_entry(matrix, s * np.einsum("nu,ntu->nt", s, gamma[:, :, None] - gamma[:, None]))
        )
    return [
        Measured("sum of the votes of all pairs against autograd", max(votes), "<=", 1e-14),
        Measured("covariance form against the directional derivative", max(directional), "<=", 1e-13),
        Measured("entries of $\\mathbb{S}'(a)\\gamma$, matrix against pairs", max(entries), "<=", 1e-14),
    ]


@claim(
    "prop-differences",
    title="Only differences matter",
    kind="proposition",
    source=PAPER,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def differences(trials: int) -> list[Measured]:
    """Shift the tokens of sequences, make scores equal, compare gradients by autograd."""
    probability, rows, silent, lonely = [], [], [], []
    linear: list[float] = []
    logistic: list[float] = []
    for seed in range(trials):
        p, rng = data.random_problem(4, 5, 6, seed=seed), np.random.default_rng(seed)
        W = attention.Direct(rng.normal(size=(6, 6)))
        moved = data.Problem(p.X + rng.normal(size=(4, 1, 6)), p.z, p.y, p.v)
        s, t = attention.probabilities(p, W), attention.probabilities(moved, W)
        inner = [
            np.einsum("ntd,ntu,nu->nd", q.X, attention.softmax_jacobian(r), q.scores)
            for q, r in ((p, s), (moved, t))
        ]
        assert p.v is not None
        flat = p.X.copy()
        flat[0] -= np.outer(flat[0] @ p.v, p.v) / (p.v @ p.v)  # all scores of the first sequence are 0
        (with_it,) = autograd(data.Problem(flat, p.z, p.y, p.v), W)
        (without,) = autograd(data.Problem(p.X[1:], p.z[1:], p.y[1:], p.v), W)
        probability.append(worst_entry(s, t))
        rows.append(worst_entry(*inner))
        silent.append(worst_entry(4 * with_it, 3 * without))
        alone = np.ones((4, 5), dtype=bool)
        alone[0, 1:] = False  # one token of the first sequence is present
        masked = data.Problem(p.X, p.z, p.y, p.v, mask=alone)
        lonely.append(worst_entry(4 * attention.gradient(masked, W)[0], 3 * without))
        for loss, out in (("linear", linear), ("logistic", logistic)):
            G, H = (autograd(q, W, loss)[0] for q in (p, moved))
            out.append(float(np.linalg.norm(G - H) / np.linalg.norm(G)))
    return [
        Measured("item 1: change of the probabilities under shifted tokens", max(probability), "<=", 1e-12),
        Measured("item 1: change of $X^\\top\\mathbb{S}'(a)\\gamma$", max(rows), "<=", 1e-12),
        Measured("item 2: share of a sequence with equal scores in the gradient", max(silent), "<=", 1e-14),
        Measured("item 2: share of a sequence of one token in the gradient", max(lonely), "<=", 1e-14),
        Measured("item 1: relative change of the gradient, linear loss", max(linear), "<=", 1e-12),
        Measured(
            "item 1: relative change of the gradient, logistic loss",
            min(logistic),
            ">=",
            1e-3,
            "smallest of all seeds",
            breaks=True,
        ),
    ]
