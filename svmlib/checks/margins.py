"""Claims of the chapter on margins: the hard-margin SVM, and the regularisation path that leads to it."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import nnls

from .. import linear, svm
from ..arrays import FloatArray
from ..errors import InfeasibleError
from .registry import Measured, claim

PAGE = "foundations/margins"
TEXTBOOK = "Boser et al. (1992); Boyd and Vandenberghe (2004)"
# A support point whose multiplier is 0: the instance that breaks statements about non-degenerate data.
DEGENERATE = np.array([[1.0, 0.0], [1.0, 1.0]])
# One support vector, the first: tilts towards (0, 1) leave its span, and the lemma on angles is silent.
LONE = np.array([[1.0, 0.0], [5.0, 3.0], [5.0, -3.0]])


@cache
def instances(
    n: int, d: int, trials: int, clear: bool = False
) -> tuple[FloatArray, FloatArray, list[svm.HardMargin]]:
    """Separable data, scaled so that the longest point has norm r = 1, with their SVMs.

    ``clear`` makes them non-degenerate by an amount that 10⁵ steps can see: independent support points,
    multipliers within a factor 10 of each other, and the other points moved along w until their margins are
    twice the smallest, which leaves the SVM as it is.
    """
    X, y = linear.separable_data(n, d, batch=trials)
    solved = [svm.hard_margin(X[b], y[b]) for b in range(trials)]
    kept = [b for b, s in enumerate(solved) if not clear or _clear(linear.signed_points(X[b], y[b]), s)]
    for b in kept if clear else []:
        s = solved[b]
        lift = np.where(s.support, 0.0, np.maximum(2.0 - y[b] * (X[b] @ s.w), 0.0))
        X[b] += (y[b] * lift)[:, None] * s.w * s.margin**2
    X, y = X[kept] / np.linalg.norm(X[kept], axis=-1).max(-1)[:, None, None], y[kept]
    return X, y, [svm.hard_margin(*both) for both in zip(X, y, strict=True)]


def _clear(A: FloatArray, s: svm.HardMargin) -> bool:
    on, lam = A[s.support], s.multipliers[s.support]
    if np.linalg.matrix_rank(on, tol=1e-6) < lam.size or lam.min() < 0.1 * lam.max():
        return False
    # the residual's error contracts like k^-(smallest eigenvalue); the largest one is 1
    return bool(np.linalg.eigvals((on @ on.T) * lam).real.min() > 0.5)


def directions(solved: list[svm.HardMargin]) -> tuple[FloatArray, FloatArray]:
    """SVM solutions (B, d) and largest margins (B,)."""
    return np.stack([s.w for s in solved]), np.array([s.margin for s in solved])


def hull_distance(A: FloatArray) -> float:
    """Distance from 0 to the convex hull of the rows, by non-negative least squares.

    Minimising |A'u|² + (sum u - 1)² over u >= 0 finds the ray of the nearest point, which lies at distance
    G where the minimum is G²/(1 + G²); no routine of the library takes part.
    """
    u, _ = nnls(np.vstack([A.T, np.ones(len(A))]), np.append(np.zeros(A.shape[1]), 1.0), maxiter=100 * len(A))
    return float(np.linalg.norm(u @ A) / u.sum())


@claim(
    "prop-separable",
    title="Either a hyperplane separates, or 0 is a mean of signed points",
    kind="proposition",
    source="Gordan (1873), see Boyd and Vandenberghe (2004), section 5.8",
    chapter=PAGE,
    scope="n = 8, d = 4, Gaussian points, fair labels: separable with probability 1/2",
    seeds="0 to trials − 1",
    trials=(300, 60),
)
def gordan(trials: int) -> list[Measured]:
    """Look for a separating hyperplane by linear programming, and for cancelling weights by least squares."""
    exactly_one, separable = [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(8, 4)), rng.choice([-1.0, 1.0], 8)
        cancels = hull_distance(linear.signed_points(X, y)) < 1e-9
        try:
            separable.append(linear.max_margin(X, y, "linf").margin > 0)
        except InfeasibleError:
            separable.append(False)
        exactly_one.append(separable[-1] != cancels)
    return [
        Measured("share of data for which exactly one alternative holds", np.mean(exactly_one), "==", 1.0),
        Measured("share of separable data", np.mean(separable), "in", (0.3, 0.7), "both alternatives occur"),
    ]


@claim(
    "thm-hard-margin",
    title=r"$w^{\mathrm{mm}}=\sum\lambda_i\tilde x_i$, and $\Gamma$ is the distance from 0 to the hull",
    source=TEXTBOOK,
    chapter=PAGE,
    scope="n = 12, d = 3, r = 1, separable data",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(50, 15),
)
def hard_margin(trials: int) -> list[Measured]:
    """Compare the solver's point with its multipliers, the hull's distance, and random directions."""
    X, y, solved = instances(12, 3, trials)
    A = linear.signed_points(X, y)
    w, margin = directions(solved)
    lam = np.stack([s.multipliers for s in solved])
    slack = np.einsum("bnd,bd->bn", A, w) - 1.0
    rebuilt = np.linalg.norm(np.einsum("bn,bnd->bd", lam, A) - w, axis=-1) * margin
    distance = np.array([hull_distance(a) for a in A])
    other = np.random.default_rng(0).normal(size=(1000, 3))
    other /= np.linalg.norm(other, axis=-1, keepdims=True)
    best = np.einsum("bnd,kd->bkn", A, other).min(-1).max(-1)
    return [
        Measured("smallest multiplier", lam.min(), ">=", 0.0),
        Measured("most negative slack of a constraint", slack.min(), ">=", -1e-9),
        Measured(r"largest $|w-\sum\lambda_i\tilde x_i|/|w|$", rebuilt.max(), "<=", 1e-9),
        Measured("largest product of multiplier and slack, relative", (lam * slack).max(), "<=", 1e-8),
        Measured(
            r"largest $|\Gamma-\mathrm{dist}|/\Gamma$",
            (np.abs(distance - margin) / margin).max(),
            "<=",
            1e-9,
            "distance by least squares",
        ),
        Measured(
            r"largest $|\Gamma^2\sum\lambda_i-1|$", np.abs(margin**2 * lam.sum(-1) - 1.0).max(), "<=", 1e-9
        ),
        Measured(r"best margin of random unit vectors, over $\Gamma$", (best / margin).max(), "<=", 1.0),
    ]


@claim(
    "lem-margin-angle",
    title=r"Margin controls angle: $\cos\angle(w,w^{\mathrm{mm}})\ge\Gamma(w)/(\Gamma\|w\|)$",
    kind="lemma",
    source="in the style of Ji and Telgarsky (2021)",
    chapter=PAGE,
    scope="n = 12, d = 3, r = 1; 1,000 vectors an instance, from angle 1e-6 to all directions",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(50, 15),
)
def margin_angle(trials: int) -> list[Measured]:
    """Disturb the SVM direction and compare both sides; tilt it in and out of the support points' span."""
    X, y, solved = instances(12, 3, trials)
    A = linear.signed_points(X, y)
    rng = np.random.default_rng(0)
    least, tight, pushed = np.inf, 0.0, -np.inf
    for a, s in zip(A, solved, strict=True):
        u = s.w * s.margin
        w = u + np.geomspace(1e-6, 1e2, 1000)[:, None] * rng.normal(size=(1000, 3))
        w /= np.linalg.norm(w, axis=-1, keepdims=True)
        difference = w @ u - (w @ a.T).min(-1) / s.margin
        least, tight = min(least, float(difference.min())), max(tight, float(difference[0]))
        if _clear(a, s) and s.support.sum() > 1:
            pushed = max(pushed, _tilt(a[s.support], u, rng))
    degenerate = _tilt(DEGENERATE, np.array([1.0, 0.0]), rng)
    small = np.float64(1e-4)
    outside = (1.0 - (LONE @ [np.cos(small), np.sin(small)]).min()) / small
    return [
        Measured("smallest difference of the two sides", least, ">=", -1e-12),
        Measured(
            "largest difference at angle about 1e-6", tight, "<=", 1e-4, "the bound is tight at the solution"
        ),
        Measured(
            r"largest $-\kappa$ of non-degenerate data", pushed, "<", -1e-3, "every tilt lowers a margin"
        ),
        Measured(
            r"the same with a multiplier 0: $-\kappa$", degenerate, "==", 0.0, "no such κ", 1e-12, breaks=True
        ),
        Measured(
            "margin lost per radian by a tilt of 1e-4 out of the span",
            outside,
            "<=",
            1e-4,
            "second order",
            breaks=True,
        ),
    ]


def _tilt(support: FloatArray, u: FloatArray, rng: np.random.Generator) -> float:
    """Largest, over unit tilts orthogonal to u in the support points' span, of the smallest margin change."""
    across = support - np.outer(support @ u, u)
    _, sizes, vt = np.linalg.svd(across, full_matrices=False)
    basis = vt[sizes > 1e-9 * sizes[0]]
    tilt = rng.normal(size=(2000, len(basis))) @ basis
    tilt /= np.linalg.norm(tilt, axis=-1, keepdims=True)
    return float((tilt @ support.T).min(-1).max())


@claim(
    "lem-no-minimiser",
    title=r"$\mathcal L(w)\ge\ell(\Gamma\|w\|)/n$: the infimum 0 is not attained",
    kind="lemma",
    source="folklore, see Soudry et al. (2018)",
    chapter=PAGE,
    scope="n = 12, d = 3, r = 1, logistic and exponential loss, norms 0.1 to 1,000",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(50, 15),
)
def no_minimiser(trials: int) -> list[Measured]:
    """Compare the smallest loss of every norm, from the regularisation path, with the bound."""
    X, y, solved = instances(12, 3, trials)
    _, margin = directions(solved)
    radii = np.geomspace(0.1, 1e3, 25)
    rows = []
    for name in ("logistic", "exponential"):
        p = linear.path(X, y, radii, loss=name)
        bound = linear.LOSSES[name].log_value(margin[:, None] * radii) - np.log(12)
        rows.append(
            Measured(f"smallest log of loss over bound ({name})", (p.log_loss - bound).min(), ">=", 0.0)
        )
        slope = (p.log_loss[:, -1] - p.log_loss[:, -3]) / (radii[-1] - radii[-3]) / margin
        worst = np.abs(slope + 1.0).max()
        rows.append(
            Measured(
                rf"largest |slope of $\log\mathcal L$ over $-\Gamma$, minus 1| ({name})", worst, "<=", 0.01
            )
        )
    doubled = np.concatenate([X, -X], axis=1), np.concatenate([y, y], axis=1)
    lowest = linear.path(*doubled, [1e3]).loss.min()
    rows.append(
        Measured(
            "least loss where every point has both labels", lowest, "==", np.log(2), "", 1e-12, breaks=True
        )
    )
    return rows


@claim(
    "thm-path",
    title=r"Regularisation path: $w_R/R\to w^{\mathrm{mm}}/\|w^{\mathrm{mm}}\|$, angle $O(1/R)$",
    source="Rosset et al. (2003); rates derived here",
    chapter=PAGE,
    scope="n = 12, d = 3, r = 1, logistic and exponential loss, R to 30,000; rate on non-degenerate data",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(30, 15),
)
def regularisation_path(trials: int) -> list[Measured]:
    """Follow the path, compare margins and angles with the bounds, and fit the rate of the angle."""
    X, y, solved = instances(12, 3, trials)
    w, margin = directions(solved)
    radii = np.geomspace(30.0, 3e4, 13)
    late = margin[:, None] * radii >= np.log(24)
    rows = []
    for name in ("logistic", "exponential"):
        p = linear.path(X, y, radii, loss=name)
        short = np.where(late, margin[:, None] * radii - p.margin, 0.0).max()
        ratio = np.where(late, (1.0 - p.correlation(w)) * margin[:, None] * radii, 0.0).max() / np.log(24)
        rows += [
            Measured(rf"largest $\Gamma R-\Gamma(w_R)$ ({name})", short, "<=", np.log(24), r"$\log 2n$"),
            Measured(f"largest 1 − correlation over its bound ({name})", ratio, "<=", 1.0),
            Measured(f"worst stationarity ({name})", p.stationarity.max(), "<=", 1e-8),
        ]
    X, y, solved = instances(12, 3, trials, clear=True)
    angle = np.median(linear.path(X, y, radii).angle(directions(solved)[0]), axis=0)
    slope = np.log(angle[-1] / angle[4]) / np.log(radii[-1] / radii[4])
    far = linear.path(DEGENERATE, [1, 1], [1e2, 1e4], loss="exponential")
    growth = float(np.divide(*(far.angle([1.0, 0.0]) * far.radii)[::-1]))
    return [
        *rows,
        Measured(
            "log-log slope of the median angle against R", slope, "==", -1.0, "non-degenerate data", 0.05
        ),
        Measured(
            r"growth of $R\times$angle from $10^2$ to $10^4$, a multiplier 0", growth, ">", 1.5, breaks=True
        ),
    ]
