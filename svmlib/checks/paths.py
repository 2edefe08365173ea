"""Claims of the chapter on regularisation paths: prices of margins, directions, factors and certificates."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import minimize

from svmlib import attention, compare, data, dynamics, norms, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, gradient

from .registry import Measured, claim

PAGE = "implicit_bias/regularization_paths"
PAPER = "Transformers as Support Vector Machines (2023)"
RADII = (20.0, 80.0, 320.0, 1280.0)
# n = 2, T = 3, d = 3, seed 11, R = 5, 10, ..., 160: found once with L-BFGS and restarts, and rounded
TABLE = {
    ("fro", "fro"): (0.9221, 0.9826, 0.9955, 0.9985, 0.9995, 0.9998),
    ("nuc", "nuc"): (0.7970, 0.9703, 0.9892, 0.9975, 0.9995, 0.9999),
    ("fro", "nuc"): (0.787, 0.858, 0.878, 0.882, 0.882, 0.883),
    ("nuc", "fro"): (0.853, 0.854, 0.859, 0.873, 0.879, 0.881),
}


def instances(trials: int) -> data.Problem:
    """Random feasible instances 0 to trials - 1, small enough to follow both paths of many."""
    return data.random_problem(n=3, T=5, d=4, batch=trials)


@cache
def followed(trials: int, norm: str) -> tuple[data.Problem, svm.AttentionSVM, dynamics.Path]:
    """Random instances with their SVM and their path in one norm, computed once a process."""
    p = instances(trials)
    return p, svm.attention_svm(p, norm=norm), dynamics.regularization_path(p, RADII, norm, starts=1)


def smallest_margin(p: data.Problem, W: FloatArray) -> FloatArray:
    """Smallest margin of the optimal tokens at iterates (..., r, e, q) -> (..., r)."""
    margins = np.einsum("...ntd,...rde,...ne->...rnt", p.differences(), W, p.z)
    chosen = np.arange(p.T) == p.optimal[..., None, :, None]
    return np.asarray(np.where(chosen, np.inf, margins).min((-2, -1)))


def prices(p: data.Problem) -> tuple[FloatArray, FloatArray]:
    """Constants c_1 and c_2 of the price of a margin for the logistic loss, (...) each."""
    gamma = p.scores
    ordered = np.sort(gamma, axis=-1)
    gap, spread = ordered[..., -1] - ordered[..., -2], ordered[..., -1] - ordered[..., 0]
    steep, flat = (1.0 / (1.0 + np.exp(f)) for f in (gamma.min((-2, -1)), gamma.max((-2, -1))))
    upper = steep * (p.T - 1) * spread.mean(-1)
    return np.asarray(upper), np.asarray(flat * gap.min(-1) / p.n)


def hollow() -> data.Problem:
    """One sequence whose best token lies between the two others: no weights separate it."""
    return data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[0.0, 1.0, 0.0]])


@claim(
    "lem-path-price",
    title=r"$c_2/(1+e^{\Gamma(W)})\le\mathcal L(W)-\mathcal L_*\le c_1e^{-\Gamma(W)}$",
    kind="lemma",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, random W of five sizes, and multiples of the SVM solution",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def price(trials: int) -> list[Measured]:
    """Compare the excess loss with both bounds; a tie costs nothing."""
    p, rng = instances(trials), np.random.default_rng(0)
    W = rng.normal(size=(trials, 5, 4, 4)) * np.array([0.3, 1.0, 3.0, 10.0, 30.0])[:, None, None]
    W = np.concatenate([W, svm.attention_svm(p).W[:, None] * np.array([1.0, 5.0, 25.0])[:, None, None]], 1)
    excess, margin = dynamics.gap(p, W), smallest_margin(p, W)
    upper, lower = (c[:, None] for c in prices(p))
    tie = data.prompt_problem([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0, 1.0, 0.0]])
    at = 30.0 * np.ones((2, 1))
    return [
        Measured("smallest excess / lower bound", (excess * (1.0 + np.exp(margin)) / lower).min(), ">=", 1.0),
        Measured("largest excess / upper bound", (excess * np.exp(margin) / upper).max(), "<=", 1.0),
        Measured("margin of one of two tied tokens", smallest_margin(tie, at[None])[0], "==", 0.0),
        Measured("excess there", dynamics.gap(tie, at), "<=", 1e-12, breaks=True),
    ]


@claim(
    "thm-path-direction",
    title="The path turns to the SVM of its norm",
    source=f"{PAPER}, regularisation path; proof with constants in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, R = 20 to 1,280; the table: n, T, d = 2, 3, 3, seed 11, R = 5 to 160",
    seeds="0 to trials − 1; 11",
    trials=(40, 10),
)
def direction(trials: int) -> list[Measured]:
    """Margins against the bound, correlations with both SVMs, the printed table, an infeasible problem."""
    rows = []
    for norm, word in (("fro", "Frobenius"), ("nuc", "nuclear")):
        p, solution, path = followed(trials, norm)
        upper, lower = prices(p)
        C = np.log(2.0 * upper / lower)[:, None]
        best = solution.margin[:, None] * path.radii
        binding = best >= C
        short = (best - smallest_margin(p, path.W)) / C
        rows.append(
            Measured(
                f"{word}: largest missing margin / C", short[binding].max(), "<=", 1.0, "bound of item 1"
            )
        )
        fall = 1.0 - compare.correlation(path.W, solution.W)
        rows.append(Measured(f"{word}: largest 1 − corr at R = 1,280", fall[:, -1].max(), "<=", 5e-3))
        rows.append(
            Measured(f"{word}: median 1 − corr, R = 1,280 over 320", _ratio(fall), "<=", 0.15, "limit 1/16")
        )
        if norm == "fro":
            worst = (fall * best / C)[binding].max()
            rows.append(Measured("Frobenius: largest (1 − corr) ΓR / C", worst, "<=", 1.0, "item 3"))
    away, dull = _table()
    rows.append(Measured("table: largest difference from L-BFGS on the log excess", away, "<=", 6e-4))
    rows.append(Measured("table: (K, Q)-path with the Frobenius SVM at R = 160", dull, "<=", 0.89))
    rows.append(Measured("flat face: distance of $nW_R/R$ from the solution set", _face(), "<=", 1e-6))
    still = dynamics.regularization_path(hollow(), [1.0, 100.0])
    rows.append(
        Measured("infeasible: norm of $W_R$ at R = 100", np.abs(still.W[-1]).max(), "<=", 1e-6, breaks=True)
    )
    return rows


def _ratio(fall: FloatArray) -> float:
    return float(np.median(fall[:, -1]) / np.median(fall[:, -2]))


@cache
def _table() -> tuple[float, float]:
    p = data.random_problem(2, 3, 3, seed=11)
    off, dull = 0.0, 0.0
    for a in ("fro", "nuc"):
        path = dynamics.regularization_path(p, [5, 10, 20, 40, 80, 160], a, starts=1)
        for b in ("fro", "nuc"):
            found = compare.correlation(path.W, svm.attention_svm(p, norm=b).W)
            off = max(off, float(np.abs(found - TABLE[a, b]).max()))
            if (a, b) == ("nuc", "fro"):
                dull = float(found[-1])
    return off, dull


def _face() -> float:
    """Distance from the correlation matrices, the nuclear solutions of the standard example with n = 3."""
    X = np.stack([np.eye(3), np.zeros((3, 3))], axis=1)
    p = data.Problem(X, np.eye(3), np.ones(3), np.ones(3))
    W = dynamics.regularization_path(p, [1e4], "nuc").W[0] * 3e-4
    off = np.abs(W - W.T).max(), np.abs(np.diag(W) - 1.0).max(), -np.linalg.eigvalsh(W + W.T).min()
    return float(max(off))


@claim(
    "prop-path-active",
    title="Far out the loss falls along W, so the path uses its whole radius",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, random directions at the smallest margin allowed; both paths",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def active(trials: int) -> list[Measured]:
    """Sign of the slope along W where all margins exceed the threshold, and where they are only positive."""
    p, rng = instances(trials), np.random.default_rng(1)
    solution = svm.attention_svm(p)
    W = solution.W + 0.5 * solution.value[:, None, None] * rng.normal(size=solution.W.shape) / 4.0
    margin = smallest_margin(p, W[:, None])[:, 0]
    ordered = np.sort(p.scores, axis=-1)
    ratio = ((ordered[..., -1] - ordered[..., 0]) / (ordered[..., -1] - ordered[..., -2])).max(-1)
    threshold = np.log((p.T - 1) * ratio)
    use = margin > 1e-3
    far = W * np.where(use, 1.000001 * threshold / np.where(use, margin, 1.0), 1.0)[:, None, None]
    near = 0.3 * solution.W
    slope, early = ((gradient(p, Direct(V)).matrix() * V).sum((-2, -1)) / norms.FRO(V) for V in (far, near))
    size = norms.FRO(gradient(p, Direct(far)).matrix())
    count = min(trials // 5, 40)  # as many as the other claims follow at either scale
    off = [
        np.abs(norms.get(norm)(path.W) / path.radii - 1.0).max()
        for norm in ("fro", "nuc")
        for path in (followed(count, norm)[2],)
    ]
    # the nearer competitor has the lower score: attention first moves to it
    q = data.prompt_problem([[[1.0], [0.9], [0.0]]], [[1.0, 0.0, 0.9]])
    early = float(gradient(q, Direct([[1.0]])).matrix()[0, 0])
    return [
        Measured("share of directions tested", use.mean(), ">=", 0.3),
        Measured("largest slope along W over the gradient's size", (slope / size)[use].max(), "<", 0.0),
        Measured("largest relative distance of the norm from R, both paths", max(off), "<=", 1e-9),
        Measured("margins 0.1 and 1: slope of the loss along W", early, ">", 0.0, breaks=True),
    ]


@claim(
    "prop-path-factors",
    title=r"The $(K,Q)$-path is balanced and is the path of the nuclear ball",
    kind="proposition",
    source=f"{PAPER}, regularisation path; proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, R = 20 to 1,280",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def factors(trials: int) -> list[Measured]:
    """Norms of the factors and the nuclear ball's own certificate; L-BFGS on (K, Q) as a second opinion."""
    p, _, path = followed(trials, "nuc")
    assert path.K is not None and path.Q is not None
    K, Q, R = path.K, path.Q, path.radii
    gram = np.swapaxes(K, -1, -2) @ K - np.swapaxes(Q, -1, -2) @ Q
    sizes = (K**2).sum((-2, -1)), (Q**2).sum((-2, -1))
    gain = [_second_opinion(p[b], path.W[b, 0], float(R[0]), b) for b in range(min(trials, 5))]
    tilted = 0.5 * (4.0 * sizes[0] + sizes[1] / 4.0) / R
    still = dynamics.regularization_path(hollow(), [1.0, 100.0], "nuc")
    gram_size = (np.abs(gram) / R[:, None, None]).max()
    off = [np.abs(a / R - 1.0).max() for a in (*sizes, norms.NUC(path.W))]
    infeasible = norms.NUC(still.W[-1]) / 100.0
    return [
        Measured(r"largest $|\|K\|_F^2/R-1|$", off[0], "<=", 1e-9),
        Measured(r"largest $|\|Q\|_F^2/R-1|$", off[1], "<=", 1e-9),
        Measured(r"largest entry of $K^\top K-Q^\top Q$, over R", gram_size, "<=", 1e-9),
        Measured(r"largest $|\|KQ^\top\|_\star/R-1|$", off[2], "<=", 1e-9),
        Measured("largest Frank–Wolfe gap on the nuclear ball", path.stationarity.max(), "<=", 1e-9),
        Measured("log excess, ours minus the best of L-BFGS", max(gain), "<=", 1e-6, "5 instances, R = 20"),
        Measured("cost of $(2K,Q/2)$, the same product, over R", tilted.min(), ">", 1.5, breaks=True),
        Measured(r"infeasible: $\|KQ^\top\|_\star/R$ at R = 100", infeasible, "<=", 1e-8, breaks=True),
    ]


def _second_opinion(p: data.Problem, W: FloatArray, R: float, seed: int) -> float:
    """Log excess at W minus the best that scipy's L-BFGS finds over (K, Q) on the sphere, four starts."""
    d, rng = p.d, np.random.default_rng(seed)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        size = np.linalg.norm(x)
        K, Q = (x * np.sqrt(2.0 * R) / size).reshape(2, d, d)
        value = float(dynamics.gap(p, K @ Q.T))
        G = gradient(p, Direct(K @ Q.T)).matrix() / value
        g = np.stack([G @ Q, G.T @ K]).ravel() * np.sqrt(2.0 * R) / size
        return float(np.log(value)), g - (g @ x) * x / size**2

    best = min(
        minimize(objective, rng.normal(size=2 * d * d), jac=True, method="L-BFGS-B").fun for _ in range(4)
    )
    return float(np.log(dynamics.gap(p, W)) - best)


@claim(
    "prop-path-decay",
    title="Minimisers with weight decay lie on the path, and their radius grows as the decay vanishes",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 2, 3, 3, seed 11, decay 1e-2 to 1e-8; BFGS, a trial is a start",
    seeds="11",
    trials=(4, 2),
)
def decay(trials: int) -> list[Measured]:
    """Minimise the penalised loss with scipy; compare with the path at the norm that came out."""
    p = data.random_problem(2, 3, 3, seed=11)
    rows = []
    for norm, word in (("fro", "Frobenius"), ("nuc", "nuclear")):
        solution = svm.attention_svm(p, norm=norm)
        found = [_penalised(p, norm, c, trials) for c in (1e-2, 1e-4, 1e-6, 1e-8)]
        radii = np.array([float(norms.get(norm)(W)) for W in found])
        path = dynamics.regularization_path(p, radii, norm)
        here = np.array([float(dynamics.gap(p, W)) for W in found])
        off = np.abs(np.log(here) - path.log_gap).max()
        corr = compare.correlation(np.stack(found), solution.W)
        rows += [
            Measured(f"{word}: largest difference in log excess from the path", off, "<=", 1e-8),
            Measured(f"{word}: smallest ratio of successive radii", (radii[1:] / radii[:-1]).min(), ">", 1.2),
            Measured(f"{word}: correlation with the SVM at decay 1e-8", corr[-1], ">=", 0.99),
            Measured(f"{word}: that at decay 1e-2", corr[0], "<=", 0.95),
        ]
    return rows


def _penalised(p: data.Problem, norm: str, c: float, starts: int) -> FloatArray:
    """Minimise the excess logistic loss plus c times the squares with BFGS, by formulas of its own."""
    d, best_token = p.d, p.optimal[:, None]
    score = np.take_along_axis(p.scores, best_token, -1)
    missing = score - p.scores  # (n, T)
    delta = p.X - np.take_along_axis(p.X, best_token[..., None], 1)
    pull = 1.0 / (1.0 + np.exp(score[:, 0]))  # slope of the loss at the best score, made positive

    def excess(W: FloatArray) -> tuple[float, FloatArray]:
        logit = (delta @ W @ p.z[..., None])[..., 0]
        odds = np.exp(logit - logit.max(-1, keepdims=True))
        s = odds / odds.sum(-1, keepdims=True)
        e = (s * missing).sum(-1)
        slope = pull * np.exp(e) / (1.0 + pull * np.expm1(e)) / p.n
        weight = slope[:, None] * s * (missing - e[:, None])
        return float(np.log1p(pull * np.expm1(e)).mean()), np.einsum("nt,ntd,ne->de", weight, delta, p.z)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        if norm == "fro":
            value, G = excess(x.reshape(d, d))
            g = G.ravel()
        else:
            K, Q = x.reshape(2, d, d)
            value, G = excess(K @ Q.T)
            g = np.stack([G @ Q, G.T @ K]).ravel()
        return value / c + float(x @ x), g / c + 2.0 * x

    best: Any = None
    size = d * d if norm == "fro" else 2 * d * d
    for seed in range(starts):
        start = 2.0 * np.random.default_rng(seed).normal(size=size)
        run = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 2000})
        best = run if best is None or run.fun < best.fun else best
    x = np.asarray(best.x)
    if norm == "fro":
        return x.reshape(d, d)
    K, Q = x.reshape(2, d, d)
    return np.asarray(K @ Q.T)


@claim(
    "prop-path-floor",
    title="The SVM's multipliers bound the excess loss of every matrix in the ball from below",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 3, 5, 4, R = 20 to 1,280; 200 random matrices of norm R each",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def floor(trials: int) -> list[Measured]:
    """Random matrices, the path and multiples of the SVM against the bound."""
    rows, rng = [], np.random.default_rng(2)
    for norm, word in (("fro", "Frobenius"), ("nuc", "nuclear")):
        p, solution, path = followed(trials, norm)
        V = rng.normal(size=(trials, 200, p.d, p.d)) * rng.uniform(0, 0.5, size=(trials, 200, 1, 1))
        V = V + solution.W[:, None] * norms.FRO(V)[..., None, None]
        V = 20.0 * V / norms.get(norm)(V)[..., None, None]
        least = (np.log(dynamics.gap(p, V)) - path.log_floor[:, :1]).min()
        over = path.log_gap - path.log_floor
        rows += [
            Measured(f"{word}: smallest log(excess / bound), random matrices, R = 20", least, ">=", 0.0),
            Measured(f"{word}: the same on the path", over.min(), ">=", 0.0),
            Measured(f"{word}: largest on the path at R = 1,280", over[:, -1].max(), "<=", 0.1),
            Measured(f"{word}: median at R = 1,280 over 320", _ratio(over), "in", (0.15, 0.35)),
        ]
    p, solution, path = followed(trials, "fro")
    outside = np.log(dynamics.gap(p, 1.5 * 320.0 * solution.margin[:, None, None] * solution.W))
    beyond = (outside - path.log_floor[:, 2]).max()
    rows.append(Measured("outside the ball, norm 1.5 R, R = 320: largest", beyond, "<", 0.0, breaks=True))
    return rows


def outside_probability(path: dynamics.Path, p: data.Problem) -> FloatArray:
    """Smallest probability of the selected tokens along a path, (..., r)."""
    s = attention.probabilities(p, path.W)
    index = np.broadcast_to(path.tokens[..., None, :, None], (*s.shape[:-1], 1))
    return np.asarray(np.take_along_axis(s, index, -1)[..., 0].min(-1))
