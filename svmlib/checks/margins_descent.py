"""Claims of the chapter on margins: gradient descent, its residual, other norms, and what breaks."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import special

from .. import compare, linear, svm
from ..arrays import FloatArray
from .margins import DEGENERATE, PAGE, directions, instances
from .registry import Measured, claim

BOTH = ("logistic", "exponential")
# The first coordinate balances, with minimiser log 2; the second separates what is left.
MIXED = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])


@cache
def long_run(trials: int, loss: str) -> linear.LinearRun:
    """10⁵ plain steps of size 1 = 1/r² on clear instances: two claims look at them."""
    X, y, _ = instances(12, 3, trials, clear=True)
    when = [0, 1000, 10_000, 100_000]
    return linear.descend(X, y, linear.gradient_descent(1.0), 100_000, record=when, loss=loss)


def largest_norm(A: FloatArray, order: float = 2) -> FloatArray:
    """(B,) largest norm of a point."""
    return np.asarray(np.linalg.norm(A, ord=order, axis=-1).max(-1))


@claim(
    "thm-steepest",
    title="Steepest descent in a norm finds the largest margin of that norm",
    source="Gunasekar et al. (2018); bound derived here",
    chapter=PAGE,
    scope="n = 12, d = 8, exponential loss, steps 1/√(k+1), 10,000 of them",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(20, 8),
)
def steepest(trials: int) -> list[Measured]:
    """Run the three rules side by side; measure each run's margin in its own norm and in the others'."""
    X, y, solved = instances(12, 8, trials)
    A = linear.signed_points(X, y)
    norms = {"l1": (1, np.inf), "l2": (2, 2), "linf": (np.inf, 1)}  # orders of the norm and of its dual
    largest = {
        "l1": np.array([linear.max_margin(X[b], y[b], "l1").margin for b in range(trials)]),
        "l2": directions(solved)[1],
        "linf": np.array([linear.max_margin(X[b], y[b], "linf").margin for b in range(trials)]),
    }
    rows, share = [], {}
    for name, (_, dual) in norms.items():
        run = linear.descend(X, y, linear.steepest(name, 1.0, 0.5), 10_000, loss="exponential")
        lengths = np.concatenate([[0.0], 1.0 / np.sqrt(np.arange(1, 10_001))])
        S, squares = np.cumsum(lengths)[run.steps], np.cumsum(lengths**2)[run.steps]
        bound = largest[name][:, None] * S - largest_norm(A, dual)[:, None] ** 2 * squares / 2 - np.log(12)
        rows.append(
            Measured(f"smallest margin minus its bound ({name})", (run.margin - bound).min(), ">=", -1e-9)
        )
        for other, (order, _) in norms.items():
            reached = run.margin[:, -1] / np.linalg.norm(run.w[:, -1], ord=order, axis=-1)
            share[name, other] = float(np.median(reached / largest[other]))
    own = min(share[name, name] for name in norms)
    foreign = max(share[name, other] for name in norms for other in norms if name != other)
    return [
        *rows,
        Measured("median share of the largest margin in the own norm, worst rule", own, ">=", 0.95),
        Measured(
            "the same in another norm, best pair", foreign, "<=", own - 0.01, "each norm has its own answer"
        ),
    ]


@claim(
    "thm-gd",
    title=r"Gradient descent: loss $\Theta(1/k)$, norm $\log k/\Gamma$, direction $w^{\mathrm{mm}}$",
    source="Soudry et al. (2018); proof and constants here",
    chapter=PAGE,
    scope="n = 12, d = 3, non-degenerate data with other margins at twice the smallest, step 1/r²",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(40, 15),
)
def gradient_descent(trials: int) -> list[Measured]:
    """Train, and compare loss, norm, margin and angle with the theorem at all recorded steps."""
    _, _, solved = instances(12, 3, trials, clear=True)
    w, margin = directions(solved)
    rows = []
    for name in BOTH:
        run = long_run(trials, name)
        norm = margin[:, None] * run.norm
        deficit = norm - run.margin
        scaled = np.median(margin**2 * 1e5 * run.loss[:, -1])
        growth = np.median(np.diff(norm), axis=0) / np.log(10)
        tangent = run.angle(w)[:, 1:] * run.norm[:, 1:]
        held = np.median(tangent[:, 2] / tangent[:, 1])
        share = ((deficit[:, 3] - deficit[:, 1]) / (norm[:, 3] - norm[:, 1])).max()
        rows += [
            Measured(
                f"largest change of log of loss between records ({name})",
                np.diff(run.log_loss).max(),
                "<",
                0.0,
            ),
            Measured(rf"median $\eta\Gamma^2k\,\mathcal L$ at the end ({name})", scaled, "==", 1.0, "", 0.1),
            Measured(
                rf"median growth of $\Gamma\|w\|$ over that of $\log k$, last decade ({name})",
                growth[2],
                "in",
                (max(0.85, growth[1]), 1.02),
                f"{growth[1]:.3f} in the decade before",
            ),
            Measured(f"median of angle × norm, end over step 10⁴ ({name})", held, "==", 1.0, "", 0.1),
            Measured(
                rf"largest growth of $\Gamma\|w\|-\Gamma(w)$ over that of $\Gamma\|w\|$ ({name})",
                share,
                "<=",
                0.1,
            ),
        ]
        if name == "exponential":
            bound = 1.0 + np.log(12)
            ratio = (1.0 - run.correlation(w)[:, 1:]) * norm[:, 1:] / bound
            rows += [
                Measured(
                    r"largest $\Gamma\|w\|-\Gamma(w)$ (exponential)",
                    deficit.max(),
                    "<=",
                    bound,
                    r"$1+\log n$",
                ),
                Measured("largest 1 − correlation over its bound (exponential)", ratio.max(), "<=", 1.0),
            ]
    return rows


@claim(
    "thm-residual",
    title=r"$w(k)-w^{\mathrm{mm}}\log k$ converges; its limit follows from the multipliers",
    source="Soudry et al. (2018); proof here",
    chapter=PAGE,
    scope="the runs of the theorem on gradient descent, 10⁵ steps of size 1/r²",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(40, 15),
)
def residual(trials: int) -> list[Measured]:
    """Predict every support margin from its multiplier; forget the multipliers."""
    X, y, solved = instances(12, 3, trials, clear=True)
    A = linear.signed_points(X, y)
    lam = np.stack([s.multipliers for s in solved])
    on = np.stack([s.support for s in solved])
    rows = []
    for name in BOTH:
        run = long_run(trials, name)
        seen = np.einsum("bnd,brd->brn", A, run.w[:, [1, 3]]) - np.log(run.steps[[1, 3]])[:, None]
        with np.errstate(divide="ignore"):
            error = np.where(on[:, None], np.abs(seen - np.log(1.0 / 12 / lam)[:, None]), 0.0).max(-1)
        early, late = np.median(error, axis=0)
        alike = np.log(on.sum(-1, keepdims=True) / 12 / lam.sum(-1, keepdims=True))
        blind = np.median(np.where(on, np.abs(seen[:, 1] - alike), 0.0).max(-1))
        rows += [
            Measured(f"median over instances of the largest error, k = 10⁵ ({name})", late, "<=", 0.1),
            Measured(f"its ratio to that at k = 10³ ({name})", late / early, "<=", 0.15),
            Measured(
                f"the first error with equal multipliers ({name})", blind, ">", 0.1, "the multipliers matter"
            ),
        ]
    return rows


@claim(
    "thm-ngd",
    title=r"Normalised steps: norm $\eta k$, $1-\mathrm{corr}=O(k^{-2})$, weights tend to $\Gamma^2\lambda$",
    source="Ji and Telgarsky (2021), in another form; proof and constants here",
    chapter=PAGE,
    scope="n = 12, d = 3, r = 1, step Γ of the worst instance, 20,000 steps; rate on non-degenerate data",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(40, 15),
)
def normalised(trials: int) -> list[Measured]:
    """Compare every recorded step with the bounds, fit the rate, and predict weights and margins."""
    X, y, solved = instances(12, 3, trials)
    w, margin = directions(solved)
    eta = float(margin.min())
    constant = np.log(12) + 0.5
    run = linear.descend(X, y, linear.normalized(eta), 20_000, loss="exponential")
    along = np.einsum("brd,bd->br", run.w, w)  # <w(k), u> / Γ
    behind = margin[:, None] * eta * run.steps - margin[:, None] ** 2 * along
    below = margin[:, None] * eta * run.steps - run.margin
    rows = [
        Measured(
            r"largest $\|w(k)\|/(\eta k)$", (run.norm[:, 1:] / (eta * run.steps[1:])).max(), "<=", 1 + 1e-9
        ),
        Measured(
            r"largest $\Gamma(\eta k-\langle w,u\rangle)$", behind.max(), "<=", constant, r"$\log n+\frac12$"
        ),
        Measured(r"largest $\Gamma\eta k-\Gamma(w)$", below.max(), "<=", 2 * constant, r"$2\log n+1$"),
    ]
    X, y, solved = instances(12, 3, trials, clear=True)
    w, _ = directions(solved)
    for name in BOTH:
        run = linear.descend(X, y, linear.normalized(0.1), 16_000, record=[2000, 16_000], loss=name)
        one_minus = np.median(2.0 * np.sin(run.angle(w) / 2) ** 2, axis=0)
        slope = np.log(one_minus[1] / one_minus[0]) / np.log(8)
        rows.append(
            Measured(
                f"slope of the median 1 − correlation, k = 2,000 to 16,000 ({name})",
                slope,
                "==",
                -2.0,
                "",
                0.1,
            )
        )
    rows += _dual_weights(X, y, solved)
    far = linear.descend(
        DEGENERATE, [1, 1], linear.normalized(0.1), 10_000, record=[100, 10_000], loss="exponential"
    )
    growth = float(np.divide(*(far.angle([1.0, 0.0]) * far.steps)[::-1]))
    rows.append(
        Measured(
            r"growth of $k\times$angle from $10^2$ to $10^4$, a multiplier 0", growth, ">", 1.5, breaks=True
        )
    )
    return rows


def _dual_weights(X: FloatArray, y: FloatArray, solved: list[svm.HardMargin]) -> list[Measured]:
    """Limits of the softmax weights and of the differences of support margins, independent support points."""
    A = linear.signed_points(X, y)
    lam, on = np.stack([s.multipliers for s in solved]), np.stack([s.support for s in solved])
    eta = float(directions(solved)[1].min())
    run = linear.descend(X, y, linear.normalized(eta), 20_000, record=[20_000], loss="exponential")
    margins = np.einsum("bnd,bd->bn", A, run.w[:, -1])
    weights = special.softmax(-margins, axis=-1)
    error = np.abs(weights - lam / lam.sum(-1, keepdims=True)).max(-1)
    with np.errstate(divide="ignore"):
        level = np.where(on, margins + np.log(lam), np.nan)
    blind = np.where(on, margins, np.nan)
    known, unknown = (np.median(np.nanmax(a, -1) - np.nanmin(a, -1)) for a in (level, blind))
    return [
        Measured(
            r"median over instances of the largest $|\omega_i-\Gamma^2\lambda_i|$",
            np.median(error),
            "<=",
            1e-6,
        ),
        Measured(r"median spread of $\nu_i+\log\lambda_i$ on the margin", known, "<=", 1e-6),
        Measured(r"median spread of $\nu_i$ alone", unknown, ">", 0.1, "the multipliers matter"),
    ]


@claim(
    "prop-balanced",
    title="Balanced signed points: one finite minimiser, and gradient descent converges to it",
    kind="proposition",
    source="folklore; Ji and Telgarsky (2019) for what lies between",
    chapter=PAGE,
    scope="n = 24, d = 3, labels at random, logistic loss, 20,000 steps",
    seeds="0 to trials − 1",
    trials=(20, 8),
)
def balanced(trials: int) -> list[Measured]:
    """Compare gradient descent with Newton's method; on separable and on mixed data the norm grows."""
    rng = [np.random.default_rng(seed) for seed in range(trials)]
    X = np.stack([g.normal(size=(24, 3)) for g in rng])
    y = np.stack([g.choice([-1.0, 1.0], 24) for g in rng])
    best = linear.path(X, y, [1e3])
    eta = 1.0 / float(largest_norm(X).max()) ** 2
    run = linear.descend(X, y, linear.gradient_descent(eta), 20_000, record=[10_000, 20_000])
    apart = np.linalg.norm(run.w[:, -1] - best.w[:, 0], axis=-1) / best.norm[:, 0]
    Xs, ys = linear.separable_data(24, 3, batch=trials)
    growing = linear.descend(Xs, ys, linear.gradient_descent(eta), 20_000, record=[10_000, 20_000])
    mixed = linear.descend(MIXED, [1] * 4, linear.gradient_descent(1.0), 20_000, record=[10_000, 20_000])
    return [
        Measured("share of data with a finite minimiser", best.interior.mean(), "==", 1.0),
        Measured("largest norm of a minimiser", best.norm.max(), "<=", 100.0),
        Measured("largest relative distance to it", apart.max(), "<=", 1e-8),
        Measured(
            "smallest growth of the norm, last half, separable data",
            np.diff(growing.norm).min(),
            ">",
            0.1,
            breaks=True,
        ),
        Measured(
            "distance of the balanced part from log 2, mixed data",
            abs(mixed.w[-1, 0] - np.log(2)),
            "<=",
            1e-8,
        ),
        Measured("growth of the other part, last half", np.diff(mixed.w[:, 1])[0], ">", 0.1, breaks=True),
    ]


@claim(
    "prop-polynomial",
    title="A polynomial tail: the path's limit hears every point and misses the largest margin",
    kind="proposition",
    source="Rosset et al. (2003); Ji et al. (2020)",
    chapter=PAGE,
    scope="n = 12, d = 3, loss 1/(1+ν), R = 10⁶",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(20, 8),
)
def polynomial(trials: int) -> list[Measured]:
    """Check the stationarity equation of the limit; compare its direction with the exponential loss's."""
    X, y, solved = instances(12, 3, trials, clear=True)
    w, margin = directions(solved)
    A = linear.signed_points(X, y)
    limit = linear.path(X, y, [1e6], loss="polynomial")
    margins = np.einsum("bnd,bd->bn", A, limit.w[:, 0])
    pull = np.einsum("bn,bnd->bd", margins**-2.0, A)
    residual = compare.angle(limit.w[:, 0, :, None], pull[..., None])
    far = linear.path(X, y, [1e6], loss="exponential").angle(w)
    lost = 1.0 - np.median(limit.margin[:, 0] / 1e6 / margin)
    return [
        Measured(r"largest angle to $\sum_i\nu_i^{-2}\tilde x_i$, rad", residual.max(), "<=", 1e-4),
        Measured("median angle to the SVM, rad", np.median(limit.angle(w)), ">", 0.05),
        Measured("median share of the margin that is lost", lost, ">", 0.01),
        Measured("largest angle to the SVM, exponential loss, rad", far.max(), "<=", 1e-3),
    ]
