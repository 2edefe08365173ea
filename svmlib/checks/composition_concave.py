"""Claims of the chapter on composing tokens: strictly concave margins."""

from __future__ import annotations

import numpy as np

from svmlib import attention, dynamics
from svmlib.attention import Direct, best_attention, probabilities, quadratic
from svmlib.data import Problem
from svmlib.experiments.selection_count import settle

from .composition import PAGE, PAPER, draws, local_scores, margins, random_quadratic, vertex_margins
from .registry import Measured, claim


def square(center: tuple[float, float] = (0.0, 0.0)) -> Problem:
    """The corners of a square as tokens, best output at a point inside, one-hot keys.

    Parameters
    ----------
    center : pair of float
        The best output.

    Returns
    -------
    Problem
        One sequence; the logits are free.
    """
    X = np.array([[[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]]])
    head = quadratic(2.0 * np.asarray(center), 1.0)
    return Problem(X, np.ones((1, 1)), np.ones(1), head=head, keys=np.eye(4)[None])


@claim(
    "thm-concave-composes",
    title="Strictly concave margins have one best output, and with independent tokens one best attention",
    kind="theorem",
    source="that nonlinear heads have to compose: " + PAPER + "; statement and proof in the chapter",
    chapter=PAGE,
    scope="quadratic heads, λ = 2, T = 4; attentions near the best, d = 3, 4; runs, n = 2, d = 8; a square",
    seeds="0 to trials − 1",
    trials=(40, 15),
)
def concave(trials: int) -> list[Measured]:
    """A nearly best margin needs nearly the best attention, unless tokens are dependent."""
    kept, lead, ratio, off = [], [], [], []
    for d in (3, 4):
        p = random_quadratic(1, 4, d, trials, 2.0)
        best = best_attention(p)
        several = best.selected.sum(-1)[:, 0] >= 2
        single = vertex_margins(p).max(-1)[:, 0]
        kept.append(best.selected.sum(-1)[several, 0])
        lead.append((best.value[:, 0] - single)[several])
        for seed in range(30):
            near = (1e-4 * draws(p, seed) + (1.0 - 1e-4) * best.probabilities)[several]
            short = best.value[several] - margins(p[several], near)
            u = np.einsum("bnt,bntd->bnd", near - best.probabilities[several], p.X[several])
            ratio.append(short[:, 0] / (2.0 * np.square(u).sum(-1)[:, 0]))
        other = np.where(best.selected, -np.inf, local_scores(p, best.probabilities)).max(-1)
        top = np.where(best.selected, local_scores(p, best.probabilities), -np.inf).max(-1)
        off.append((top - other)[np.isfinite(other)])
    corners = square((0.2, 0.1))
    ends = [
        dynamics.train(corners, Direct(a[:, None]), dynamics.gradient_descent(1.0), 1000, record=[1000]).W[-1]
        for a in np.array([[0.0, 0, 0, 0], [2.0, -1, 1, 0], [-1.0, 2, 0, 1]])
    ]
    s = np.stack([probabilities(corners, W)[0] for W in ends])
    u = s @ corners.X[0]
    error, masked, moved = _trained(trials)
    return [
        Measured("sequences with several kept tokens", len(np.concatenate(kept)), ">=", trials / 2),
        Measured("there: smallest gain over the best single token", np.concatenate(lead).min(), ">", 0.0),
        Measured(
            "missing margin over λ times the squared distance of outputs, smallest",
            np.concatenate(ratio).min(),
            ">=",
            1.0 - 1e-6,
            "strict concavity: a nearly best margin needs a nearly best output",
        ),
        Measured(
            "smallest lead of kept over dropped tokens, local score", np.concatenate(off).min(), ">", 0.0
        ),
        Measured(
            "runs near the best margin: largest error of a logit difference of kept tokens",
            error,
            "<=",
            0.02,
            "margin within 1e-6 of the best one; tokens with a share above 0.05",
        ),
        Measured("all runs: smallest lead of kept over dropped tokens", masked, ">", 2.0, "logits"),
        Measured("its smallest growth in the last 500 short steps", moved, ">", 0.05),
        Measured(
            "square: largest distance of trained outputs from the best one",
            np.linalg.norm(u - [0.2, 0.1], axis=-1).max(),
            "<=",
            1e-5,
        ),
        Measured(
            "square: spread of the probabilities over three starts",
            np.ptp(s, axis=0).max(),
            ">",
            0.1,
            breaks=True,
        ),
    ]


def _trained(trials: int) -> tuple[float, float, float]:
    """Logit differences of trained W: error within the kept tokens, lead over the others, its growth."""
    p = random_quadratic(2, 4, 8, trials, 2.0)
    best = best_attention(p)
    early = settle(p, schedule=((0.1, 1000), (0.01, 500)))
    late = settle(p, early, schedule=((0.001, 500),))
    near = best.value - margins(p, probabilities(p, late.matrix())) <= 1e-6
    top = best.probabilities.argmax(-1)[..., None]
    a, b = (attention.logits(p, w.matrix()) for w in (early, late))
    a, b = (x - np.take_along_axis(x, top, -1) for x in (a, b))
    sure = (best.probabilities > 0.05) & near[..., None]
    ratio = best.probabilities / best.probabilities.max(-1, keepdims=True)
    error = np.abs(b[sure] - np.log(ratio[sure])).max()
    kept = np.where(best.selected, b, np.inf).min(-1, keepdims=True)
    dropped = ~best.selected
    return float(error), float((kept - b)[dropped].min()), float((a - b)[dropped].min())
