"""Claims of the chapter on the attention SVM: feasibility, and what slack tokens do."""

from __future__ import annotations

import numpy as np

from svmlib import compare, data, norms, svm
from svmlib.arrays import FloatArray, IntArray

from .attention_svm import PAGE, PAPER, combine, hull_point, relative, solved
from .registry import Measured, claim


def _selections(p: data.Problem, seed: int = 0) -> IntArray:
    """One random selection of tokens for every instance."""
    return np.random.default_rng(seed).integers(0, p.T, p.X.shape[:-2])


def _witness(p: data.Problem, tokens: IntArray) -> FloatArray:
    r"""Weights :math:`W=PZ^\dagger` of the proof, with every constraint an equality."""
    delta = p.differences(tokens)
    rows = delta[np.arange(p.T) != tokens[..., None]].reshape(*p.batch_shape, p.n, p.T - 1, p.d)
    pointers = np.linalg.pinv(rows).sum(-1)  # least solution of rows @ p = 1
    return np.asarray(np.swapaxes(pointers, -1, -2) @ np.swapaxes(np.linalg.pinv(p.z), -1, -2))


@claim(
    "thm-feasibility",
    title=r"Feasible when $d\ge\max(T-1,n)$",
    kind="theorem",
    source=f"{PAPER}, section 5.2; proof in the chapter",
    chapter=PAGE,
    scope="n = T = d = 5, the smallest width allowed; random selections; cross- and self-attention",
    seeds="0 to trials − 1",
    trials=(100, 20),
)
def feasibility(trials: int) -> list[Measured]:
    """Solve at the smallest width allowed, with the proof's witness too; then drop each assumption."""
    rows = []
    for kind, own in (("cross", False), ("self", True)):
        p = data.random_problem(5, 5, 5, batch=trials, self_attention=own)
        tokens = _selections(p)
        share = svm.feasible(p, tokens).mean()
        m = compare.margins(_witness(p, tokens), p.X, p.z, tokens)
        off = np.abs(np.where(np.isfinite(m), m, 1.0) - 1.0).max()
        rows += [
            Measured(f"share feasible ({kind}-attention)", share, "==", 1.0),
            Measured(f"margins of the proof's weights, largest distance from 1 ({kind})", off, "<=", 1e-7),
        ]
    wide = data.random_problem(20, 5, 8, batch=trials)
    many = data.random_problem(20, 5, 4, batch=trials)
    doubled = data.random_problem(5, 5, 30, batch=trials)
    X = doubled.X.copy()
    X[:, 0, 1] = X[:, 0, 0]
    twin = data.Problem(X, doubled.z, doubled.y, doubled.v)
    tokens = np.zeros((trials, 5), dtype=np.int64)
    return [
        *rows,
        Measured(
            "share feasible at n = 20, T = 5, d = 8: not necessary", svm.feasible(wide).mean(), ">=", 0.95
        ),
        Measured(
            "share feasible at n = 20, T = 5, d = 4", svm.feasible(many).mean(), "<=", 0.15, breaks=True
        ),
        Measured(
            "share feasible at d = 30 with the selected token doubled",
            svm.feasible(twin, tokens).mean(),
            "==",
            0.0,
            breaks=True,
        ),
    ]


@claim(
    "prop-att-alternative",
    title=r"Largest margin = distance of the features' hull from 0; infeasible when 0 is in it",
    kind="proposition",
    source="Gordan's theorem of the alternative; proof in the chapter",
    chapter=PAGE,
    scope="n = T = 5 at d = 2 and 3, where some instances are infeasible; nuclear: n = 6, T = 8, d = 10",
    seeds="0 to trials − 1",
    trials=(100, 20),
)
def alternative(trials: int) -> list[Measured]:
    """Look for separating weights and for a hull point at 0; exactly one of the two exists."""
    agree, zero, apart = [], [], []
    for d in (2, 3):
        p = data.random_problem(5, 5, d, batch=trials)
        feasible = svm.feasible(p)
        distance = np.array([hull_point(p[b])[1] for b in range(trials)])
        agree.append((distance > 1e-9) == feasible)
        zero.append(distance[~feasible])
        apart.append(relative(distance[feasible], svm.attention_svm(p[feasible], norm="fro").margin))
    at_zero = np.concatenate(zero)
    q, t = solved(6, 8, 10, 40 if trials >= 40 else 10, "nuc")
    weights = t.multipliers / t.multipliers.sum((-2, -1), keepdims=True)
    nuclear = norms.SPEC(combine(q, weights, t.tokens))
    return [
        Measured("share where exactly one exists: weights, or a hull point at 0", np.mean(agree), "==", 1.0),
        Measured("instances of the rarer kind", min(len(at_zero), 2 * trials - len(at_zero)), ">=", 2),
        Measured("infeasible: norm of the hull point found, largest", at_zero.max(), "<=", 1e-9),
        Measured("feasible: its norm against the margin, largest relative error", max(apart), "<=", 1e-7),
        Measured(
            "nuclear: spectral norm of the hull point against the margin, relative error",
            relative(nuclear, t.margin),
            "<=",
            1e-8,
        ),
    ]


@claim(
    "lem-slack",
    title="Tokens with multiplier 0 can go",
    kind="lemma",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, all tokens off the margin masked",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def slack_tokens(trials: int) -> list[Measured]:
    """Mask the slack tokens and solve again; then mask the token with the largest multiplier instead."""
    p, s = solved(6, 8, 10, trials, "fro")
    _, t = solved(6, 8, 10, trials, "nuc")
    own = np.arange(p.T) == s.tokens[..., None]
    fewer = {
        name: svm.attention_svm(
            data.Problem(p.X, p.z, p.y, p.v, mask=own | found.support), s.tokens, norm=name
        )
        for name, found in (("fro", s), ("nuc", t))
    }
    top = s.multipliers == s.multipliers.max((-2, -1), keepdims=True)
    less = svm.attention_svm(data.Problem(p.X, p.z, p.y, p.v, mask=~top), s.tokens, norm="fro")
    return [
        Measured("share of tokens that go (fro)", 1 - (own | s.support).mean(), ">", 0.1),
        Measured(
            "angle between the solutions with and without them (fro)",
            compare.angle(fewer["fro"].W, s.W).max(),
            "<=",
            1e-6,
        ),
        Measured(
            "norms with and without them (nuc), relative error",
            relative(fewer["nuc"].value, t.value),
            "<=",
            1e-8,
        ),
        Measured(
            "token of the largest multiplier goes: fall of the norm, relative, smallest",
            (1 - less.value / s.value).min(),
            ">",
            1e-4,
            breaks=True,
        ),
    ]
