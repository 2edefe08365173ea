"""Claims of the chapter on long sequences: scores, invariants, and where the loss has its infimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib import scansnap
from svmlib.arrays import FloatArray, IntArray, as_float
from svmlib.scansnap import TokenProcess

from .long_sequences import PAGE, PAPER, random_process
from .registry import Measured, claim


def climb(v: ArrayLike, P: ArrayLike, steps: int, *, unit: bool = True, rate: float = 1.0) -> FloatArray:
    """Ascend the mean score of attention under a fixed linear head.

    Parameters
    ----------
    v : array_like, shape (..., L)
        Head: one number for each token type.
    P : array_like, shape (..., L)
        Frequencies.
    steps : int
        Number of steps from logits zero.
    unit : bool
        Whether attention is scaled to length one before the head reads it.
    rate : float
        Step size.

    Returns
    -------
    ndarray, shape (..., L)
        Attention at the end, with sum 1.
    """
    v, P = as_float(v, "v"), as_float(P, "P")
    z = np.zeros(np.broadcast_shapes(v.shape, P.shape))
    for _ in range(steps + 1):
        s = P * np.exp(z - z.max(-1, keepdims=True))
        s = s / s.sum(-1, keepdims=True)
        f = s / np.linalg.norm(s, axis=-1, keepdims=True)
        mean = ((f if unit else s) * v).sum(-1, keepdims=True)
        z = z + rate * (f * (v - f * mean) if unit else s * (v - mean))
    return np.asarray(s)


@claim(
    "prop-long-scores",
    title="Normalised attention is softmax with doubled logits and scores $g_l/f_l$",
    kind="proposition",
    source="proof in the chapter",
    chapter=PAGE,
    scope="8 token types; heads with entries from 0.2 to 0.8 and one 1, 4,000 steps of ascent",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def scores(trials: int) -> list[Measured]:
    """Evaluate the three forms of the gradient, then climb with a fixed head, normalised and not."""
    forms, sums = [], []
    rng = np.random.default_rng(0)
    for seed in range(trials):
        draw = np.random.default_rng([seed, 3])
        s, g = draw.dirichlet(np.ones(8)), draw.normal(size=8)
        f = s / np.linalg.norm(s)
        lemma = np.diag(f) @ (np.eye(8) - np.outer(f, f)) @ g
        p, gamma = f**2, g / f
        softmax = (np.diag(p) - np.outer(p, p)) @ gamma
        votes = np.outer(f, f) * (np.outer(g, f) - np.outer(f, g))
        forms.append(max(np.abs(softmax - lemma).max(), np.abs(votes.sum(1) - lemma).max()))
        sums.append(abs(lemma.sum()))
        z = draw.normal(size=8)
        tilted = s * np.exp(z)
        tilted /= np.linalg.norm(tilted)
        doubled = np.exp(2 * (np.log(s) + z))
        forms.append(np.abs(tilted**2 - doubled / doubled.sum()).max())
    P, v = rng.dirichlet(np.full(8, 4.0), 20), rng.uniform(0.2, 0.8, (20, 8))
    v[np.arange(20), rng.integers(0, 8, 20)] = 1.0
    top = np.linalg.norm(v, axis=1)
    reached = climb(v, P, 4000)
    f = reached / np.linalg.norm(reached, axis=1, keepdims=True)
    any_f = rng.dirichlet(np.full(8, 0.3), 2000)
    any_f /= np.linalg.norm(any_f, axis=1, keepdims=True)
    signed = rng.normal(size=8)
    # how often the best token has too much already: common draws, so that few trials do not change it
    even, liked = scansnap.features(rng.dirichlet(np.ones(8), 2000)), rng.uniform(0.2, 1.0, (2000, 8))
    motion = even * (liked - even * (even * liked).sum(1, keepdims=True))
    loses = np.take_along_axis(motion, liked.argmax(1)[:, None], 1) < 0
    alone = climb(v, P, 4000, unit=False, rate=5.0)
    largest = np.take_along_axis(alone, v.argmax(1)[:, None], 1)[:, 0]
    return [
        Measured("largest difference of the three forms", max(forms), "<=", 1e-13),
        Measured("largest sum of the entries", max(sums), "<=", 1e-14),
        Measured(
            "positive $g$: share of 2,000 instances in which the token with the largest loses",
            loses.mean(),
            "in",
            (0.06, 0.12),
        ),
        Measured(
            "random attention, head of mixed signs: largest $v^\\top f/\\|v_+\\|$",
            (any_f @ signed).max() / np.linalg.norm(np.maximum(signed, 0)),
            "in",
            (0.9, 1.0),
        ),
        Measured("ascent: smallest $v^\\top f/\\|v\\|$", ((v * f).sum(1) / top).min(), ">=", 1 - 1e-8),
        Measured(
            "ascent: largest distance of $f$ from $v/\\|v\\|$", np.abs(f - v / top[:, None]).max(), "<=", 1e-4
        ),
        Measured(
            "without normalisation: smallest attention on the best token",
            largest.min(),
            ">",
            0.9,
            breaks=True,
        ),
    ]


@claim(
    "prop-long-invariants",
    title="Row sums stay, unseen rows stay, columns of tokens that never come next stay equal",
    kind="proposition",
    source=f"{PAPER}, Lemma 1, for the row sums",
    chapter=PAGE,
    scope="Syn-Small, Gaussian start, equal columns where no class comes next; 60 steps, batch 32, T = 127",
    seeds="0 to trials − 1",
    trials=(4, 2),
)
def invariants(trials: int) -> list[Measured]:
    """Train in several ways and compare the weights with the start."""
    process = scansnap.syn_small()
    M, unseen = process.M, process.P.sum(0) == 0
    asked = np.array([process.P[process.row == q].sum(0) > 0 for q in range(len(process.queries))])
    never_next = np.setdiff1d(np.arange(M), process.label)
    worst = {"rows": 0.0, "unseen": 0.0, "columns": 0.0, "moved": np.inf, "adam": np.inf}
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        D, z = 0.3 * rng.normal(size=(M, M)), 0.3 * rng.normal(size=(2, M))
        D[:, never_next] = D[:, never_next[:1]]
        for T, momentum in ((127, 0.9), (np.inf, 0.9), (None, 0.0)):
            run = scansnap.simulate(
                process,
                1.0,
                1.0,
                60,
                T=T,
                batch=32,
                momentum=momentum,
                start=(D, z),
                seeds=(seed,),
                record=[0, 60],
            )
            end_D, end_z = run.D[0], run.z[0, -1]
            sums = [np.abs((a - b).sum(-1)).max() for a, b in ((end_D, D), (end_z, z))]
            worst["rows"] = max(worst["rows"], *sums)
            worst["unseen"] = max(
                worst["unseen"], np.abs((end_D - D)[unseen]).max(), np.abs((end_z - z)[~asked]).max()
            )
            spread = end_D[:, never_next]
            worst["columns"] = max(worst["columns"], np.ptp(spread, axis=1).max())
            worst["moved"] = min(worst["moved"], np.abs(end_D - D).max(), np.abs(end_z - z).max())
        adam = scansnap.simulate(
            process,
            0.1,
            0.1,
            60,
            T=127,
            batch=32,
            optimizer="adam",
            start=(D, z),
            seeds=(seed,),
            record=[0, 60],
        )
        worst["adam"] = min(worst["adam"], np.abs((adam.D[0] - D).sum(-1)).max())
    flow = scansnap.flow(process, [1.0, 10.0, 100.0])
    return [
        Measured("change of a row sum of $D$ or $Z$, largest", worst["rows"], "<=", 1e-12),
        Measured(
            "change at tokens that never occur, or not with the query, largest", worst["unseen"], "==", 0.0
        ),
        Measured(
            "spread of the columns of tokens that never come next, largest", worst["columns"], "<=", 1e-12
        ),
        Measured("largest change of an entry, smallest over runs", worst["moved"], ">", 0.1),
        Measured("flow: largest sum of a row of $Z$", np.abs(flow.z.sum(-1)).max(), "<=", 1e-8),
        Measured(
            "flow: largest sum of the decoder logits of a class",
            np.abs(flow.logits.sum(-1)).max(),
            "<=",
            1e-7,
        ),
        Measured(
            "Adam: largest change of a row sum of $D$, smallest over runs",
            worst["adam"],
            ">",
            0.1,
            breaks=True,
        ),
    ]


def grouped(process: TokenProcess, groups: IntArray) -> float:
    """Entropy of the class given its group, in nats.

    Parameters
    ----------
    process : TokenProcess
        Classes with their probabilities.
    groups : ndarray of int, shape (C,)
        Group of each class.

    Returns
    -------
    float
        Zero if every class is a group of its own.
    """
    total = np.bincount(groups, process.prior)[groups]
    return float(-(process.prior * np.log(process.prior / total)).sum())


def fitted(process: TokenProcess, f: FloatArray, groups: IntArray, radius: float) -> FloatArray:
    """Build the decoder of the proof: a group's own next tokens get the logit ``radius``, up to their shares.

    Parameters
    ----------
    process : TokenProcess
        Classes.
    f : ndarray, shape (C, M)
        What the decoder reads of each class.
    groups : ndarray of int, shape (C,)
        Classes of one group have equal rows in ``f``.
    radius : float
        Size.

    Returns
    -------
    ndarray, shape (M, M)
        Decoder.
    """
    D = np.zeros((process.M, process.M))
    total = np.bincount(groups, process.prior)[groups]
    D[:, process.label] = ((radius + np.log(process.prior / total))[:, None] * f).T
    return D


@claim(
    "prop-long-infimum",
    title="No finite stationary point; the infimum is the entropy of the class given what the decoder reads",
    kind="proposition",
    source=f"{PAPER}, section 4, for one class; proof in the chapter",
    chapter=PAGE,
    scope="6 classes, 10 contextual tokens, random priors; in half of the instances two pairs are alike",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def infimum(trials: int) -> list[Measured]:
    """Evaluate gradients at random weights, and the loss along the decoder of the proof."""
    column, sign, excess, above, near_best, rate = [], [], [], [], [], []
    for seed in range(trials):
        rng = np.random.default_rng([seed, 9])
        base = random_process(6, 10, seed)
        groups = np.array([0, 1, 2, 3, 0, 1]) if seed % 2 else np.arange(6)
        process = TokenProcess(base.P[groups], base.query, base.label, rng.uniform(0.2, 1.0, 6))
        D, z = rng.normal(size=(process.M, process.M)), rng.normal(size=(1, process.M))
        found = scansnap.gradients(process, D, z)
        f = scansnap.features(scansnap.attention(process, z))
        odds = np.exp(found.logits - found.logits.max(1, keepdims=True))
        pi = odds / odds.sum(1, keepdims=True)
        other = np.setdiff1d(np.arange(process.M), process.label)
        expected = ((f.T * process.prior) @ pi)[:, other]
        column.append(np.abs(found.D[:, other] - expected).max())
        sign.append(found.D[:, other][f.any(0)].min())
        lowest = grouped(process, groups)
        best = fitted(process, f, groups, 5e4)
        excess.append(abs(float(scansnap.loss(process, best, z)) - lowest))
        above.append(float(found.loss) - lowest)
        near_best += [float(scansnap.loss(process, best + 0.1 * rng.normal(size=D.shape), z)) - lowest]
        if not seed % 2:
            near = (f @ f.T - np.eye(6)).max()
            radii = np.array([5.0, 10.0, 20.0]) / (1.0 - near)
            losses = [float(scansnap.loss(process, fitted(process, f, groups, r), z)) for r in radii]
            rate.append(np.array(losses) / ((process.M - 1) * np.exp(-radii * (1.0 - near))))
    pair = TokenProcess([[1.0, 1.0]] * 2, [0, 0], [0, 1])
    still = scansnap.gradients(pair, np.zeros((2, 2)), np.zeros((1, 2)))
    return [
        Measured(
            "tokens that never come next: error of the formula for their columns", max(column), "<=", 1e-15
        ),
        Measured("smallest entry of these columns at tokens that occur", min(sign), ">", 0.0),
        Measured("loss of the decoder of the proof minus the entropy, largest", max(excess), "<=", 1e-9),
        Measured("loss at random weights minus the entropy, smallest", min(above), ">", 0.1),
        Measured(
            "loss near the decoder of the proof minus the entropy, smallest", min(near_best), ">=", -1e-12
        ),
        Measured("classes that differ: loss over its bound, largest", np.max(rate), "<=", 1.0),
        # one wrong token has the logit of the bound: no smaller exponent would do
        Measured("classes that differ: loss over its bound, smallest", np.min(rate), ">=", 1e-3),
        Measured(
            "every token is a next token, two like classes: gradient norm at zero weights",
            float(np.linalg.norm(still.D) + np.linalg.norm(still.z)),
            "==",
            0.0,
            breaks=True,
        ),
    ]
