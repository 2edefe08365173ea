"""Where global convergence ends in the plane: shares over n and T, with an example of each fate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from svmlib import svm
from svmlib.attention import Direct, Factored
from svmlib.data import Problem, random_problem
from svmlib.dynamics import normalized, train

from .framework import Task, experiment

__all__ = ["beyond_planar_phase"]

FATES = ("global", "local", "open")
"""All sequences end at their optimal token; at another one; attention is not saturated."""
DIGITS, SATURATED, RATE, STEPS = 3, 0.99, 0.1, 2000


def _instances(n: int, T: int, trials: int, seed: int) -> Problem:
    """Random planar problems with few digits, labels folded into the scores: what a page can carry."""
    p = random_problem(n, T, 2, batch=trials, seed=seed)
    X, z = p.X.round(DIGITS), p.z.round(DIGITS)
    scores = (p.y[..., None] * p.scores).round(DIGITS)
    return Problem(scores[..., None], z, np.ones((trials, n)), [1.0], keys=X)  # type: ignore[arg-type]


def _fates(n: int, T: int, trials: int, seed: int, device: str | None) -> dict[str, ArrayLike]:
    p = _instances(n, T, trials, seed)
    out: dict[str, ArrayLike] = {"feasible": svm.attention_svm(p, errors="nan").feasible}
    start = Factored.random(random_problem(n, T, 2, seed=seed), seed=0)
    for which, weights in (("W", Direct(np.zeros((2, 2)))), ("KQ", start)):
        run = train(p, weights, normalized(RATE), STEPS, record=1, device=device)
        right = (run.selected == p.optimal).all(-1)
        sure = run.top_probability[..., -1, :].min(-1) > SATURATED
        out[which] = np.where(sure, np.where(right, 0, 1), 2)
    # one example of every fate of W, the first there is; NaN where there is none
    full = np.full((len(FATES), n, T, 5), np.nan)
    for f in range(len(FATES)):
        for k in np.flatnonzero(np.asarray(out["W"]) == f)[:1]:
            parts = [p.keys[k], np.broadcast_to(p.z[k][:, None], (n, T, 2)), p.X[k]]
            full[f] = np.concatenate(parts, -1)
    return {**out, "examples": full}


@experiment(
    "beyond_planar_phase",
    about="share of global limits in the plane over (n, T), W and (K, Q), with an example of each fate",
    source="own experiment",
    trials=200,
    test_trials=20,
    cost="about 30 s on one core",
)
def beyond_planar_phase(
    task: Task, *, sequences: Sequence[int] = (1, 2, 3, 4), tokens: Sequence[int] = (2, 3, 4, 5, 6, 7, 8)
) -> dict[str, ArrayLike]:
    """Train random planar instances from zero, and count where they end.

    Numbers of an instance are rounded to three digits before training, so that an example that is written
    down is the instance that was trained. 2,000 normalised steps of length 0.1, logistic loss.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    sequences, tokens : sequence of int
        Numbers of sequences n and of tokens T.

    Returns
    -------
    dict
        ``sequences`` (N,), ``tokens`` (K,), ``feasible`` (N, K, trials) whether the optimal tokens can be
        separated, ``W`` and ``KQ`` (N, K, trials) fates: 0 global, 1 local, 2 not saturated; ``examples``
        (N, K, 3, n, T, 5) for each fate of W the first instance that has it: tokens, query and score, NaN
        where there is none and beyond n and T.
    """
    N, K = len(sequences), len(tokens)
    found: dict[str, list[ArrayLike]] = {"feasible": [], "W": [], "KQ": []}
    examples = np.full((N, K, len(FATES), max(sequences), max(tokens), 5), np.nan)
    for (i, n), (j, T) in task.progress(list(product(enumerate(sequences), enumerate(tokens))), "sizes"):
        part = task.part(f"n{n}_T{T}", _fates, n, T, task.trials, task.seed, task.device)
        for key, rows in found.items():
            rows.append(part[key])
        examples[i, j, :, :n, :T] = part["examples"]
    return {
        "sequences": np.asarray(sequences),
        "tokens": np.asarray(tokens),
        **{key: np.stack(rows).reshape(N, K, task.trials) for key, rows in found.items()},
        "examples": examples,
    }
