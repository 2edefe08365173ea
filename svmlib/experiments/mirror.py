"""Mirror descent and steepest descent in entry-wise norms, against the SVMs of these norms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib import attention, compare, data, dynamics, norms, svm
from svmlib.arrays import FloatArray
from svmlib.errors import DataError

from .framework import Task, experiment

__all__ = ["mirror_descent", "reference_correlations"]

SIZES = (4, 5, 6)  # n, T, d
RULES = ("mirror", "steepest")
RECORDS = 12  # in the course of a run, spread geometrically


def reference_correlations() -> FloatArray:
    """Give correlations of a run for p (rows) with the SVM for q (columns), p and q in 1.75, 2, 3.

    Returns
    -------
    ndarray, shape (3, 3)
        Means over ten instances of an independent calculation with normalised mirror descent and cvxpy, to
        three digits; the settings are those of :func:`mirror_descent`, but for the norm that steps are
        divided by.
    """
    return np.array([[1.0, 0.993, 0.934], [0.993, 1.0, 0.968], [0.931, 0.964, 0.994]])


@experiment(
    "mirror_descent",
    about="which SVM mirror descent and steepest descent in l_p norms approach",
    source="Optimizing Attention with Mirror Descent (2024), correlations of l_p runs with l_q SVMs",
    trials=100,
    cost="about 30 s on one core",
    test_trials=8,
)
def mirror_descent(
    task: Task,
    *,
    exponents: tuple[float, ...] = (1.75, 2.0, 3.0),
    steps: int = 6000,
    rate: float = 0.1,
) -> dict[str, ArrayLike]:
    """Train W from zero by two rules for each exponent p, and compare with the l_q SVM for each q.

    Each run is compared with the SVMs of the tokens that it selects itself at the end. Random instances,
    n = 4, T = 5, d = 6, logistic loss.

    Parameters
    ----------
    task : Task
        Number of instances, seed of the first one, device, progress and storage.
    exponents : tuple of float
        Exponents, above 1 and finite.
    steps : int
        Number of steps.
    rate : float
        Their length: of W in its own norm (steepest descent), of the mirror image in the dual norm.

    Returns
    -------
    dict of str to array
        With P = len(exponents): "exponents" (P,); "steps" (r,), about a dozen. For "mirror" and "steepest",
        each name after the rule's and an underscore: "correlation" (P, trials, P), of the final W with the
        SVM of each exponent; "own" (P, trials, r), along the run, with that of its own exponent; "size" (P,
        trials, r), norm of W in the run's own norm; "share" (P, trials, r), margin of W at norm one, relative
        to the largest; "optimal" (P, trials), whether the tokens are the optimal ones. "agreement" (P,
        trials): correlation of the two final W; "same" (P, trials): whether they select the same tokens.
    """
    if len(exponents) < 1:
        raise DataError("mirror_descent needs at least one exponent.")
    pairs = [(rule, float(p)) for rule in RULES for p in exponents]
    found = {
        (rule, p): task.part(f"{rule}_p{p:g}", _one_run, task, rule, p, tuple(exponents), steps, rate)
        for rule, p in task.progress(pairs)
    }
    out: dict[str, ArrayLike] = {"exponents": np.array(exponents, dtype=float)}
    out["steps"] = found[pairs[0]]["steps"]
    for rule in RULES:
        for key in ("correlation", "own", "size", "share", "optimal"):
            out[f"{rule}_{key}"] = np.stack([found[rule, float(p)][key] for p in exponents])
    ends, chosen = (
        [np.stack([found[rule, float(p)][key] for p in exponents]) for rule in RULES]
        for key in ("W", "tokens")
    )
    same = (chosen[0] == chosen[1]).all(-1)
    return {**out, "agreement": compare.correlation(*ends), "same": same}


def _one_run(
    task: Task, rule: str, p: float, exponents: tuple[float, ...], steps: int, rate: float
) -> dict[str, ArrayLike]:
    problem = data.random_problem(*SIZES, batch=task.trials, seed=task.seed)
    norm = norms.lp(p)
    how = dynamics.mirror_descent(p, rate) if rule == "mirror" else dynamics.steepest(norm, rate)
    start = attention.Direct.zeros(problem)
    run = dynamics.train(problem, start, how, steps, record=RECORDS, device=task.device)
    tokens = run.selected
    solved = [svm.lp_svm(problem, tokens, q, errors="nan") for q in exponents]
    margins = compare.margins(run.W, problem.X[:, None], problem.z[:, None], tokens[:, None])
    own = solved[exponents.index(p)]
    with np.errstate(invalid="ignore", divide="ignore"):  # W = 0 at the start
        share = margins.min((-2, -1)) / norm(run.W) / own.margin[:, None]
    return {
        "steps": run.steps,
        "correlation": np.stack([compare.correlation(run.W[:, -1], s.W) for s in solved], axis=-1),
        "own": compare.correlation(run.W, own.W),
        "size": norm(run.W),
        "share": share,
        "optimal": (tokens == problem.optimal).all(-1),
        "tokens": tokens,
        "W": run.W[:, -1],
    }
