"""Claims of the chapter on scanning: what joint training keeps of the law."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import softmax

from svmlib.arrays import FloatArray
from svmlib.scansnap import ScanFlow, TokenProcess, features, flow, simulate, symmetric

from .registry import Measured, claim
from .scanning import PAGE, random_process
from .scanning_growth import ratios


def residuals(p: TokenProcess, logits: FloatArray) -> FloatArray:
    """(..., C, M) one-hot next token minus predicted probabilities, without cancellation."""
    probability = softmax(logits, -1)
    out = -probability
    index = np.arange(p.C), p.label
    probability[..., index[0], index[1]] = 0.0
    out[..., index[0], index[1]] = probability.sum(-1)
    return np.asarray(out)


def deviation(p: TokenProcess, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(r,) largest deviation of r(t)/(r(0) chi(t)) from 1 in class 0; (r,) growth factor of its leader."""
    r, grown, first = ratios(p, z, np.zeros(z.shape[1:]))[0]
    return np.abs(r / (first[:, None] * grown) - 1).max(0), grown


@cache
def instance() -> TokenProcess:
    """Return the process on which the chapter measures joint training."""
    return symmetric(4, [0.4], [0.06, 0.12, 0.18, 0.24], vocabulary=50)


@cache
def joint(attention_rate: float) -> ScanFlow:
    """Joint flow of the chapter's process to t = 10⁶ at decoder rate 1."""
    times = np.concatenate([[0.0], np.geomspace(1.0, 1e6, 121)])
    return flow(instance(), times, 1.0, attention_rate)


@claim(
    "prop-scan-memory",
    title="Joint training: the decoder remembers",
    kind="proposition",
    source="own statement",
    chapter=PAGE,
    scope=(
        "150 population steps at rates (1, .5), random processes; joint flow of the chapter's "
        "process, attention rates .003 to 1, to t = 10⁶"
    ),
    seeds="0 to trials − 1",
    trials=(6, 2),
)
def memory(trials: int) -> list[Measured]:
    """Rebuild the gradient sent down from the past, and hold the one-sided law against the flow."""
    rebuilt, weights = [], []
    for seed in range(trials):
        p = random_process(seed, classes=3, common=2, distinct=3)
        run = simulate(p, 1.0, 0.5, 150, record=range(151))
        f, r = features(run.s[0]), residuals(p, run.logits[0])
        w = np.einsum("tcm,cm->tc", r[:-1], r[-1]) / p.C  # decoder rate 1
        weights.append(w.min())
        past = np.einsum("tc,tcm->cm", w, f[:-1])
        error = np.abs(past - run.sent[0, -1])[p.distinct]
        rebuilt.append(error.max() / run.sent[0, -1][p.distinct].max())
    excess, held, returned = [], [], []
    for eta in (0.003, 0.1, 1.0):
        z = joint(eta).z
        for r, grown, first in ratios(instance(), z, np.zeros(z.shape[1:]))[:1]:
            own = z[:, 0, instance().distinct[0]]
            lead = own[:, 3:] - own[:, :3]  # of the leader, over each
            rising = np.minimum.accumulate(np.diff(lead, axis=0, prepend=0.0) >= -1e-12, axis=0).T
            order = r / (first[:, None] * grown) - 1
            excess.append(order[::-1][rising].max())
            held.append(rising.mean())
            returned.append((lead.max(0) - lead[-1]).max())
    at = []
    for eta in (0.003, 0.3):
        d, grown = deviation(instance(), joint(eta).z)
        at.append(float(np.interp(0.05, grown - 1, d)))
    return [
        Measured(
            "gradient sent to distinct tokens against the mean over the past, relative",
            max(rebuilt),
            "<=",
            1e-10,
        ),
        Measured("smallest weight of a past step", min(weights), ">", 0.0),
        Measured(r"largest $r(t)/(r(0)\chi(t))-1$ while the lead rises", max(excess), "<=", 1e-7),
        Measured("share of times and tokens at which it still rises", min(held), ">=", 0.2),
        Measured(
            "deviation at 5 % growth, attention rate .3 over rate .003",
            at[1] / at[0],
            "in",
            (1.0, 10.0),
            "rates differ 100-fold",
        ),
        Measured("joint flow at rate 1: how far a lead falls back", max(returned), ">", 0.003, breaks=True),
    ]
