"""Claims of the chapter on local and global directions: the exact residual, its constant, idle supports."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from svmlib import compare, data, dynamics, svm
from svmlib.arrays import FloatArray, IntArray
from svmlib.attention import Direct

from .descent import longest_step, step_weights
from .local_global import PAGE, features
from .registry import Measured, claim

STEP = 0.4  # well below descent.longest_step of every instance; the claim checks it
MARKS = (125, 250, 500, 1000, 2000, 4000, 8000)
MEMORY = 1000  # step at which the part from the past is read off


@claim(
    "cor-local-constant",
    title=r"The constant of $1-\mathrm{corr}$: a part fixed by the data and a part that the past left",
    kind="corollary",
    source="proof in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10, normalised steps of 0.4, zero starts; 8,000 steps",
    seeds="0 to trials − 1",
    trials=(24, 12),
)
def constant(trials: int) -> list[Measured]:
    """Offsets of support tokens after 8,000 steps, and the constant with the past read off at step 1,000."""
    r = residuals(trials)
    settled = r.rate * MARKS[-1] > 12.0
    naive = r.own[settled] / (r.own + r.past)[settled]
    return [
        Measured("shortest of the longest stable steps", r.longest.min(), ">", STEP, "logits settle"),
        Measured("runs with a predicted settling time below 8,000 / 12", settled.sum(), ">=", trials // 2),
        Measured("their largest error of an offset", r.errors[settled, -1].max(), "<=", 0.02, "logits"),
        Measured("runs with all offsets within 0.02", (r.errors[:, -1] < 0.02).mean(), ">=", 0.75),
        Measured(
            "predicted over measured $1-\\mathrm{corr}$, worst log",
            np.abs(np.log(r.ratio[settled])).max(),
            "<=",
            0.3,
        ),
        Measured("the same, median", np.median(r.ratio[settled]), "==", 1.0, tol=0.05),
        Measured("without the part from the past: median", np.median(naive), "<=", 0.8, breaks=True),
    ]


class Residuals(NamedTuple):
    """Offsets and constants of long runs."""

    steps: IntArray
    """(r,) steps."""
    errors: FloatArray
    """(runs, r) largest error of a support token's offset, in logits."""
    own: FloatArray
    r"""(runs,) squared norm of the residual that data and loss fix."""
    past: FloatArray
    """(runs,) squared norm of the part orthogonal to the support features, at step 1,000."""
    ratio: FloatArray
    """(runs,) predicted over measured 1 - correlation at the last step."""
    rate: FloatArray
    """(runs,) rate per step at which the residual settles."""
    gap: FloatArray
    """(runs, r) measured 1 - correlation."""
    size: FloatArray
    """(runs, r) Frobenius norm of W."""
    longest: FloatArray
    """(runs,) length that normalised steps must stay below."""


@cache
def residuals(runs: int) -> Residuals:
    """Train to 8,000 steps from zero and compare offsets and 1 - correlation with their predictions."""
    p = data.random_problem(n=6, T=8, d=10, batch=runs)
    run = dynamics.train(p, Direct.zeros(p), dynamics.normalized(STEP), MARKS[-1], record=MARKS)
    steps, W = run.steps, run.W
    kept = (run.top_token[:, -2] == run.selected).all(-1)
    errors, own, past, ratio, rate, gap, size, longest = ([] for _ in range(8))
    for b in np.flatnonzero(kept):
        s = svm.attention_svm(p[b], run.selected[b])
        longest.append(longest_step(p[b], s))
        active = s.multipliers > 1e-7 * s.multipliers.max()
        rows = features(p[b], s.tokens)[active].reshape(active.sum(), -1)
        multipliers = s.multipliers[active]
        target = np.log(step_weights(p[b], s.tokens)[active] / multipliers)
        flat = W[b].reshape(len(steps), -1)
        offset = flat @ rows.T - target
        errors.append(np.abs(offset - np.average(offset, axis=1, weights=multipliers)[:, None]).max(1))
        unit = s.W.ravel() * s.margin
        fixed = np.linalg.lstsq(rows, target, rcond=None)[0]
        own.append(float(fixed @ fixed - (fixed @ unit) ** 2))
        basis = np.linalg.qr(rows.T)[0]
        early = flat[MARKS.index(MEMORY)]
        past.append(float(np.sum((early - basis @ (basis.T @ early)) ** 2)))
        gap.append(1.0 - compare.correlation(W[b], s.W))
        size.append(np.linalg.norm(flat, axis=-1))
        ratio.append((own[-1] + past[-1]) / (2.0 * size[-1][-1] ** 2) / gap[-1][-1])
        spread = np.sqrt(multipliers)[:, None] * (rows - np.outer(rows @ unit, unit))
        values = np.linalg.svd(spread, compute_uv=False)[: len(rows) - 1] ** 2
        rate.append(STEP * float(s.margin) * (values.min() if len(values) else np.inf))
    columns = (np.array(x) for x in (errors, own, past, ratio, rate, gap, size, longest))
    return Residuals(steps, *columns)


@claim(
    "prop-local-zero",
    title="A support token with multiplier zero runs ahead like $\\log R$",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="attention with three tokens, features (1, 0) and (1, 1), normalised steps of 0.2",
)
def zero_multiplier(trials: int) -> list[Measured]:
    """Follow the lead of the idle support token over two decades of steps."""
    p = idle_support()
    s = svm.attention_svm(p, [0])
    marks = [60, 600, 6000]
    run = dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.2), marks[-1], record=marks)
    margins = compare.margins(run.W, p.keys[None], p.z[None], [[0]])[:, 0, 1:]
    first, u = margins[:, 0], margins[:, 1] - margins[:, 0]
    kept = np.exp(u) + u - first  # a = y = 1, equal weights
    predicted = u**2 / (2.0 * first**2)
    gap = 1.0 - compare.correlation(run.W, s.W)
    return [
        Measured("multiplier of the idle support token", s.multipliers[0, 2], "<=", 1e-9),
        Measured(
            "its margin in the solution", float((p.differences([0])[0, 2] @ s.W)[0]), "==", 1.0, tol=1e-9
        ),
        Measured(
            "change of the conserved quantity over its terms", abs(kept[2] - kept[1]) / first[2], "<=", 1e-3
        ),
        Measured(r"lead minus $\log R$ at the end", u[-1] - np.log(first[-1]), "==", 0.0, tol=0.01),
        Measured("predicted over measured $1-\\mathrm{corr}$", predicted[-1] / gap[-1], "==", 1.0, tol=0.001),
        Measured(
            "$k^2(1-\\mathrm{corr})$, 6,000 over 60 steps",
            gap[-1] / gap[0] * 1e4,
            ">=",
            2.0,
            "grows",
            breaks=True,
        ),
    ]


def idle_support() -> data.Problem:
    """Keys such that the second support token of token 0 has multiplier 0; both others score worse by 1."""
    return data.prompt_problem([[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]], [[1.0, 0.0, 0.0]])
