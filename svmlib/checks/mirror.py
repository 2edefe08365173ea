"""Claims of the chapter on a hierarchy of SVMs: SVMs in entry-wise norms, and paths that lead to them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog, minimize

from svmlib import attention, compare, data, dynamics, norms, svm
from svmlib.arrays import FloatArray

from .registry import Measured, claim

PAGE = "nonlinear/hierarchy"
OWN = "proof in the chapter"
EXPONENTS = (1.2, 1.75, 3.0, 10.0)
RADII = (5.0, 20.0, 80.0, 320.0)


def features(p: data.Problem, tokens: np.typing.ArrayLike) -> FloatArray:
    """(..., n, T, d, d) constraint matrices A; 0 at the selected token."""
    return np.asarray(p.differences(tokens)[..., None] * p.z[..., None, None, :])


def image(W: FloatArray, power: float) -> FloatArray:
    """Entries sign(W) |W|^power."""
    return np.asarray(np.sign(W) * np.abs(W) ** power)


@claim(
    "prop-lp-svm",
    title=r"Duality of the SVM in any norm; one solution for $1<p<\infty$",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n, T, d = 4, 5, 6, p = 1.2 to 10; the dual as a linear program for p = 1; one sequence for p = 1",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def duality(trials: int) -> list[Measured]:
    """Certificates, the entries of W from the multipliers, rivals, and the smallest dual norm by itself."""
    p = data.random_problem(4, 5, 6, batch=trials)
    A, rng = features(p, p.optimal), np.random.default_rng(0)
    worst, entries, rival, slack = [], [], [], []
    for e in EXPONENTS:
        s = svm.lp_svm(p, p=e)
        norm = norms.lp(e)
        G = np.einsum("bnt,bntij->bij", s.multipliers, A)
        unit = s.W / s.value[:, None, None]  # of two ways to write it, that smooth at 0
        pair = (G, image(unit, e - 1.0)) if e >= 2.0 else (unit, image(G, 1.0 / (e - 1.0)))
        entries.append(np.abs(pair[0] - pair[1]).max() / np.abs(pair[1]).max())
        worst.append(s.certificate.worst.max())
        margins = compare.margins(s.W, p.X, p.z, p.optimal)
        slack.append((s.multipliers * np.where(np.isfinite(margins), margins - 1.0, 0.0)).max())
        for size in (1e-3, 0.1):
            V = s.W + size * rng.normal(size=s.W.shape) * norms.FRO(s.W)[:, None, None]
            lowest = compare.margins(V, p.X, p.z, p.optimal).min((-2, -1))
            rival.append((norm(V) / lowest / s.value)[lowest > 0].min())
    plain = svm.attention_svm(p)
    two = np.abs(svm.lp_svm(p, p=2).W - plain.W).max()
    least = []
    for b in range(trials):  # minimise the largest entry of a convex combination of the features
        rows = A[b][svm.lp_svm(p[b], p=1).constrained].reshape(-1, 36).T
        one = np.ones((36, 1))
        bound = np.block([[rows, -one], [-rows, -one]])
        equal = np.r_[np.ones(rows.shape[1]), 0.0][None]
        cost = np.r_[np.zeros(rows.shape[1]), 1.0]
        least.append(
            linprog(cost, bound, np.zeros(72), equal, [1.0]).fun * float(svm.lp_svm(p[b], p=1).value)
        )
    flat = data.Problem(np.array([[[1.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]), np.ones(1))
    ways = [np.array([[t, 0.0], [1.0 - t, 0.0]]) for t in (0.0, 0.5)]
    best = float(svm.lp_svm(flat, [0], p=1).value)
    excess = max(float(norms.lp(1)(V)) / best - 1.0 for V in ways)
    low = min(float(compare.margins(V, flat.X, flat.z, [0]).min()) for V in ways)
    apart = float(norms.FRO(ways[0] - ways[1])) if low >= 1.0 and excess <= 1e-12 else np.nan
    return [
        Measured("worst certificate, p = 1.2 to 10", max(worst), "<=", 1e-9),
        Measured("largest relative error of $W$ made from $G$, or $G$ from $W$", max(entries), "<=", 1e-6),
        Measured("largest multiplier times slack", max(slack), "<=", 1e-8),
        Measured("smallest norm of rivals, scaled to be feasible, over the value", min(rival), ">", 1.0),
        Measured("p = 2: largest difference from the Frobenius solution", two, "<=", 1e-8),
        Measured("p = 1: least dual norm times value, largest", max(least), "==", 1.0, tol=1e-7),
        Measured("the same, smallest", min(least), "==", 1.0, tol=1e-7),
        Measured("p = 1, one sequence: distance of two solutions", apart, ">=", 0.5, breaks=True),
    ]


def lp_path(p: data.Problem, e: float, radii: tuple[float, ...], seed: int = 0) -> FloatArray:
    """(r, d, d) minimisers of the logistic loss on spheres of the l_p norm, by BFGS from random starts."""
    norm, shape, rng = norms.lp(e), (p.key_dim, p.query_dim), np.random.default_rng(seed)
    current, out = rng.normal(size=(4, *shape)), []

    def objective(x: FloatArray, R: float) -> tuple[float, FloatArray]:
        V = x.reshape(shape)
        size = float(norm(V))
        unit = V / size
        gap = float(dynamics.gap(p, R * unit))
        g = attention.gradient(p, attention.Direct(R * unit)).matrix() / gap
        slope = (R / size) * (g - (g * unit).sum() * image(unit, e - 1.0))
        return float(np.log(gap)), slope.ravel()

    for R in radii:
        found = [
            minimize(objective, V.ravel(), (R,), "BFGS", jac=True, options={"gtol": 1e-7}) for V in current
        ]
        best = min(found, key=lambda answer: float(answer.fun)).x.reshape(shape)
        out.append(R * best / float(norm(best)))
        current = best[None]  # warm start: the landscape gets steep
    return np.stack(out)


@claim(
    "cor-lp-path",
    title=r"The path in $\|\cdot\|_p$ turns to the $\ell_p$ SVM",
    kind="corollary",
    source="Theorem on paths in any norm; proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 2, 3, 2, logistic loss, paths for p = 1.5 and 3, SVMs for p = 1.5, 2, 3, R = 5 to 320",
    seeds="0 to trials − 1",
    trials=(3, 2),
)
def path(trials: int) -> list[Measured]:
    """Minimise the loss on spheres of two norms, and compare with the SVMs of three."""
    p = data.random_problem(2, 3, 2, batch=trials)
    exponents, fall, ratio, foreign = (1.5, 2.0, 3.0), [], [], []
    for e in (1.5, 3.0):
        goals = {q: svm.lp_svm(p, p=q).W for q in exponents}
        W = np.stack([lp_path(p[b], e, RADII) for b in range(trials)])
        own = 1.0 - compare.correlation(W, goals[e])
        other = [1.0 - compare.correlation(W[:, -1], goals[q]) for q in exponents if q != e]
        fall.append(own[:, -1])
        ratio.append(np.median(own[:, -1] / np.maximum(own[:, -2], 1e-15)))
        foreign.append(np.max(other, axis=0))
    return [
        Measured("largest 1 − corr with the SVM of the norm, R = 320", np.max(fall), "<=", 1e-3),
        Measured(
            "its ratio to that at R = 80, median, worst norm", max(ratio), "<=", 0.12, r"$R^{-2}$: 1/16"
        ),
        Measured("the same with the SVM of another norm, median", np.median(foreign), ">=", 5e-3),
    ]
