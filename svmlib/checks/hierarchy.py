"""Claims of the chapter on a hierarchy of SVMs: one head of many as a layer of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from svmlib import attention, compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Architecture, Direct, TransformerWeights
from svmlib.data import Problem

from .registry import Measured, claim

PAGE = "nonlinear/hierarchy"
OWN = "derived in the chapter"


def network(
    batch: int, n: int = 4, T: int = 5, d: int = 6, seed: int = 0, **made: Any
) -> tuple[Problem, Architecture, TransformerWeights]:
    """Random data and a random transformer for them; ``made`` describes the architecture."""
    p = data.random_problem(n, T, d, batch=batch, seed=seed)
    a = Architecture(**made)
    return p, a, TransformerWeights.random(p, a, seed=seed, scale=1.0)


def network_loss(p: Problem, a: Architecture, w: TransformerWeights, loss: str = "logistic") -> FloatArray:
    """Mean loss of a transformer, by the definition."""
    margin = p.y * attention.transformer(p, a, w).predictions
    return np.asarray((np.logaddexp(0, -margin) if loss == "logistic" else np.exp(-margin)).mean(-1))


def _slope(
    p: Problem, a: Architecture, w: TransformerWeights, V: FloatArray, at: tuple[int, int]
) -> FloatArray:
    """Derivative of the loss along V in one W, by differences of fourth order."""
    values = []
    for step in (-2.0, -1.0, 1.0, 2.0):
        W = np.array(w.W)
        W[(slice(None), *at)] += 1e-4 * step * V
        values.append(network_loss(p, a, w._replace(attention=Direct(W))))
    return np.asarray((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12e-4)


def _gradient(own: Problem, w: TransformerWeights, at: tuple[int, int]) -> FloatArray:
    return np.asarray(attention.gradient(own, Direct(w.W[:, *at]), loss="linear")[0])


def _shift(p: Problem, w: TransformerWeights) -> FloatArray:
    """What the residual connection adds to the prediction margin of one layer."""
    return np.asarray(p.y * (p.z * np.asarray(w.v)[:, None]).sum(-1))


@claim(
    "prop-hierarchy-gradient",
    title="The gradient of a head is that of one layer with local scores",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6; 3 layers of 2 heads, with and without residual, MLP, LayerNorm, causal mask",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def layer_gradient(trials: int) -> list[Measured]:
    """Compare the one-layer gradient with differences of the network's loss."""
    worst, stale = 0.0, []
    kinds: list[dict[str, Any]] = [
        {"mlp": False, "residual": False},
        {"layer_norm": True, "causal": True, "activation": "gelu"},
        {"activation": "gelu", "causal": True},
    ]
    for kind in kinds:
        p, a, w = network(trials, layers=3, heads=2, **kind)
        for at in ((0, 0), (1, 1), (2, 0)):
            own = attention.layer_problem(p, a, w, *at)
            G = _gradient(own, w, at)
            V = np.random.default_rng(1).normal(size=G.shape)
            found = _slope(p, a, w, V, at)
            worst = max(worst, float(np.abs(found - (G * V).sum((-2, -1))).max()))
            if kind is kinds[0] and at[0] == 0:
                moved = w._replace(attention=Direct(w.W * [[[[2.0]]]]))
                there = attention.layer_problem(p, a, moved, *at).X
                stale.append(np.abs(there - own.X).max((-3, -2, -1)) / np.abs(own.X).max((-3, -2, -1)))
    p, a, w = network(trials, layers=3, heads=2)
    own = attention.layer_problem(p, a, w, 1, 0)
    G = _gradient(own, w, (1, 0))
    V = np.random.default_rng(1).normal(size=G.shape)
    # a ReLU kink between the points of the difference would show; the median is free of it
    kinked = np.median(np.abs(_slope(p, a, w, V, (1, 0)) - (G * V).sum((-2, -1))))
    return [
        Measured("largest difference of directional derivatives, smooth networks", worst, "<=", 1e-8),
        Measured("the same with ReLU, median", kinked, "<=", 1e-8),
        Measured(
            "all W doubled: relative change of the local scores, smallest",
            np.min(stale),
            ">",
            0.05,
            "they are no constants",
            breaks=True,
        ),
    ]


@claim(
    "cor-hierarchy-frozen",
    title="Frozen local scores: the path of one head turns to the SVM",
    kind="corollary",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 4, d = 12; both layers of random two-layer networks with MLP; radii 20 and 80",
    seeds="0 to trials − 1",
    trials=(6, 2),
)
def frozen_network(trials: int) -> list[Measured]:
    """Freeze the local scores, follow the regularisation path of the linear loss, compare with the SVM."""
    p, a, w = network(trials, n=3, T=4, d=12, layers=2, heads=2)
    far, bounded, near = [], [], []
    for layer in (0, 1):
        own = attention.layer_problem(p, a, w, layer, 1)
        best = svm.attention_svm(own, errors="nan")
        path = dynamics.regularization_path(own, [20.0, 80.0], loss="linear", starts=0)
        corr = 1 - compare.correlation(path.W, best.W)
        gap = np.sort(own.scores, -1)
        least, most = (gap[..., -1] - gap[..., -2]).min(-1), (gap[..., -1] - gap[..., 0]).sum(-1)
        C = np.log(2 * (own.T - 1) * most / least)
        bounded.append(corr * best.margin[:, None] * [20.0, 80.0] / C[:, None])
        far.append(corr[:, 1])
        near.append(corr[:, 1] / corr[:, 0])
    other = svm.attention_svm(own, (own.optimal + 1) % own.T, errors="nan")
    return [
        Measured("(1 − correlation) over its bound $C/(\\Gamma R)$, largest", np.max(bounded), "<=", 1.0),
        Measured("radius 80: 1 − correlation with the SVM, largest", np.max(far), "<=", 0.1),
        Measured("1 − correlation at radius 80 over that at 20, largest", np.max(near), "<=", 0.5),
        Measured(
            "correlation with the SVM of other tokens, largest",
            np.nanmax(compare.correlation(path.W[:, -1], other.W)),
            "<",
            0.5,
            breaks=True,
        ),
    ]


@claim(
    "prop-hierarchy-residual",
    title="With a linear read-out the residual connection changes slopes, not scores",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 5, T = 6, d = 8, one layer of one head; 200 normalised steps of 0.2",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def residual(trials: int) -> list[Measured]:
    """Compare one layer with and without residual connection: slopes, scores, gradients, paths."""
    p, a, w = network(trials, n=5, T=6, d=8, layers=1, mlp=False)
    bare = Architecture(layers=1, mlp=False, residual=False)
    own, plain = (attention.layer_problem(p, b, w, 0, 0) for b in (a, bare))
    shift = _shift(p, w)
    ratio = own.scores / plain.scores
    spread = np.abs(ratio / ratio[..., :1] - 1).max()
    allowed = np.abs(np.log(ratio[..., 0])) - np.abs(shift)
    # the same programs, reached by two trainings
    rule = dynamics.normalized(0.2)
    runs = [dynamics.train_layers(p, b, w, rule, 200, record=[20, 200]) for b in (a, bare)]
    ends = [r.W[:, :, 0, 0] for r in runs]
    views = [attention.transformer(p, b, r.weights) for b, r in zip((a, bare), runs, strict=True)]
    tokens = [v.probabilities[:, 0, 0, :, -1].argmax(-1) for v in views]
    same = (tokens[0] == tokens[1]).all(-1)
    apart = 1 - compare.correlation(ends[0], ends[1])
    mlp, with_mlp = network(trials, n=5, T=6, d=8, layers=1)[1:]
    no_query = Problem(p.X, 1e-30 * p.z, p.y, p.v)
    left, right = (attention.layer_problem(q, mlp, with_mlp, 0, 0).optimal for q in (p, no_query))
    return [
        Measured("scores with and without: largest relative change of their ratios", spread, "<=", 1e-12),
        Measured(r"$|\log(\text{ratio of slopes})|-|v^\top z|$, largest", allowed.max(), "<=", 1e-12),
        Measured(
            "both trainings that select alike: 1 − correlation after 200 steps, largest",
            apart[same, 1].max(),
            "<=",
            0.02,
            f"{int(same.sum())} of {trials} instances",
        ),
        Measured(
            "the same over that after 20 steps, median",
            np.median(apart[same, 1] / apart[same, 0]),
            "<=",
            0.7,
        ),
        Measured(
            "with an MLP: share of sequences whose best token depends on the query in the stream",
            (left != right).mean(),
            ">",
            0.02,
            breaks=True,
        ),
    ]


def embedded(p: Problem, w: TransformerWeights) -> Problem:
    """One-layer problem with a sequence for each (sequence, head), the heads' W being blocks of its W."""
    B, H = len(p), w.W.shape[2]
    place = np.eye(H)
    keys = np.einsum("bntd,hg->bnhtgd", p.X, place).reshape(B, p.n * H, p.T, H * p.d)
    z = np.einsum("bnd,hg->bnhgd", p.z, place).reshape(B, p.n * H, H * p.d)
    pulled = np.einsum("bhde,bd->bhe", w.V[:, 0], w.v)
    values = np.einsum("bntd,bhd->bnht", p.X, pulled).reshape(B, p.n * H, p.T, 1)
    return Problem(values, z, np.repeat(p.y, H, -1), np.ones(1), keys=keys)


@cache
def _two_heads(trials: int) -> tuple[Problem, Architecture, TransformerWeights, Problem]:
    p, a, w = network(trials, n=3, T=4, d=8, layers=1, heads=2, mlp=False)
    w = w._replace(attention=Direct(0.0 * w.W))
    return p, a, w, embedded(p, w)


@claim(
    "prop-hierarchy-heads",
    title="Heads with a linear read-out: one SVM each, equal margins on the joint path",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 4, d = 8, one layer of two heads; 300 steps of 0.2",
    seeds="0 to trials − 1",
    trials=(8, 8),
)
def heads(trials: int) -> list[Measured]:
    """Solve the joint program and the two separate ones, then train both heads, jointly and separately."""
    p, a, w, joint = _two_heads(trials)
    own = [attention.layer_problem(p, a, w, 0, h) for h in (0, 1)]
    single = [svm.attention_svm(q) for q in own]
    both = svm.attention_svm(joint)
    parts = np.zeros((trials, 2, p.d, 2, p.d))
    for h in (0, 1):
        parts[:, h, :, h] = single[h].W
    block = parts.reshape(trials, 2 * p.d, 2 * p.d)
    norms = np.hypot(single[0].value, single[1].value)
    low, high = _price(p, a, w, joint, single)
    rule = dynamics.normalized(0.2)
    ratio = single[0].value / single[1].value
    found = {}
    for name, together in (("joint", True), ("separate", False)):
        run = dynamics.train_layers(p, a, w, rule, 300, together=together, record=[300])
        W = run.W[:, -1, 0]
        sizes = np.linalg.norm(W, axis=(-2, -1))
        corr = np.stack([compare.correlation(W[:, h], single[h].W) for h in (0, 1)])
        chosen = attention.transformer(p, a, run.weights).probabilities[:, 0, :, :, -1].argmax(-1)
        right = np.all([chosen[:, h] == own[h].optimal for h in (0, 1)], axis=(0, 2))
        found[name] = (corr[:, right], np.abs(np.log(sizes[:, 0] / sizes[:, 1] / ratio))[right])
    return [
        Measured(
            "joint program: largest difference from the two separate ones, relative",
            (np.linalg.norm(both.W - block, axis=(-2, -1)) / norms).max(),
            "<=",
            1e-7,
        ),
        Measured("lower bound of the excess loss over it, largest", np.max(low), "<=", 1.0),
        Measured("excess loss over its upper bound, largest", np.max(high), "<=", 1.0),
        Measured(
            "trained jointly: smallest correlation of a head with its own SVM",
            found["joint"][0].min(),
            ">=",
            0.97,
        ),
        Measured(
            r"the same: largest $|\log|$ of the ratio of norms over $\Gamma_2/\Gamma_1$",
            found["joint"][1].max(),
            "<=",
            0.15,
        ),
        Measured(
            "trained with steps of one length: smallest correlation", found["separate"][0].min(), ">=", 0.97
        ),
        Measured(
            r"the same: largest $|\log|$ of the ratio of norms over $\Gamma_2/\Gamma_1$",
            found["separate"][1].max(),
            ">",
            0.2,
            "each head has the norm of its steps",
            breaks=True,
        ),
    ]


def _price(
    p: Problem, a: Architecture, w: TransformerWeights, joint: Problem, single: list[svm.AttentionSVM]
) -> tuple[FloatArray, FloatArray]:
    """Both bounds of the excess loss, as ratios that must not exceed 1, at matrices near the SVMs."""
    rng = np.random.default_rng(0)
    ordered = np.sort(joint.scores, -1)
    spread, gap = ordered[..., -1] - ordered[..., 0], ordered[..., -1] - ordered[..., -2]
    shift = _shift(p, w)
    best = shift + ordered[..., -1].reshape(len(p), p.n, -1).sum(-1)
    reach = np.abs(shift) + np.abs(ordered).max(-1).reshape(len(p), p.n, -1).sum(-1)
    least = np.logaddexp(0, -best).mean(-1)
    steep = 1 / (1 + np.exp(reach.max(-1)))  # the logistic slope is no smaller on the range of margins
    low, high = [], []
    for R in (1.0, 5.0, 20.0, 60.0):
        W = np.stack([s.W * s.margin[:, None, None] for s in single], 1)[:, None]
        W = W + 0.2 * rng.normal(size=W.shape) / p.d
        W *= R / np.sqrt((W**2).sum((-3, -2, -1), keepdims=True))
        each = [compare.margins(W[:, 0, h], p.X, p.z, s.tokens) for h, s in enumerate(single)]
        margin = np.min(each, axis=(0, 2, 3))
        excess = network_loss(p, a, w._replace(attention=Direct(W))) - least
        low.append(steep / p.n * gap.min(-1) / (1 + np.exp(margin)) / excess)
        high.append(excess / ((p.T - 1) / p.n * spread.sum(-1) * np.exp(-margin)))
    return np.array(low), np.array(high)
