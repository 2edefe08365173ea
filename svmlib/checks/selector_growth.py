"""Claims of the chapter on attention as a selector: no stationary point, the infimum and the way to it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from svmlib import attention, data, dynamics, norms, svm
from svmlib.arrays import FloatArray

from .registry import Measured, claim
from .selector import LOSSES, OWN, PAGE, autograd, worst_entry
from .selector_structure import conflict

BOUNDS = "Transformers as Support Vector Machines (2023); constants derived in the chapter"


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
    "prop-no-stationary",
    title="No stationary point with independent queries",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 4, d = 5, logistic loss; 40 random $W$ of norm 0.5 to 50 an instance; 8,000 steps of "
    "gradient descent, $\\eta=1/L_W$, from a random start",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def no_stationary(trials: int) -> list[Measured]:
    """Slope along the direction of the proof; norms along runs; two sequences that share their query."""
    p = data.random_problem(3, 4, 5, batch=trials)
    assert p.v is not None
    targets = p.y[..., None] * p.v[:, None]  # V z_i = y_i v for every i, by the pseudo-inverse of the queries
    V = np.swapaxes(targets, -1, -2) @ np.linalg.pinv(np.swapaxes(p.z, -1, -2))
    rng, slope, formula = np.random.default_rng(0), [], []
    for b in range(trials):
        for size in np.geomspace(0.1, 10, 40):
            W = size * rng.normal(size=(5, 5))
            s, gamma = attention.probabilities(p[b], W), p.scores[b]
            mean = (s * gamma).sum(-1, keepdims=True)
            law = ((s * (gamma - mean) ** 2).sum(-1) / (1 + np.exp(mean[:, 0]))).mean()
            got = -float((autograd(p[b], attention.Direct(W))[0] * V[b]).sum())
            slope.append(got)
            formula.append(abs(got - law))
    rate = dynamics.gradient_descent(1 / float(attention.smoothness(p).max()))
    run = dynamics.train(p, attention.Direct.random(p), rate, 8000, record=[500, 2000, 8000])
    growth = np.diff(norms.FRO(run.W), axis=-1)
    fight = autograd(conflict(), attention.Direct(np.zeros((1, 1))))
    return [
        Measured("descent along $V$, formula against autograd", max(formula), "<=", 1e-13),
        Measured("smallest descent along $V$", min(slope), ">", 0.0),
        Measured("smallest growth of $\\|W(k)\\|_F$, steps 500 to 2,000", growth[:, 0].min(), ">", 0.2),
        Measured("smallest growth of $\\|W(k)\\|_F$, steps 2,000 to 8,000", growth[:, 1].min(), ">", 0.2),
        Measured(
            "two sequences with one query, opposite labels: gradient at $W=0$",
            worst_entry(fight[0], 0),
            "==",
            0.0,
            breaks=True,
        ),
    ]


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
        lower = (m1 * gap.min(-1) / (2 * q.n))[:, None] * np.exp(-R)
        above.append((ray / upper).max())
        below.append((ray / lower).min())
    fight = conflict()
    grid = np.linspace(-20, 20, 801)[:, None, None]
    equal = data.Problem(p.X[0], p.z[0], p.y[0], np.zeros(10))
    return [
        Measured(
            "smallest excess at random matrices of norm 1 to 200", dynamics.gap(p, anywhere).min(), ">", 0.0
        ),
        Measured(
            "slope of the log excess along $RV$, flattest",
            np.max(slopes),
            "==",
            -1.0,
            "$R$ from 8 to 30",
            tol=0.02,
        ),
        Measured(
            "slope of the log excess along $RV$, steepest",
            np.min(slopes),
            "==",
            -1.0,
            "$R$ from 8 to 30",
            tol=0.02,
        ),
        Measured("largest excess over the upper bound", max(above), "<=", 1.0),
        Measured("smallest excess over the lower bound", min(below), ">=", 1.0),
        Measured(
            "two sequences in conflict: smallest excess at any weight",
            dynamics.gap(fight, grid).min(),
            ">=",
            0.3,
            "not separable",
            breaks=True,
        ),
        Measured(
            "equal scores: excess at $W=0$",
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
    """Excess losses of training runs against the floor for their norms; probabilities against the excess."""
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
            "smallest excess over its floor",
            min(ratios),
            ">=",
            1.0,
            "all recorded steps, optimal tokens found or not",
        ),
        Measured("largest missing probability over what the excess allows", max(shares), "<=", 1.0),
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


def _law_error(problem: data.Problem, A: FloatArray, seed: int) -> float:
    """Speed of the margin <A, W> along -gradient by autograd, minus the law of item 1, over three losses."""
    W = np.random.default_rng(seed).normal(size=A.shape)
    gap, _ = gap_and_spread(problem)
    s = attention.probabilities(problem, W)[0]
    f = float(s @ problem.scores[0])
    slopes = {"logistic": 1 / (1 + np.exp(f)), "exponential": np.exp(-f), "linear": 1.0}
    law = gap[0] * (A**2).sum() * s.prod()
    speed = [-(autograd(problem, attention.Direct(W), loss)[0] * A).sum() for loss in LOSSES]
    return worst_entry(speed, [law * slopes[loss] for loss in LOSSES])


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
    difference = p.differences().sum(-2)  # the optimal token's own difference is 0
    A = np.einsum("bnd,bne->bde", difference, p.z)  # the margin of W is <A, W>
    gap, _ = gap_and_spread(p)
    squared = (A**2).sum((-1, -2))
    c = gap[:, 0] * squared

    def margin(W: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("bde,brde->br", A, W))

    law = [_law_error(p[b], A[b], seed=b) for b in range(trials)]
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
    clock = []
    for loss in ("logistic", "exponential"):
        slope = np.array([_slope_at_best(p[b], loss) for b in range(trials)])
        weights: attention.Weights = attention.Direct.zeros(p)
        rate, time_so_far, offset[loss] = 0.2, 0.0, []
        # a step moves the margin by rate c |l'| e^-margin, and e^margin grows like the time
        for stage in range(32):
            run = dynamics.train(p, weights, dynamics.gradient_descent(rate), 80, record=1, loss=loss)
            weights, time_so_far, rate = run.weights, time_so_far + 80 * rate, rate * 1.5
            if stage in (6, 31):
                offset[loss].append(
                    float(np.abs(margin(run.W)[:, -1] - np.log(c * slope * time_so_far)).max())
                )
        clock.append(worst_entry(run.gap[:, -1] * time_so_far * squared, 1.0))
    rows = [
        Measured("item 1: speed of the margin, law against autograd", max(law), "<=", 1e-13),
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
                f"item 3: $|\\delta-\\log(c|\\ell'|t)|$ late in training, {loss} loss",
                late,
                "<=",
                0.01,
                "part of it comes from the step size",
            ),
            Measured("item 3: the same earlier, over late", early / late, ">=", 10.0, "it shrinks"),
        ]
    rows.append(
        Measured(
            "item 4: excess times $t\\|A\\|_F^2$ late in training, distance from 1",
            max(clock),
            "<=",
            0.02,
            "logistic and exponential loss",
        )
    )
    return rows
