"""Claims of the chapter on over-parameterisation about orthogonal tokens."""

from __future__ import annotations

import numpy as np

from svmlib import attention, compare, data, selection, svm
from svmlib.attention import Direct
from svmlib.data import Problem
from svmlib.dynamics import Run, gradient_descent, normalized, train
from svmlib.experiments.limits import outcome
from svmlib.experiments.wrong_limits import cheapest_mistake

from .registry import Measured, claim

PAGE = "convergence/overparameterization"


def orthogonal_problem(n: int, T: int, d: int, seed: int) -> Problem:
    """Make orthogonal tokens in each sequence, and orthogonal queries, all of random lengths.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens, dimensions; d at least n and T.
    seed : int
        Seed.

    Returns
    -------
    Problem
        One problem.
    """
    rng = np.random.default_rng(seed)
    lengths, sizes = rng.uniform(0.3, 3.0, (n, T, 1)), rng.uniform(0.3, 3.0, (n, 1))
    frames = np.linalg.qr(rng.normal(size=(n, d, T)))[0]
    queries = np.linalg.qr(rng.normal(size=(d, n)))[0].T
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    return Problem(lengths * np.swapaxes(frames, -1, -2), sizes * queries, y, rng.normal(size=d))


@claim(
    "prop-orthogonal-support",
    title="Orthogonal tokens: all are support tokens of every selection",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, random lengths; three random selections each",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def orthogonal_support(trials: int) -> list[Measured]:
    """Compare the closed form of the multipliers with the solver, then tilt one token towards another."""
    error, share = [], []
    for seed in range(trials):
        p = orthogonal_problem(3, 4, 6, seed)
        for tokens in np.random.default_rng(seed).integers(4, size=(3, 3)):
            s = svm.attention_svm(p, tokens)
            squares = np.square(p.X).sum(-1)
            others = np.arange(4) != tokens[:, None]
            total = np.where(others, 1.0 / squares, 0.0).sum(-1, keepdims=True)
            chosen = np.take_along_axis(squares, tokens[:, None], -1)
            size = np.square(p.z).sum(-1)[:, None]
            exact = np.where(others, 1.0 / (size * squares * (1.0 + chosen * total)), 0.0)
            error.append(np.abs(exact - s.multipliers).max() / exact.max())
            share.append(selection.support_fraction(s))
    aligned = Problem(
        np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 3.0]]]),
        np.array([[1.0, 0.0]]),
        np.ones(1),
        np.array([1.0, 0.0]),
    )
    return [
        Measured("multipliers against the closed form, relative error", max(error), "<=", 1e-8),
        Measured("smallest share of support tokens", min(share), "==", 1.0),
        Measured(
            "two parallel tokens: share of support tokens",
            selection.support_fraction(svm.attention_svm(aligned)),
            "<",
            1.0,
            breaks=True,
        ),
    ]


def _spaced(batch: int, n: int, T: int, d: int, seed: int) -> Problem:
    """Make orthogonal tokens and queries of random lengths, with the scores -1 to 2 at equal distances.

    Tokens of different sequences are not orthogonal to each other. The head is 5 times the first basis
    vector; an orthogonal matrix whose first column is prescribed gives a token any score up to 5 lengths.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.uniform(0.7, 1.4, (batch, n, T))
    gamma = rng.permuted(np.broadcast_to(np.linspace(-1.0, 2.0, T), (batch, n, T)), axis=-1)
    y = np.where(rng.random((batch, n)) < 0.5, -1.0, 1.0)
    frames = rng.normal(size=(batch, n, d, d))
    first = gamma * y[..., None] / (5.0 * lengths)
    rest = frames[..., T:, 0]
    left = np.sqrt(1.0 - np.square(first).sum(-1, keepdims=True))
    column = np.concatenate([first, left * rest / np.linalg.norm(rest, axis=-1, keepdims=True)], -1)
    frames[..., 0] = column
    frames = np.linalg.qr(frames)[0]
    frames *= np.sign((frames[..., 0] * column).sum(-1))[..., None, None]
    axes = np.swapaxes(np.linalg.qr(rng.normal(size=(batch, d, n)))[0], -1, -2)
    z = rng.uniform(0.7, 1.4, (batch, n, 1)) * axes
    v = np.broadcast_to(5.0 * np.eye(d)[0], (batch, d))
    return Problem(lengths[..., None] * frames[..., :T, :], z, y, v)


def _start(p: Problem, spread: float, seed: int) -> Direct:
    """Weights whose logits are uniform in (-spread, spread), for orthogonal tokens and queries."""
    a = np.random.default_rng(seed).uniform(-spread, spread, p.scores.shape)
    tokens = a / np.square(p.X).sum(-1)
    return Direct(np.einsum("bnt,bntd,bne->bde", tokens, p.X, p.z / np.square(p.z).sum(-1, keepdims=True)))


def _below(p: Problem, run: Run, loss: str) -> float:
    """Share of runs whose loss is below that of the cheapest mistake: from there they converge."""
    return float((run.gap[:, -1] < cheapest_mistake(p, loss)).mean())


def _plain(p: Problem, start: Direct, steps: int = 8000) -> Run:
    rate = 1.0 / attention.smoothness(p, "linear").max()
    return train(p, start, gradient_descent(rate), steps, record=10, loss="linear")


def _elsewhere(p: Problem) -> float:
    """Share of runs from random weights, among separable problems, that saturate at a wrong selection.

    Only locally optimal ones are counted, so that slow runs are not.
    """
    p = p[svm.feasible(p)]
    scale = 2.0 * np.sqrt(p.n)
    start = Direct(scale * np.random.default_rng(2).normal(size=(len(p), p.key_dim, p.query_dim)))
    run = _plain(p, start, 4000)
    return float((outcome(p, run.selected, run.top_probability[:, -1], "fro")[0] == 1).mean())


@claim(
    "thm-orthogonal-global",
    title="Orthogonal tokens and queries: every run arrives at the optimal tokens",
    kind="theorem",
    source="statement and proof in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, 8000 plain steps on the linear loss; n = 1, T = 4, short normalised steps",
    seeds="0 to 2",
    trials=(100, 20),
)
def orthogonal_global(trials: int) -> list[Measured]:
    """Start runs at wrong tokens, see whether they pass the level and turn; then drop each orthogonality."""
    p = _spaced(trials, 3, 4, 6, 0)
    run = _plain(p, _start(p, 1.0, 1))
    wrong = (run.top_token[:, 0] != p.optimal).any(-1)
    a = attention.logits(p, run.W) / np.square(p.X).sum(-1)[:, None]  # sum over tokens: never changes
    mean = (attention.probabilities(p, run.W) * p.scores[:, None]).sum(-1)
    turned = compare.correlation(run.W[:, [0, -1]], svm.attention_svm(p).W)
    alone = _spaced(2 * trials, 1, 4, 6, 0)
    path = train(alone, _start(alone, 10.0, 1), normalized(0.05), 4000, record=[0, 4000])
    first = np.take_along_axis(
        attention.probabilities(alone, path.W[:, 0]), alone.optimal[..., None], -1
    ).min()
    q = _spaced(trials, 2, 3, 6, 0)  # with one query for both sequences
    shared = Problem(q.X, np.repeat(q.z[:, :1], 2, 1), q.y, q.v)
    few = data.random_problem(3, 4, 3, batch=trials)
    return [
        Measured("share of starts with a wrong token ahead", wrong.mean(), ">", 0.8),
        Measured("share of runs that pass the level", _below(p, run, "linear"), "==", 1.0),
        Measured("largest correlation with the SVM solution at the start", turned[:, 0].max(), "<", 0.8),
        Measured("the same at the end, smallest", turned[:, 1].min(), ">", 0.95),
        Measured("smallest growth of a mean score between records", np.diff(mean, axis=1).min(), ">", 0.0),
        Measured(
            "change of the conserved sum of logits", np.abs(np.ptp(a.sum(-1), axis=1)).max(), "<=", 1e-9
        ),
        Measured("one sequence: smallest probability of the optimal token at the start", first, "<", 1e-6),
        Measured(
            "one sequence: share of runs that pass the level", _below(alone, path, "logistic"), "==", 1.0
        ),
        Measured(
            "one query for two sequences: share of runs at a wrong, locally optimal selection",
            _elsewhere(shared),
            ">",
            0.02,
            breaks=True,
        ),
        Measured("random tokens, d = 3: the same share", _elsewhere(few), ">", 0.02, breaks=True),
    ]
