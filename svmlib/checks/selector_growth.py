"""Claims of the chapter on attention as a selector: the infimum and the way to it."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from svmlib import attention, data, dynamics, norms, svm
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .selector import OWN, PAGE
from .selector_structure import conflict

BOUNDS = "Tarzanagh et al. (2023), Transformers as Support Vector Machines; constants derived in the chapter"


def loss_slopes(problem: data.Problem) -> tuple[FloatArray, FloatArray]:
    """Bounds (m1, M1) on the logistic loss's |l'| between the extreme scores, below and above, each (...)."""
    low, high = problem.scores.min((-1, -2)), problem.scores.max((-1, -2))
    return 1 / (1 + np.exp(high)), 1 / (1 + np.exp(low))


def reach(problem: data.Problem) -> FloatArray:
    r"""(..., n) reach :math:`r_i=\|z_i\|\max_{t,\tau}\|x_{it}-x_{i\tau}\|`: logits at unit norm."""
    pairs = problem.X[..., :, None, :] - problem.X[..., None, :, :]
    return np.asarray(np.linalg.norm(problem.z, axis=-1) * np.linalg.norm(pairs, axis=-1).max((-1, -2)))


def gap_and_spread(problem: data.Problem) -> tuple[FloatArray, FloatArray]:
    """(..., n) best score minus second best, and best minus worst."""
    ordered = np.sort(problem.scores, axis=-1)
    return ordered[..., -1] - ordered[..., -2], ordered[..., -1] - ordered[..., 0]


@claim(
    "prop-infimum",
    title="The infimum is not attained",
    kind="proposition",
    source=BOUNDS,
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, logistic loss; $V$ = attention SVM; planted instances n = 4, T = 5, d = 6",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def infimum(trials: int) -> list[Measured]:
    """Random matrices; the ray of a separating matrix against both bounds; two instances that break it."""
    p = data.random_problem(6, 8, 10, batch=trials)
    anywhere = np.geomspace(0.1, 20, 50)[:, None, None] * np.random.default_rng(0).normal(
        size=(trials, 50, 10, 10)
    )
    R = np.linspace(8, 30, 45)
    slopes, above, below = [], [], []
    planted, V = data.planted_problem(4, 5, 6, batch=trials)
    for q, separating in ((p, svm.attention_svm(p).W), (planted, V)):
        ray = dynamics.gap(q, R[:, None, None] * separating[:, None])
        slopes.append(np.polyfit(R, np.log(ray).T, 1)[0])
        gap, spread = gap_and_spread(q)
        m1, M1 = loss_slopes(q)
        upper = (M1 * (q.T - 1) * spread.mean(-1))[:, None] * np.exp(-R)
        lower = (m1 * gap.min(-1) / (q.n * q.T))[:, None] * np.exp(-R)
        above.append((ray / upper).max())
        below.append((ray / lower).min())
    fight = conflict()
    grid = np.linspace(-20, 20, 801)[:, None, None]
    equal = data.Problem(p.X[0], p.z[0], p.y[0], np.zeros(10))
    return [
        Measured(
            "smallest gap at random matrices of norm 1 to 200", dynamics.gap(p, anywhere).min(), ">", 0.0
        ),
        Measured(
            "slope of the log gap along $RV$, flattest",
            np.max(slopes),
            "==",
            -1.0,
            "$R$ from 8 to 30",
            tol=0.02,
        ),
        Measured(
            "slope of the log gap along $RV$, steepest",
            np.min(slopes),
            "==",
            -1.0,
            "$R$ from 8 to 30",
            tol=0.02,
        ),
        Measured("largest gap over the upper bound", max(above), "<=", 1.0),
        Measured("smallest gap over the lower bound", min(below), ">=", 1.0),
        Measured(
            "conflict: smallest gap at any weight",
            dynamics.gap(fight, grid).min(),
            ">=",
            0.3,
            "not separable",
            breaks=True,
        ),
        Measured(
            "equal scores: gap at $W=0$",
            dynamics.gap(equal, np.zeros((1, 10, 10)))[0],
            "==",
            0.0,
            "attained",
            breaks=True,
        ),
    ]


@claim(
    "prop-norm-floor",
    title="A small loss needs large weights",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="random n = 6, T = 8, d = 10 and planted n = 4, T = 5, d = 6; 1,000 normalised steps of 0.1",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def norm_floor(trials: int) -> list[Measured]:
    """Loss gaps of training runs against the floor for their norms; probabilities against the gap."""
    planted, _ = data.planted_problem(4, 5, 6, batch=trials)
    ratios, shares, growth = [], [], []
    for p in (data.random_problem(6, 8, 10, batch=trials), planted):
        run = dynamics.train(p, attention.Direct.zeros(p), dynamics.normalized(0.1), 1000, record=40)
        size = norms.FRO(run.W)
        gap, _ = gap_and_spread(p)
        m1 = loss_slopes(p)[0][:, None]
        odds = (p.T - 1) * np.exp(-reach(p)[:, None] * size[..., None])
        floor = m1 * (gap[:, None] * odds / (1 + odds)).mean(-1)
        ratios.append((run.gap / floor).min())
        found = (run.selected == p.optimal).all(-1)
        s = attention.probabilities(p, run.W)
        other = np.arange(p.T) != p.optimal[..., None]
        missing = (s * other[:, None]).sum(-1)
        allowed = p.n * run.gap[..., None] / (m1[..., None] * gap[:, None])
        shares.append((missing / allowed)[found].max())
        growth.append(np.diff(size[found][:, [-20, -1]]).min())
    return [
        Measured(
            "smallest loss gap over its floor",
            min(ratios),
            ">=",
            1.0,
            "all recorded steps, optimal tokens found or not",
        ),
        Measured("largest missing probability over what the gap allows", max(shares), "<=", 1.0),
        Measured(
            "growth of the norm in the second half of the records",
            min(growth),
            ">",
            1.0,
            "runs that find the optimal tokens",
        ),
    ]


def _slope_at_best(problem: data.Problem, loss: str) -> float:
    best = float(problem.scores.max())
    return float(np.exp(-best)) if loss == "exponential" else float(1 / (1 + np.exp(best)))


@claim(
    "prop-log-growth",
    title="Logarithmic growth of a margin",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 1, T = 2, d = 3, random instances, $W(0)=0$",
    seeds="0 to trials − 1",
    trials=(10, 4),
)
def log_growth(trials: int) -> list[Measured]:
    """Small steps against the closed form; lengthening steps against the logarithm."""
    p = data.random_problem(1, 2, 3, batch=trials)
    delta = p.differences().sum(-2)  # the optimal token's own difference is 0
    gap, _ = gap_and_spread(p)
    c = (gap * (delta**2).sum(-1) * (p.z**2).sum(-1))[:, 0]

    def margin(W: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("bnd,brde,bne->br", delta, W, p.z))

    error = []
    for rate in (0.1, 0.01):
        steps = round(20 / rate)
        run = dynamics.train(
            p, attention.Direct.zeros(p), dynamics.gradient_descent(rate), steps, record=40, loss="linear"
        )
        time = c[:, None] * rate * run.steps
        exact = np.vectorize(lambda ct: brentq(lambda u: 2 * np.sinh(u) + 2 * u - ct, 0, 50))(time)
        error.append(float(np.abs(margin(run.W) - exact).max()))
    offset: dict[str, list[float]] = {}
    for loss in ("logistic", "exponential"):
        slope = np.array([_slope_at_best(p[b], loss) for b in range(trials)])
        weights: attention.Weights = attention.Direct.zeros(p)
        rate, time_so_far, offset[loss] = 0.2, 0.0, []
        for stage in range(32):  # a step moves u by rate c |l'| e^-u, and e^u grows like the time
            run = dynamics.train(p, weights, dynamics.gradient_descent(rate), 80, record=1, loss=loss)
            weights, time_so_far, rate = run.weights, time_so_far + 80 * rate, rate * 1.5
            if stage in (6, 31):
                offset[loss].append(
                    float(np.abs(margin(run.W)[:, -1] - np.log(c * slope * time_so_far)).max())
                )
    rows = [
        Measured(
            "item 2: error of the closed form, $\\eta=0.1$", error[0], "<=", 0.03, "largest over 40 times"
        ),
        Measured(
            "item 2: error at $\\eta=0.1$ over error at $\\eta=0.01$",
            error[0] / error[1],
            "in",
            (8.0, 12.0),
            "order $\\eta$",
        ),
    ]
    for loss, (early, late) in offset.items():
        rows += [
            Measured(
                f"item 3: $|u-\\log(c|\\ell'|t)|$ late in training, {loss} loss",
                late,
                "<=",
                0.01,
                "the steps' own error is half a step in $u$",
            ),
            Measured("item 3: the same earlier, over late", early / late, ">=", 10.0, "it shrinks"),
        ]
    return rows


@claim(
    "prop-scalar-factors",
    title="Two factors move faster",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="d = m = 1, tokens ±1/2, query 1, linear loss; k(0), q(0) uniform in (0.1, 0.5)",
    seeds="0",
    trials=(10, 4),
)
def scalar_factors(trials: int) -> list[Measured]:
    """Train k and q; integrate the differential equation for w; compare with training w itself."""
    k, q = np.random.default_rng(0).uniform(0.1, 0.5, (2, trials))
    p = data.Problem(np.tile([[[0.5], [-0.5]]], (trials, 1, 1, 1)), np.ones((1, 1)), np.ones(1), np.ones(1))
    start = attention.Factored(k[:, None, None], q[:, None, None])
    kappa, horizon, times = k**2 - q**2, 20.0, np.linspace(0, 20, 41)
    flows = np.stack(
        [
            solve_ivp(
                lambda t, w, a=a: np.sqrt(a**2 + 4 * w**2) / (2 + 2 * np.cosh(w)),
                (0, horizon),
                [w0],
                t_eval=times,
                rtol=1e-10,
                atol=1e-12,
            ).y[0]
            for a, w0 in zip(kappa, k * q, strict=True)
        ]
    )
    error = []
    for rate in (0.1, 0.01):
        at = np.round(times / rate).astype(int)
        run = dynamics.train(p, start, dynamics.gradient_descent(rate), at[-1], record=at, loss="linear")
        error.append(float(np.abs(run.W[..., 0, 0] - flows).max()))
    same = dynamics.train(
        p,
        attention.Direct(start.matrix()),
        dynamics.gradient_descent(0.01),
        2000,
        record=[50, 2000],
        loss="linear",
    )
    lead = flows[:, [1, -1]] - same.W[..., 0, 0]
    return [
        Measured("error of the equation for $w$, $\\eta=0.1$", error[0], "<=", 0.1, "largest over 41 times"),
        Measured(
            "error at $\\eta=0.1$ over error at $\\eta=0.01$",
            error[0] / error[1],
            "in",
            (8.0, 12.0),
            "order $\\eta$",
        ),
        Measured(
            "lead of the factors over $w$ trained itself, early",
            lead[:, 0].max(),
            "<",
            0.0,
            "$t=0.5$: behind",
        ),
        Measured(
            "lead of the factors over $w$ trained itself, late", lead[:, 1].min(), ">", 0.0, "$t=20$: ahead"
        ),
    ]
