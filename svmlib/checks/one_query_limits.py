"""Claims of the chapter on one query: directions that repel, and the offset that the loss leaves behind."""

from __future__ import annotations

import numpy as np

from svmlib import attention, compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.experiments.offset import horizon, limit_offset, two_sequences
from svmlib.experiments.one_query import starts
from svmlib.experiments.recipe import additive_recipe

from .one_query import OWN, PAGE, TOKEN_SELECTION, flow, unit
from .registry import Measured, claim

CONVERSE = f"{TOKEN_SELECTION}, converse of local convergence; hypotheses and proof in the chapter"


def planted_rivals(trials: int, sign: float) -> tuple[data.Problem, FloatArray, FloatArray]:
    """Two sequences of three tokens in five dimensions whose token 0 is selected and all others support it.

    The differences are a random basis with multipliers drawn at random, so the solution is known. In
    sequence 0 token 1 has a score higher (sign 1) or lower (sign -1) than the selected token; all other
    tokens have lower scores.

    Returns
    -------
    problem : Problem
        Batch of ``trials``.
    p : ndarray, shape (trials, 5)
        Solution of the token SVM of the tokens 0.
    dual : ndarray, shape (trials, 5)
        Vector orthogonal to the differences of all tokens but the rival, with inner product 1 with its own.
    """
    rng = np.random.default_rng(0)
    found: list[tuple[FloatArray, FloatArray]] = []
    solutions, duals = [], []
    while len(found) < trials:
        delta = rng.normal(size=(4, 5)) + 0.8 * unit(rng.normal(size=(1, 5)))
        multipliers = np.linalg.solve(delta @ delta.T, np.ones(4))
        if multipliers.min() > 0.05 and multipliers.max() < 5:
            origin = rng.normal(size=(2, 1, 5))
            keys = np.concatenate([origin, origin - delta.reshape(2, 2, 5)], axis=1)
            scores = np.concatenate([np.zeros((2, 1)), -rng.uniform(0.2, 1, (2, 2))], axis=1)
            scores[0, 1] *= -sign
            found.append((keys, scores))
            solutions.append(multipliers @ delta)
            duals.append(np.linalg.pinv(delta)[:, 0])
    keys, scores = (np.stack(a) for a in zip(*found, strict=True))
    return data.prompt_problem(keys, scores), np.stack(solutions), np.stack(duals)


def with_twins(problem: data.Problem) -> data.Problem:
    """Token 1 twice at the same key; in sequence 0 the twin is worse by twice the lead of the rival.

    The twins' differences are equal, so neither is outside the span of the others. Together they lose against
    the selected token.
    """
    scores = problem.scores[..., 1:2] * np.array([[-2.0], [1.0]])
    keys = np.concatenate([problem.keys, problem.keys[..., 1:2, :]], axis=-2)
    return data.prompt_problem(keys, np.concatenate([problem.scores, scores], axis=-1))


@claim(
    "thm-repelled",
    title="A better support token repels",
    source=CONVERSE,
    chapter=PAGE,
    scope="n = 2, T = 3, keys of width 5, all tokens support tokens with positive multipliers; starts "
    "within 1 of 8 to 30 times the solution; 3,000 normalised steps of 0.05",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(40, 10),
)
def repelled(trials: int) -> list[Measured]:
    """The sign that the proof rests on; runs that start near the direction; the same with a worse rival."""
    rng = np.random.default_rng(1)
    problem, solution, dual = planted_rivals(trials, 1.0)
    solved = svm.token_svm(problem.keys, np.zeros(2, dtype=int))
    pushes = []
    for scale in (8.0, 15.0, 30.0):
        p = scale * solution + unit(rng.normal(size=(trials, 5)))
        descent = -attention.gradient(problem, attention.Direct(p[..., None])).matrix()[..., 0]
        pushes.append(
            (
                (descent * dual).sum(-1) / np.linalg.norm(descent, axis=-1) / np.linalg.norm(dual, axis=-1)
            ).max()
        )
    start = 8 * solution + unit(rng.normal(size=(trials, 5)))
    rule, when = dynamics.normalized(0.05), [0, 1000, 3000]
    run = dynamics.train(problem, attention.Direct(start[..., None]), rule, 3000, record=when)
    corr = compare.correlation(run.W, solution[..., None])
    stays = [
        compare.correlation(
            dynamics.train(other, attention.Direct(start[..., None]), rule, 3000, record=1).W[:, -1],
            solution[..., None],
        ).min()
        for other in (planted_rivals(trials, -1.0)[0], with_twins(problem))
    ]
    return [
        Measured("planted solution minus the solver's", np.abs(solved.p - solution).max(), "<=", 1e-7),
        Measured("largest push along the dual vector, as a cosine", max(pushes), "<", 0.0),
        Measured("smallest correlation at the start", corr[:, 0].min(), ">=", 0.97),
        Measured("largest correlation after 3,000 steps", corr[:, -1].max(), "<=", 0.99),
        Measured(
            "share of runs that still select the tokens 0", (run.selected == 0).all(-1).mean(), "==", 0.0
        ),
        Measured(
            "the rival worse than the selected token: smallest correlation",
            stays[0],
            ">=",
            0.999,
            breaks=True,
        ),
        Measured(
            "the rival has a worse twin, dependent differences: smallest correlation",
            stays[1],
            ">=",
            0.999,
            breaks=True,
        ),
    ]


def pairs(trials: int, acute: bool) -> tuple[FloatArray, FloatArray]:
    """(trials, 2, 2) differences whose two constraints both carry the SVM, and (trials, 2) scores.

    Acute ones have a nonnegative inner product; the others a negative one, smaller than the squared lengths.
    """
    rng = np.random.default_rng(3)
    found: list[FloatArray] = []
    while len(found) < trials:
        delta = rng.normal(size=(2, 2)) * rng.uniform(0.5, 2)
        (a, h), (_, b) = delta @ delta.T
        clear = min(a - h, b - h) > 0.3 and a * b - h * h > 0.1
        if clear and (h >= 0 if acute else -0.8 * min(a, b) < h < -0.1):
            found.append(delta)
    return np.stack(found), rng.uniform(0.3, 3, (trials, 2))


def pair_problem(delta: FloatArray, scores: FloatArray) -> data.Problem:
    """Sequences of two tokens with the given differences and scores, the worse one at 0 with score 0."""
    keys = np.stack([np.zeros_like(delta), delta], axis=-2)
    return data.prompt_problem(keys, np.stack([np.zeros_like(scores), scores], axis=-1))


def relaxation(delta: FloatArray) -> FloatArray:
    """(...) exponent with which the lag approaches its limit as a power of the training time."""
    gram = delta @ np.swapaxes(delta, -1, -2)
    a, b, h = gram[..., 0, 0], gram[..., 1, 1], gram[..., 0, 1]
    return np.asarray((a - h) * (b - h) / (a * b - h**2))


def predicted_lag(delta: FloatArray, scores: FloatArray) -> FloatArray:
    """(...) limit of the first logit margin minus the second, logistic loss."""
    gram = delta @ np.swapaxes(delta, -1, -2)
    first = gram[..., 1, 1] - gram[..., 0, 1]  # multipliers up to a common factor
    second = gram[..., 0, 0] - gram[..., 0, 1]
    w = scores / (1 + np.exp(scores))
    return np.asarray(np.log(w[..., 0] * second / (w[..., 1] * first)))


@claim(
    "prop-two-constraints",
    title="Two constraints: the residual law",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = T = 2, planar keys, logistic loss; flow to $t=10^6$, 4,000 normalised steps of 0.03",
    seeds="batch elements 0 to trials − 1 of seed 3",
    trials=(60, 15),
)
def two_constraints(trials: int) -> list[Measured]:
    """Multipliers against the solver; lags of flows and of short steps; starts that a sharp angle rescues."""
    rows, rule, rng = [], dynamics.normalized(0.03), np.random.default_rng(4)
    for name, acute in (("acute", True), ("obtuse", False)):
        delta, scores = pairs(trials, acute)
        problem, lag = pair_problem(delta, scores), predicted_lag(delta, scores)
        gram = delta @ np.swapaxes(delta, -1, -2)
        solved = svm.token_svm(problem.keys, np.ones(2, dtype=int))
        formula = np.linalg.solve(gram, np.ones((trials, 2, 1)))
        error = np.abs(solved.p - (np.swapaxes(delta, -1, -2) @ formula)[..., 0]).max()
        run = dynamics.train(problem, attention.Direct.zeros(problem), rule, 4000, record=1)
        margins = np.einsum("bnd,bd->bn", delta, run.W[:, -1, :, 0])
        found = (run.selected == 1).all(-1)
        quick = relaxation(delta).argmax()
        m = flow(problem[quick], np.zeros(2), np.array([0.0, 1e6]))[-1] @ delta[quick].T
        rows += [
            Measured(f"{name}: solution minus its formula", error, "<=", 1e-7),
            Measured(
                f"{name}: lag minus its limit, short steps",
                np.abs(margins[:, 0] - margins[:, 1] - lag)[found].max(),
                "<=",
                0.02,
            ),
            Measured(
                f"{name}: lag minus its limit, flow at $t=10^6$",
                abs(m[0] - m[1] - lag[quick]),
                "<=",
                1e-3,
                "fastest instance",
            ),
        ]
        if acute:
            starts = rng.uniform(-6, 6, (trials, 2, 1))
            rescued = dynamics.train(
                problem, attention.Direct(starts), dynamics.normalized(0.1), 1000, record=1
            )
            rows.append(
                Measured(
                    "acute, starts up to 6: smallest margin in the end",
                    np.einsum("bnd,bd->bn", delta, rescued.W[:, -1, :, 0]).min(),
                    ">=",
                    20.0,
                )
            )
    pair = pair_problem(np.array([[-2.0, 1.0], [1.0, 0.0]]), np.ones(2))
    wrong = dynamics.train(pair, attention.Direct([[4.0], [0.0]]), dynamics.normalized(0.1), 1000, record=1)
    margin = pair.keys[0, 1] @ wrong.W[-1, :, 0]
    rows.append(Measured("obtuse, a bad start: first margin in the end", margin, "<=", -20.0, breaks=True))
    return rows


@claim(
    "cor-offset",
    title="The offset in the comparison of losses",
    kind="corollary",
    source=f"{TOKEN_SELECTION}, experiment on the loss function; formula derived in the chapter",
    chapter=PAGE,
    scope="C = 1 to 10 and 100, $p(0)=0$, and other starts for C = 4; flow to $t=10^6$; 1,000 and 4,000 "
    "normalised steps of 0.1, 1,000 of 1 and 2.5; 2,000 plain steps of step size 2",
)
def offset(trials: int) -> list[Measured]:
    """Offsets of three kinds of runs against the closed form; the horizon of the case C = 100."""
    values, rows = np.arange(1.0, 11.0), []
    problem = two_sequences(values)
    zero = attention.Direct.zeros(problem)
    for loss in ("linear", "logistic"):
        limit = limit_offset(values, loss)
        steps = dynamics.train(problem, zero, dynamics.normalized(0.1), 1000, record=1, loss=loss).W[
            :, -1, 1, 0
        ]
        plain = dynamics.train(problem, zero, dynamics.gradient_descent(2.0), 2000, record=1, loss=loss).W[
            :, -1, 1, 0
        ]
        smooth = flow(problem[3], np.zeros(2), np.array([0.0, 1e6]), loss)[-1, 1]
        rows += [
            Measured(f"{loss}: normalised steps minus formula", np.abs(steps - limit).max(), "<=", 5e-4),
            Measured(
                f"{loss}, $C\\le3$: plain steps minus formula", np.abs(plain - limit)[:3].max(), "<=", 0.02
            ),
            Measured(f"{loss}, $C=4$: flow minus formula", abs(smooth - limit[3]), "<=", 1e-3),
        ]
    far = attention.Direct(np.random.default_rng(0).uniform(-5, 5, (20, 2, 1)))
    four, target = two_sequences(4.0).expand(20), limit_offset(4.0)
    longest, over = (
        np.abs(dynamics.train(four, far, dynamics.normalized(length), 1000, record=1).W[:, -1, 1, 0] - target)
        for length in (1.0, 2.5)
    )
    rows += [
        Measured("$C=4$, steps of 1, any start: offset minus formula", longest.max(), "<=", 5e-4),
        Measured(
            "$C=4$, steps of 2.5: distance of $p_2$ from the formula", over.min(), ">=", 0.1, breaks=True
        ),
    ]
    hard = two_sequences(100.0)
    run = dynamics.train(
        hard, attention.Direct.zeros(hard), dynamics.normalized(0.1), 4000, record=range(0, 4001, 10)
    )
    corr = compare.correlation(run.W, [[1.0], [0.0]])
    p, y = run.W[..., 0], limit_offset(100.0)
    recipe = additive_recipe(hard, starts([0.0]), 1000, record=1)[0, -1]
    wait = horizon(float(y), 0.99)
    return [
        *rows,
        Measured("$C=100$, logistic: correlation after 200 steps", corr[20], "==", np.sqrt(0.5), tol=1e-3),
        Measured(
            "the published constant: correlation after 1,000",
            recipe[0] / np.hypot(*recipe),
            "==",
            np.sqrt(0.5),
            tol=1e-3,
        ),
        Measured("no constant: correlation after 1,000", corr[100], "in", (0.8, 0.9)),
        Measured("no constant: offset after 4,000 minus formula", abs(p[-1, 1] - y), "<=", 5e-4),
        Measured(
            "steps to correlation 0.99 over their prediction",
            run.steps[(corr >= 0.99).argmax()] / wait,
            "==",
            1.0,
            tol=0.005,
        ),
    ]
