"""Claims of the chapter on local and global directions: plateaus, and the saddles between basins."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from svmlib import compare, data, dynamics, selection, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray
from svmlib.attention import Direct

from .descent import step_weights
from .local_global import PAGE, better_tokens, features, reduced_svm
from .registry import Measured, claim


class Lead(NamedTuple):
    """The better token that decides how long a run keeps its selection."""

    rise: float
    r"""Predicted rise of :math:`R` until the run turns; infinite where it stays."""
    steps: float
    """The same in normalised steps."""
    token: tuple[int, int]
    """Sequence and token; (-1, -1) where no better token exists."""
    clearance: float
    """Margin of the reduced program's solution at that token."""
    lead: float
    r"""Its margin in the run, less :math:`R`."""
    force: float
    r"""Weight times squared length of the feature's part off the support, :math:`|w_b|\|A_b^\perp\|^2`."""


STAYS = Lead(np.inf, np.inf, (-1, -1), np.inf, np.inf, 0.0)


def lead(
    problem: data.Problem, tokens: IntArray, W: FloatArray, rate: float = 0.1, loss: str = "logistic"
) -> Lead:
    r"""Predict when a saturated run leaves its selection, from its weights at one step.

    With :math:`U` the solution of the program against worse tokens and :math:`\lambda` its multipliers, a
    better token b has the lead :math:`u=\delta_b-R`, which follows

    .. math:: \mathrm du/\mathrm dR=(\langle A_b,U\rangle-1)-|w_b|\|A_b^\perp\|^2e^{-u}

    while the support margins keep their offsets :math:`\log(w_j/\lambda_j)` to R.

    Parameters
    ----------
    problem : Problem
        One problem with a linear head, no batch.
    tokens : ndarray of int, shape (n,)
        Tokens that the run selects.
    W : ndarray, shape (d, d)
        Iterate.
    rate : float
        Length of the normalised steps.
    loss : str
        Loss of the run.

    Returns
    -------
    Lead
        For the better token that turns the run first.
    """
    U, clear = reduced_svm(problem, tokens)
    better = better_tokens(problem, tokens)
    if not better.any():
        return STAYS
    active = U.multipliers > 1e-7 * np.nanmax(U.multipliers)
    if not U.solved or not active.any():  # nothing holds the selection
        return STAYS._replace(rise=0.0, steps=0.0)
    A = features(problem, tokens)
    w = step_weights(problem, tokens, loss)
    margins = (A * W).sum((-2, -1))
    multipliers = U.multipliers[active]
    R = np.average(margins[active] - np.log(w[active] / multipliers), weights=multipliers)
    basis = np.linalg.qr(A[active].reshape(active.sum(), -1).T)[0]
    found = []
    for i, t in np.argwhere(better):
        a = A[i, t].ravel()
        off = a - basis @ (basis.T @ a)
        force = float(abs(w[i, t]) * (off @ off))
        u = float(margins[i, t] - R)
        rise = _rise(float(clear[i, t]), u, force)
        found.append(Lead(rise, rise * float(U.value) / rate, (int(i), int(t)), float(clear[i, t]), u, force))
    return min(found)


def _rise(clearance: float, u: float, force: float) -> float:
    """Solve du/dR = (clearance - 1) - force e^-u for the R at which e^u is used up."""
    if force <= 0.0:  # the pull lies in the span of the support features and moves nothing else
        return float(np.inf)
    x = np.exp(min(u, 600.0)) / force
    y = (1.0 - clearance) * x
    if y <= -1.0:
        return float(np.inf)
    return float(x if abs(y) < 1e-9 else np.log1p(y) / (1.0 - clearance))


class Fates(NamedTuple):
    """Runs from zero: what was predicted at one step, and what happened."""

    predicted: list[Lead]
    """Prediction for each run."""
    leaves: BoolArray
    """(runs,) whether its tokens change later."""
    turn: FloatArray
    """(runs,) step at which the smallest margin of the held tokens is largest; NaN where they stay."""
    change: FloatArray
    """(runs,) first recorded step with other tokens; NaN where they stay."""
    local: BoolArray
    """(runs,) whether the tokens held are locally optimal."""
    peak: FloatArray
    """(runs,) smallest margin at ``turn``."""


@cache
def fates(runs: int, at: int = 1000, horizon: int = 12000, every: int = 50, rate: float = 0.1) -> Fates:
    """Train random instances from zero, n = 6, T = 8, d = 10, and compare with the prediction.

    Parameters
    ----------
    runs : int
        Number of instances, seeds from 0.
    at : int
        Step of the prediction.
    horizon : int
        Length of the runs.
    every : int
        Steps between two records.
    rate : float
        Length of the normalised steps.

    Returns
    -------
    Fates
        Predictions and facts.
    """
    p = data.random_problem(n=6, T=8, d=10, batch=runs)
    rule = dynamics.normalized(rate)
    marks = np.arange(at, horizon + 1, every)
    run = dynamics.train(p, Direct.zeros(p), rule, horizon, record=marks)
    held = run.top_token[:, 0]
    predicted = [lead(p[b], held[b], run.W[b, 0], rate) for b in range(runs)]
    leaves = (held != run.selected).any(-1)
    turn, change, peak = (np.full(runs, np.nan) for _ in range(3))
    if leaves.any():
        few, tokens = p[leaves], held[leaves]
        keys, z = few.keys[:, None], few.z[:, None]
        smallest = compare.margins(run.W[leaves], keys, z, tokens[:, None]).min((-2, -1))
        until = (run.top_token[leaves] == tokens[:, None]).all(-1).argmin(-1)
        top = np.where(np.arange(len(marks)) < until[:, None], smallest, -np.inf)
        turn[leaves], change[leaves] = marks[top.argmax(-1)], marks[until]
        peak[leaves] = top.max(-1)
    own = svm.attention_svm(p, held, errors="nan")
    return Fates(predicted, leaves, turn, change, selection.locally_optimal(p, own), peak)


def pair(a: float, g: float, b: float) -> data.Problem:
    r"""One sequence whose selected token 0 has features with Gram matrix ((a, g), (g, b)).

    Token 1 has a worse score than token 0 and token 2 a better one, with weights of equal size.
    """
    first = np.array([np.sqrt(a), 0.0])
    second = np.array([g / np.sqrt(a), np.sqrt(b - g * g / a)])
    return data.prompt_problem([[np.zeros(2), -first, -second]], [[0.0, -0.5, 0.5]])


def pair_start(p: data.Problem, margins: FloatArray) -> FloatArray:
    """Weights (..., 2, 1) at which token 0 has the given margins (..., 2) over the others."""
    A = p.differences([0])[0, 1:]
    return np.asarray(np.linalg.solve(A, np.asarray(margins)[..., None]))


def plateau_rise(a: float, g: float, b: float, ratio: float) -> float:
    r"""Rise of the worse token's margin until it turns, from a ratio of forces (eq-local-plateau)."""
    below = (b - g) - (g - a) * ratio  # positive below the threshold
    if abs(g - a) < 1e-12:
        return float(a / (b - a) * (ratio - 1.0 - np.log(ratio)))
    bend = (a * b - g * g) / ((b - g) * (a - g))
    end = (b - g) - (g - a) * g / a
    return float(bend * np.log(below / end) - g / (b - g) * np.log(ratio * a / g))


@claim(
    "prop-local-plateau",
    title="Two features: a threshold, or a plateau of known length",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="attention with three tokens, Gram matrices ((1, g), (g, 2)), steps of 0.1 and 0.01; then runs "
    "from zero, n = 6, T = 8, d = 10, steps of 0.4, judged at step 250 and trained for 2,000",
    seeds="0 to trials − 1",
    trials=(100, 40),
)
def plateau(trials: int) -> list[Measured]:
    """Find the threshold and the rise in three-token attention; then predict the fates of random runs."""
    below, above = _keeps(1.1, np.log(9.0) + np.array([-0.05, 0.05]))
    cases = [(0.9, 2.0), (1.0, 2.0), (1.1, 1.5)]
    exact = np.array([plateau_rise(1.0, g, 2.0, np.exp(u)) for g, u in cases])
    errors = np.abs(measured_rises(cases) / exact - 1.0)
    f = fates(trials, at=250, horizon=2000, every=10, rate=0.4)
    says = np.array([q.steps < 1750 for q in f.predicted])
    gone = f.leaves.astype(bool)
    late = gone & (f.turn > 300)
    ratio = np.array([250 + q.steps for q in f.predicted])[late] / f.turn[late]
    return [
        Measured(r"$g=1.1$: kept from a lead of $\log9+0.05$", above, "==", True),
        Measured(r"$g=1.1$: kept from a lead of $\log9-0.05$", below, "==", False),
        Measured("largest relative error of the rise, $g=0.9, 1, 1.1$", errors.max(), "<=", 0.02),
        Measured(
            "random runs: fates predicted wrongly at step 250", (says != gone).sum(), "<=", trials * 0.01
        ),
        Measured(
            "the same by the test of local optimality alone", (f.local == gone).sum(), ">=", 1, breaks=True
        ),
        Measured("runs that leave after step 250", gone.sum(), ">=", 1),
        Measured(
            "predicted over measured step of the turn, median",
            np.median(ratio) if late.any() else np.nan,
            "==",
            1.0,
            tol=0.2,
            note=f"{int(late.sum())} runs that turn after step 300",
        ),
    ]


def _keeps(g: float, leads: FloatArray) -> list[bool]:
    """Whether attention keeps token 0, from margin 12 over the worse token and these leads of the better."""
    p = pair(1.0, g, 2.0)
    starts = pair_start(p, np.stack([np.full(len(leads), 12.0), 12.0 + leads], -1))
    run = dynamics.train(p.expand(len(leads)), Direct(starts), dynamics.normalized(0.1), 2000, record=1)
    return list(run.selected[:, 0] == 0)


def measured_rises(cases: list[tuple[float, float]]) -> FloatArray:
    """Rise of the worse token's margin in three-token attention, for pairs of g and the lead at the start."""
    alone = [pair(1.0, g, 2.0) for g, _ in cases]
    starts = np.stack(
        [pair_start(p, np.array([12.0, 12.0 + u])) for p, (_, u) in zip(alone, cases, strict=True)]
    )
    p = data.prompt_problem(np.stack([q.keys for q in alone]), np.stack([q.scores for q in alone]))
    run = dynamics.train(p, Direct(starts), dynamics.normalized(0.01), 2000, record=range(0, 2001, 4))
    margins = compare.margins(run.W, p.keys[:, None], p.z[:, None], [[[0]]] * len(cases))
    return np.asarray(margins[:, :, 0, 1].max(1) - 12.0)


@claim(
    "prop-local-signed",
    title="Directions with a negative coefficient repel",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="2 to 6 random features in 8 dimensions; signs of the weights as the coefficients have them",
    seeds="0 to trials − 1",
    trials=(300, 60),
)
def signed(trials: int) -> list[Measured]:
    """Smallest eigenvalue of the residual's linearisation, and its growth when integrated."""
    low: list[list[float]] = [[], []]
    sums: list[float] = []
    gain: list[float] = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(int(rng.integers(2, 7)), 8)) + 0.6 * rng.normal(size=8)
        c = np.asarray(np.linalg.solve(A @ A.T, np.ones(len(A))), dtype=np.float64)
        sums.append(c.sum())
        B = c @ A
        off = A - np.outer(A @ B, B) / (B @ B)
        values, vectors = np.linalg.eigh((off.T * c) @ off)
        negative = bool((c < 0).any())
        smallest = values[0] if negative else np.sort(values)[-(len(A) - 1)]
        low[negative].append(float(smallest / np.abs(values).max()))
        if negative and len(gain) < 10 and values[0] < -0.02 * np.abs(values).max():
            gain.append(_growth(A, c, np.asarray(vectors[:, 0], dtype=np.float64), float(values[0])))
    return [
        Measured("smallest sum of coefficients", min(sums), ">", 0.0),
        Measured("draws with a negative coefficient", len(low[1]), ">=", trials // 5),
        Measured("largest of their smallest relative eigenvalues", max(low[1]), "<", 0.0, "negative: repels"),
        Measured("integrated: growth over prediction, worst", max(abs(g - 1) for g in gain), "<=", 0.05),
        Measured(
            "all coefficients positive: smallest relative eigenvalue",
            min(low[0]),
            ">",
            0.0,
            "attracts",
            breaks=True,
        ),
    ]


def _growth(A: FloatArray, c: FloatArray, direction: FloatArray, value: float) -> float:
    """Growth of a small offset along the flow of the exponential model, over e^(-value * time)."""
    W = 1e-6 * direction
    h, steps = 1e-3 / abs(value), 2000
    for _ in range(steps):
        margins = A @ W
        shift = margins @ c / c.sum()  # divide the common factor out: a change of time
        push = c * np.exp(-(margins - shift))
        W = W + h * (push @ A)
    B = c @ A
    off = W - (W @ B) * B / (B @ B)
    scale = float(np.linalg.norm(off)) / 1e-6
    return float(np.log(scale) / (-value * h * steps))
