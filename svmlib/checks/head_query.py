"""Claims of the chapter on head and query together: label margins, and the two SVMs."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from svmlib import compare, svm
from svmlib.arrays import FloatArray, IntArray
from svmlib.data import Problem, random_problem
from svmlib.dynamics.joint_path import joint_limit
from svmlib.errors import InfeasibleError
from svmlib.experiments.joint import three_sequences

from .registry import Measured, claim

PAGE = "convergence/head_and_query"
PAPER = "Tarzanagh et al. (2023b)"


def prompt(n: int, T: int, d: int, seed: int) -> Problem:
    """Random instance with one shared query: keys are the tokens, the query is the number 1."""
    raw = random_problem(n, T, d, seed=seed)
    return Problem(raw.X, np.ones((n, 1)), raw.y, keys=raw.X)


def label_margin(problem: Problem, outputs: FloatArray) -> float:
    """Largest label margin of a head of norm 1 on outputs (n, d); 0 where none separates the labels."""
    try:
        return svm.hard_margin(outputs, problem.y).margin
    except InfeasibleError:
        return 0.0


@cache
def best_selection(n: int, T: int, d: int, seed: int) -> tuple[Problem, IntArray, FloatArray]:
    """Return a random instance, its selection with the largest label margin, and all label margins."""
    p = prompt(n, T, d, seed)
    selections = np.array(list(product(range(T), repeat=n)))
    margins = np.array([label_margin(p, p.X[np.arange(n), s]) for s in selections])
    return p, selections[margins.argmax()], margins


def attentions(n: int, T: int, count: int, seed: int) -> FloatArray:
    """(count, n, T) probabilities, from almost uniform to almost one-hot."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, n, T)) * np.geomspace(0.3, 30.0, count)[:, None, None]
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@claim(
    "lem-hard-selection",
    title="No attention beats the best selection",
    kind="lemma",
    source="own statement",
    chapter=PAGE,
    scope="n = T = d = 3, all 27 selections, 60 random attentions, a third of them near the best selection",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def hard_selection(trials: int) -> list[Measured]:
    """Enumerate the selections, and try to beat the best with attention that mixes."""
    excess, minimax, mixed = [], [], []
    for seed in range(trials):
        p, tokens, margins = best_selection(3, 3, 3, seed)
        s = attentions(3, 3, 60, seed)
        s[::3] = [_towards(a, tokens) for a in s[::3]]  # near the best selection, too
        reached = [label_margin(p, u) for u in np.einsum("knt,ntd->knd", s, p.X)]
        excess.append(max(reached) - margins.max())
        head = svm.value_svm(p, tokens)
        scores = p.y[:, None] * (p.X @ head.w) * head.margin
        minimax.append(abs(scores.max(-1).min() - margins.max()))
        mixed.append(max(reached) - np.median(margins))
    return [
        Measured(
            "largest label margin of an attention − that of the best selection", max(excess), "<=", 1e-9
        ),
        Measured(
            r"largest $|\varphi(v)-\Lambda|$ at the head of the best selection", max(minimax), "<=", 1e-9
        ),
        Measured(
            "the same with the median selection in place of the best: mean excess",
            np.mean(mixed),
            ">",
            0.05,
            "a mixture can beat a selection that is not the best",
            breaks=True,
        ),
    ]


@claim(
    "prop-label-margin",
    title="What errors of attention cost",
    kind="proposition",
    source="own statement",
    chapter=PAGE,
    scope="n = 5, T = 3, d = 4, optimal tokens of a random head, 40 attentions; three sequences in the plane",
    seeds="0 to trials − 1",
    trials=(25, 8),
)
def attention_errors(trials: int) -> list[Measured]:
    """Both bounds at random attentions; then small errors on a support sequence and on one with slack."""
    below, above, tried = [], [], 0
    for seed in range(trials):
        p = prompt(5, 3, 4, seed)
        tokens = (p.y[:, None] * (p.X @ np.random.default_rng(seed).normal(size=p.d))).argmax(-1)
        try:
            head = svm.value_svm(p, tokens)
        except InfeasibleError:
            continue
        for s in attentions(p.n, p.T, 40, seed):
            low, high = _bounds(p, tokens, head, _towards(s, tokens))
            reached = label_margin(p, np.einsum("nt,ntd->nd", _towards(s, tokens), p.X))
            below.append(max(low, 0.0) - reached)
            if np.isfinite(high):
                above.append(reached - high)
                tried += 1
    cost = {eps: _cost(three_sequences(eps), 2, 0.01) for eps in (0.0, 0.5)}
    first = _cost(three_sequences(0.0), 0, 0.01)
    return [
        Measured("largest excess of the lower bound", max(below), "<=", 1e-9, f"{len(below)} attentions"),
        Measured("largest excess over the upper bound", max(above), "<=", 1e-9, f"{tried} attentions"),
        Measured(
            "an error of 0.01 on the first of the three sequences costs", first, "in", (0.00495, 0.00520)
        ),
        Measured("on the third, without slack", cost[0.0], "in", (0.00660, 0.00690)),
        Measured("on the third, with slack", cost[0.5], "==", 0.0, tol=1e-12),
    ]


def _towards(s: FloatArray, tokens: IntArray) -> FloatArray:
    """Attention moved towards the selected tokens, so that its errors are small enough for the bounds."""
    hard = np.eye(s.shape[-1])[tokens]
    share = 10.0 ** -(3.0 * np.abs(s).max(-1, keepdims=True).min())
    return np.asarray((1.0 - share) * hard + share * s)


def _bounds(p: Problem, tokens: IntArray, head: svm.HardMargin, s: FloatArray) -> tuple[float, float]:
    v, gamma = head.w * head.margin, head.margin
    signed = p.y[:, None, None] * p.X
    errors = signed[np.arange(p.n), tokens] - np.einsum("nt,ntd->nd", s, signed)
    reach, lost = signed[np.arange(p.n), tokens] @ v, errors @ v
    mu = head.multipliers * gamma**2
    total = np.linalg.norm(mu @ errors)
    high = gamma - mu @ lost + total**2 / gamma if total <= gamma / 2 else np.inf
    return float((reach - lost).min()), float(high)


def _cost(p: Problem, sequence: int, error: float) -> float:
    """Label margin lost by an attention error on one of the three sequences."""
    s = np.zeros((3, 2))
    s[:, 1] = 1.0
    s[sequence] = error, 1.0 - error
    return label_margin(p, p.X[:, 1]) - label_margin(p, np.einsum("nt,ntd->nd", s, p.X))


@claim(
    "cor-joint-roles",
    title="Tight, relaxed, and between",
    kind="corollary",
    source=f"{PAPER}, joint training; the ratio is ours",
    chapter=PAGE,
    scope="n = 4, T = 3, d = 6 at selections with label margin and feasible attention; three sequences",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def roles(trials: int) -> list[Measured]:
    """Solve for the limit at ratios on both sides of the threshold and compare with the two SVMs."""
    tight, relaxed, before, plain, monotone, short = [], [], [], [], [], []
    for seed in range(trials):
        p, tokens, _ = best_selection(4, 3, 6, seed)
        try:
            full, head = svm.attention_svm(p, tokens), svm.value_svm(p, tokens)
        except InfeasibleError:
            continue
        loose = svm.attention_svm(p, tokens, relaxed=~head.support)
        at = joint_limit(p, 0.0, tokens)
        tight.append(compare.angle(at.W, full.W))
        far = max(at.threshold, 0.1)
        relaxed.append(compare.angle(joint_limit(p, 1.001 * far, tokens).W, loose.W))
        if head.support.all():
            plain.append(compare.angle(joint_limit(p, 1.0, tokens).W, full.W))
        elif at.threshold > 0.01:
            before.append(compare.angle(joint_limit(p, 0.5 * at.threshold, tokens).W, loose.W))
            grid = [joint_limit(p, c * at.threshold, tokens).margin for c in (0.0, 0.3, 0.6, 0.9)]
            monotone.append(np.diff(grid).min())
            short.append(1.0 - grid[-1] / loose.margin)
    three = three_sequences(0.0), three_sequences(0.5)
    found = [svm.token_svm(q.keys, [1, 1, 1], relaxed=~svm.value_svm(q, [1, 1, 1]).support).p for q in three]
    full_loose = svm.token_svm(three[1].keys, [1, 1, 1]).p
    errors = [abs(found[0] - [4 / 3, 1 / 3]), abs(found[1] - [1.0, 0.0]), abs(full_loose - [1.25, 0.25])]
    return [
        Measured("ratio 0: largest angle to the attention SVM", max(tight), "<=", 1e-6),
        Measured(
            "above the threshold: largest angle to the relaxed SVM",
            max(relaxed),
            "<=",
            1e-6,
            f"{len(before)} instances with slack that matters",
        ),
        Measured("no slack: largest angle to the attention SVM at ratio 1", max(plain), "<=", 1e-6),
        Measured("smallest rise of the joint margin with the ratio", min(monotone), ">=", -1e-9),
        Measured("the same at 0.9 of the threshold: smallest distance to its end", min(short), ">", 1e-4),
        Measured("the three sequences: largest error of the printed solutions", np.max(errors), "<=", 1e-9),
        Measured("largest threshold of the loose instance − 1", _loose_threshold(), "==", 0.0, tol=1e-9),
        Measured(
            "at half the threshold: smallest angle to the relaxed SVM", min(before), ">", 1e-4, breaks=True
        ),
    ]


def _loose_threshold() -> float:
    return joint_limit(three_sequences(0.5), 0.5, [1, 1, 1]).threshold - 1.0
