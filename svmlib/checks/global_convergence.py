"""Claims of the chapter on global convergence: directions that no pair of tokens votes against."""

from __future__ import annotations

import numpy as np

from svmlib import compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, gradient, probabilities, smoothness
from svmlib.experiments import wrong_limits

from .registry import Measured, claim

PAGE = "convergence/global_convergence"
PAPER = "Transformers as Support Vector Machines (2023)"
OWN = "This book"
SIZES = (0.3, 1.0, 3.0, 10.0)


def equal_scores(trials: int, n: int = 3, T: int = 5, e: int = 5) -> data.Problem:
    """Gaussian keys and queries; token 0 of a sequence scores 1, the others 0."""
    return gaussian(np.broadcast_to(np.eye(T)[0], (trials, n, T)), e)


def gaussian(scores: FloatArray, e: int) -> data.Problem:
    """Gaussian keys and queries of width e with the given scores (trials, n, T)."""
    rng = np.random.default_rng(0)
    trials, n, T = scores.shape
    keys, z = rng.normal(size=(trials, n, T, e)), rng.normal(size=(trials, n, e))
    return data.Problem(scores[..., None], z, np.ones(n), np.ones(1), keys=keys)


def all_support(trials: int) -> tuple[data.Problem, svm.AttentionSVM]:
    """Random instances in which every token but the optimal ones is a support token."""
    p = wrong_limits.small_problem(data.random_problem(2, 4, 30, batch=trials))
    solution = svm.attention_svm(p)
    full = solution.support.sum((-2, -1)) == p.n * (p.T - 1)
    return p[full], svm.attention_svm(p[full])


def slopes(p: data.Problem, V: FloatArray, points: int, sizes: tuple[float, ...]) -> FloatArray:
    """Correlation of the loss gradient with V at Gaussian weights of these sizes, shape (points, ...)."""
    rng = np.random.default_rng(0)
    size = np.resize(sizes, points)
    W = rng.normal(size=(points, *V.shape)) * size.reshape(-1, *[1] * V.ndim)
    G = gradient(p.expand(points), Direct(W)).matrix()
    return compare.correlation(G, np.broadcast_to(V, G.shape))


def _two_levels(p: data.Problem, V: FloatArray) -> float:
    """Error of the covariance formula for equal non-optimal scores, relative to its value."""
    W = np.random.default_rng(1).normal(size=V.shape)
    s = probabilities(p, W)
    f = (s * p.scores).sum(-1)
    margins = np.where(
        np.arange(p.T) == p.optimal[..., None], 0.0, compare.margins(V, p.keys, p.z, p.optimal)
    )
    slope = -1.0 / (1.0 + np.exp(f))
    formula = (slope * s[..., 0] * (s * margins).sum(-1)).mean(-1)
    direct = (gradient(p, Direct(W)).matrix() * V).sum((-2, -1))
    return float(np.abs(formula / direct - 1.0).max())


@claim(
    "thm-no-contrary-vote",
    title="No stationary point where no pair votes against a direction",
    source=f"{PAPER}, theorem on global convergence of the norm; the common condition is ours",
    chapter=PAGE,
    scope="equal scores: n = 3, T = 5, Gaussian keys and queries of width 5; all tokens support tokens: "
    "n = 2, T = 4, d = 30; 20 Gaussian weights of several sizes for each instance; 300 plain steps of 1/L",
    seeds="0 to trials − 1",
    trials=(100, 40),
)
def no_contrary_vote(trials: int) -> list[Measured]:
    """Measure the slope of the loss along the solution at random weights, in three kinds of instances."""
    p = equal_scores(trials)
    V = svm.attention_svm(p).W
    full, solution = all_support(trials)
    generic = gaussian(np.random.default_rng(1).normal(size=(trials // 2, 2, 6)), 3)
    other = svm.attention_svm(generic, errors="nan")
    open_case = slopes(generic[other.solved], other.W[other.solved], 20, SIZES)
    few = p[:20]
    rate = dynamics.gradient_descent(float(1.0 / smoothness(few).max()))
    run = dynamics.train(few, Direct.zeros(few), rate, 300, record=range(0, 301, 10))
    along = (run.W * V[:20, None]).sum((-2, -1))
    size = np.linalg.norm(run.W, axis=(-2, -1))
    return [
        Measured(
            "equal scores: largest correlation of gradient and solution",
            slopes(p, V, 20, SIZES).max(),
            "<",
            0.0,
        ),
        Measured(
            "all support: the same",
            slopes(full, solution.W, 20, SIZES[:3]).max(),
            "<",
            0.0,
            f"{len(full)} instances",
        ),
        Measured("equal scores: relative error of the two-level formula", _two_levels(p, V), "<=", 1e-9),
        Measured(
            "plain steps: smallest gain along the solution between records", np.diff(along).min(), ">", 0.0
        ),
        Measured(
            "plain steps: smallest growth of the norm in the second half",
            np.diff(size)[:, 15:].min(),
            ">",
            0.0,
        ),
        Measured(
            "independent scores, n = 2, T = 6, width 3: share of points with a rise along the solution",
            (open_case >= 0).mean(),
            "in",
            (0.12, 0.32),
            f"{open_case.size} points",
            breaks=True,
        ),
    ]


def contrary_pair(p: data.Problem, V: FloatArray) -> tuple[int, int, int, float]:
    """Pair with the strongest vote against V: sequence, two tokens, and the vote (0 or negative)."""
    b = np.einsum("nte,ef,nf->nt", p.keys, V, p.z)
    gamma = p.scores
    votes = (gamma[..., None] - gamma[:, None, :]) * (b[..., None] - b[:, None, :])
    i, t, u = np.unravel_index(votes.argmin(), votes.shape)
    return int(i), int(t), int(u), float(min(votes.min(), 0.0))


def prescribed(p: data.Problem, logits: FloatArray) -> FloatArray:
    """Weights with given logits (n, T), up to a constant for each sequence; needs independent differences."""
    delta = p.keys[:, :-1] - p.keys[:, -1:]
    pointers = np.stack(
        [
            np.linalg.lstsq(k, a, rcond=None)[0]
            for k, a in zip(delta, logits[:, :-1] - logits[:, -1:], strict=True)
        ]
    )
    return np.asarray(pointers.T @ np.linalg.pinv(p.z).T)


def uphill(p: data.Problem, V: FloatArray, far: float = 30.0) -> FloatArray:
    """Weights that listen to the pair with the strongest vote against V and to nothing else."""
    i, t, u, _ = contrary_pair(p, V)
    logits = np.zeros((p.n, p.T))
    logits[:, 0] = far
    logits[i] = -far
    logits[i, [t, u]] = 0.0
    return prescribed(p, logits)


@claim(
    "prop-votes-needed",
    title="A contrary pair makes the loss rise somewhere",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 5, d = 8, random tokens; equal scores: Gaussian keys of width 5",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def votes_needed(trials: int) -> list[Measured]:
    """Construct the weights of the proof."""
    p = data.random_problem(3, 5, 8, batch=trials)
    V = svm.attention_svm(p).W
    against = np.array([contrary_pair(p[b], V[b])[3] < -1e-9 for b in range(trials)])
    rising = [
        float(compare.correlation(gradient(p[b], Direct(uphill(p[b], V[b]))).matrix(), V[b]))
        for b in np.flatnonzero(against)
    ]
    equal = equal_scores(trials)
    W = svm.attention_svm(equal).W
    none = min(contrary_pair(equal[b], W[b])[3] for b in range(trials))
    return [
        Measured("share of random instances with a pair against the solution", against.mean(), ">=", 0.9),
        Measured(
            "smallest correlation of gradient and solution at the constructed weights", min(rising), ">", 0.0
        ),
        Measured("equal scores: strongest vote against the solution", none, ">=", -1e-9),
    ]
