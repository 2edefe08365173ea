"""Claims of the chapter on gradient descent: the dynamics of (K, Q), and the gradient in rounded numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmlib import compare, data, dynamics, norms, svm
from svmlib.attention import Direct, Factored, gradient

from . import textbook
from .descent import PAGE, instances, long_run
from .registry import Measured, claim


def joint(rate: float) -> dynamics.Rule:
    r"""Normalised steps of the pair (K, Q) as one vector: :math:`\|\Delta K\|_F^2+\|\Delta Q\|_F^2=\eta^2`.

    The control arm of separately normalised steps. For a single matrix the two rules are the same.

    Parameters
    ----------
    rate : float
        Length of a step, :math:`\eta>0`.

    Returns
    -------
    Rule
        For :func:`svmlib.dynamics.train`.
    """

    def update(sizes: tuple[Any, ...], log_scale: Any, state: Any) -> tuple[tuple[Any, ...], Any]:
        total = sum(size.square() for size in sizes).sqrt()
        return (rate / total.clamp_min(1e-300),) * len(sizes), state

    return dynamics.Rule(f"jointly normalised, rate {rate:g}", lambda B: None, update)


@claim(
    "prop-factored-flow",
    title=r"Balanced factors multiply: $\dot\sigma_r=-2\sigma_r\,u_r^\top Gv_r$",
    kind="proposition",
    source="proof in the chapter; for deep linear networks: Arora et al. (2019)",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10; factors of rank 4 with singular values 3, 2, 1, 0.5",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def factored_flow(trials: int) -> list[Measured]:
    """Compare the speeds of the product and of its singular values with central differences."""
    p = instances(trials)
    balanced = np.array([_flow_errors(p[b], b, stretch=1.0) for b in range(trials)])
    stretched = np.array([_flow_errors(p[b], b, stretch=3.0) for b in range(trials)])
    return [
        Measured("largest relative error of the predicted speed of $W$", balanced[:, 0].max(), "<=", 1e-6),
        Measured("largest relative error of the singular values' speeds", balanced[:, 1].max(), "<=", 1e-6),
        Measured("smallest error, $K$ tripled and $Q$ divided by 3", stretched.min(), ">=", 0.1, breaks=True),
    ]


def _flow_errors(p: data.Problem, seed: int, stretch: float) -> tuple[float, float]:
    r"""Relative errors of the claim's two formulas, at balanced factors of which K is then stretched."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.normal(size=(p.d, 4)))[0] for _ in range(2))
    sigma, turn = np.array([3.0, 2.0, 1.0, 0.5]), np.linalg.qr(rng.normal(size=(4, 4)))[0]
    K, Q = stretch * (u * np.sqrt(sigma)) @ turn, (v * np.sqrt(sigma)) @ turn / stretch
    pulls = gradient(p, Factored(K, Q))
    G = gradient(p, Direct(K @ Q.T)).matrix()
    h = 1e-4
    moved = np.stack([(K - s * h * pulls[0]) @ (Q - s * h * pulls[-1]).T for s in (1.0, -1.0)])
    left, right = (u * sigma) @ u.T, (v * sigma) @ v.T  # square roots of W W' and W' W
    values = np.linalg.svd(moved)[1][:, :4]
    pairs = (
        ((moved[0] - moved[1]) / (2 * h), -(G @ right + left @ G)),
        ((values[0] - values[1]) / (2 * h), -2.0 * sigma * np.einsum("dr,de,er->r", u, G, v)),
    )
    errors = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs]
    return errors[0], errors[1]


@claim(
    "prop-factored-growth",
    title=r"$\|K(k)Q(k)^\top\|_\star\le(\|K(0)\|_F+\eta k)(\|Q(0)\|_F+\eta k)$",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, separately normalised steps of 0.1",
    seeds="0 to trials − 1",
    trials=(24, 12),
)
def factored_growth(trials: int) -> list[Measured]:
    """Compare norms with the bound, and with the linear growth of W."""
    p = instances(trials)
    start = Factored.random(p)
    run = dynamics.train(p, start, dynamics.normalized(0.1), 2000, record=[20, 100, 500, 2000])
    sizes = norms.NUC(run.W)
    moved = 0.1 * run.steps
    bound = (np.linalg.norm(start.K, axis=(-2, -1))[:, None] + moved) * moved
    slope = np.log(sizes[:, 3] / sizes[:, 2]).mean() / np.log(4.0)
    plain = np.linalg.norm(long_run(trials)[1].W, axis=(-2, -1))
    return [
        Measured("largest nuclear norm / bound", (sizes / bound).max(), "<=", 1.0 + 1e-9),
        Measured(
            "smallest nuclear norm / bound",
            (sizes / bound).min(),
            ">=",
            0.05,
            "the bound is of the right order",
        ),
        Measured("exponent of the norm in k, 500 to 2,000 steps", slope, "in", (1.5, 2.0)),
        Measured(
            "the same for W, where one factor moves",
            np.log(plain[:, 2] / plain[:, 0]).mean() / np.log(4.0),
            "==",
            1.0,
            tol=0.1,
        ),
    ]


@claim(
    "prop-cancellation",
    title="After saturation the textbook gradient has no correct digit at the top token",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10; along the SVM solution, 200 digits; 10,000 steps of 0.1, with ε 20,000",
    seeds="0 to trials − 1",
    trials=(12, 6),
)
def cancellation(trials: int) -> list[Measured]:
    """Compare coefficients and gradients with 200 digits, then follow the noise."""
    p = instances(trials)
    solution = svm.attention_svm(p)
    top, direction, pivoted, before = [], [], [], []
    for b in range(max(1, min(trials // 2, 4))):
        one = p[b]
        spread = np.abs(one.scores.max(-1) - one.scores.min(-1))
        threshold = np.log(16.0 * spread * (one.T - 1) / (2.0**-53 * np.abs(one.scores.max(-1)))).max()
        for R in (20.0, threshold + 1.0, 100.0, 400.0):
            W = R * solution.W[b]
            true, found = (
                textbook.coefficients(one, W, d)[np.arange(one.n), one.optimal] for d in (200, "float64")
            )
            wrong = np.abs(found - true) / np.abs(true)
            exact = textbook.gradient(one, W, 200)
            error = norms.FRO(gradient(one, Direct(W)).matrix() - exact) / norms.FRO(exact)
            pivoted.append(error)
            if threshold < R:
                top.append(wrong.min())
                direction.append(float(compare.angle(textbook.gradient(one, W), exact)))
            else:
                before.append(float(np.median(wrong)))
    drift = {}
    for eps, steps in ((0.0, (1000, 10000)), (textbook.EPS, (5000, 20000))):
        run = textbook.descend(p, Direct.zeros(p), steps[-1], eps=eps, record=steps)
        reference = svm.attention_svm(p, run.selected, errors="nan")
        drift[eps] = np.nanmedian(1.0 - compare.correlation(run.W, reference.W), axis=0)
    _, exact_run, own = long_run(2 * trials)  # the run that other claims share
    fall = np.median(1.0 - compare.correlation(exact_run.W, own.W), axis=0)
    return [
        Measured("smallest relative error of the top coefficient past the threshold", min(top), ">=", 1.0),
        Measured("median error before it, at margin 20, largest", max(before), "<=", 1e-5),
        Measured("median angle of the textbook gradient past it", np.median(direction), ">=", 0.3, "radians"),
        Measured("largest relative error of the pivoted gradient", max(pivoted), "<=", 1e-11),
        Measured(
            "textbook: median 1 − corr, 10,000 over 1,000 steps", drift[0.0][1] / drift[0.0][0], ">=", 3.0
        ),
        Measured(
            "the same with ε, 20,000 over 5,000", drift[textbook.EPS][1] / drift[textbook.EPS][0], ">=", 3.0
        ),
        Measured("pivoted: the same, 16,000 over 4,000", fall[-1] / fall[-3], "<=", 0.2),
    ]
