"""Claims of the chapter on the generalised SVM: from the programs to attention, and back."""

from __future__ import annotations

import numpy as np

from svmlib import compare, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import probabilities
from svmlib.data import Problem

from .generalized import PAGE, features, projector, random_instances
from .registry import Measured, claim


@claim(
    "prop-gen-attention",
    title="Along the sum of both parts attention converges at the rate $e^{-R}$",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, random selected sets and probabilities",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def gen_attention(trials: int) -> list[Measured]:
    """Evaluate attention along the ray and compare with the constant and the exponents of the proposition."""
    rng = np.random.default_rng(4)
    ratio, above, slope = [], [], []
    for p, chosen in random_instances(trials):
        s = np.where(chosen, rng.dirichlet(np.ones(p.T), size=p.n) + 0.05, 0.0)
        s /= s.sum(-1, keepdims=True)
        fin, mm = svm.finite_part(p, s, chosen).W, svm.generalized_svm(p, chosen).W
        radii = np.array([5.0, 10.0, 30.0, 40.0])
        path = probabilities(p, fin + radii[:, None, None] * mm)
        masked = np.where(chosen, 0.0, path).sum(-1)  # (R, n)
        expected = s * (1 - masked[..., None])
        ratio.append(np.abs(np.where(chosen, path - expected, 0.0)).max())
        first = chosen.argmax(-1)
        delta = p.differences(first)
        weight = np.take_along_axis(s, first[:, None], -1)
        c = np.where(chosen, 0.0, weight * np.exp(-np.einsum("nte,eq,nq->nt", delta, fin, p.z))).sum(-1)
        some = ~chosen.all(-1)
        above.append((masked * np.exp(radii)[:, None] / np.where(some, c, 1.0))[:, some].max())
        margins = np.where(chosen, np.inf, np.einsum("nte,eq,nq->nt", delta, mm, p.z)).min(-1)
        fall = -(np.log(masked[3, some]) - np.log(masked[2, some])) / 10.0
        slope.append(np.abs(fall / margins[some] - 1).max())
    return [
        Measured("error of $s_t(1-m)$ at selected tokens", max(ratio), "<=", 1e-13),
        Measured("masked mass over its bound $c_ie^{-R}$, largest", max(above), "<=", 1 + 1e-9),
        Measured("exponent over the smallest margin, largest error", max(slope), "<=", 0.05),
    ]


def _beside(
    p: Problem, chosen: BoolArray, W: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Directions for a feasible W: all margins positive; the smallest one 0; no margin above 1 in size."""
    out = np.eye(W.size) - projector(features(p, chosen, True))
    B, w = features(p, chosen, False) @ out, W.ravel()
    V = out @ rng.normal(size=w.size)
    V = V if (B @ V).min() < 0 else -V
    N = V / np.abs(B @ V).max()
    change = B @ N
    edge = ((B @ w)[change < 0] / -change[change < 0]).min()  # how far along N the first margin vanishes
    return tuple(x.reshape(W.shape) for x in (w + 0.9 * N, w + edge * N, N))


@claim(
    "thm-gen-necessary",
    title="What converging attention proves about W",
    kind="theorem",
    source="derived in the chapter; the converse is the hypothesis of the paper",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, random selected sets, probabilities and directions",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def gen_necessary(trials: int) -> list[Measured]:
    """Grow from any matrix along feasible directions, shortest or not, and along infeasible ones."""
    rng = np.random.default_rng(5)
    reached, finite, edge, far, unequal, negative = [], [], [], [], [], []
    for p, chosen in random_instances(trials):
        M = rng.normal(size=(p.d, p.d))
        s = probabilities(Problem(p.X, p.z, p.y, mask=chosen), M)  # of the selected tokens alone
        fin, mm = svm.finite_part(p, s, chosen).W, svm.generalized_svm(p, chosen).W
        inside = projector(features(p, chosen, True))
        D, flat, N = _beside(p, chosen, mm, rng)
        far.append(1 - compare.correlation(D, mm))
        for R in (1000.0, 4000.0):  # margins of D are at least 0.1
            for W in (M + R * D, M - np.sqrt(R) * N + R * D):
                reached.append(np.abs(probabilities(p, W) - s).max())
                finite.append(np.abs((inside @ W.ravel()).reshape(mm.shape) - fin).max())
        edge.append(np.abs(probabilities(p, M + np.sqrt(4000.0) * mm + 4000.0 * flat) - s).max())
        if (chosen.sum(-1) > 1).any():
            bad = D + (inside @ rng.normal(size=mm.size)).reshape(mm.shape)
            unequal.append(np.abs(probabilities(p, fin + 500.0 * bad) - s).max())
        negative.append(np.abs(probabilities(p, fin - 500.0 * D) - s).max())
    return [
        Measured("feasible directions: distance of attention from s", max(reached), "<=", 1e-9),
        Measured("distance of the projection of W from $W^{fin}$", max(finite), "<=", 1e-8),
        Measured(
            "V unbounded, a margin of D zero: distance of attention from s",
            max(edge),
            "<=",
            1e-9,
            breaks=True,
        ),
        Measured(
            "an equality broken: smallest distance of attention from s", min(unequal), ">", 0.01, breaks=True
        ),
        Measured(
            "margins negative: smallest distance of attention from s", min(negative), ">", 0.01, breaks=True
        ),
        Measured(
            "directions as above that are not the SVM's: mean of 1 − correlation",
            np.mean(far),
            ">",
            0.01,
            breaks=True,
        ),
    ]
