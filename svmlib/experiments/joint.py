"""Head and query trained together: three sequences in the plane, their relatives, and random instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare
from svmlib.arrays import FloatArray, as_float
from svmlib.attention import Direct, probabilities
from svmlib.data import Problem, random_problem
from svmlib.dynamics import normalized
from svmlib.dynamics.joint import JointRun, train_jointly
from svmlib.dynamics.joint_path import joint_limit
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

from .framework import Task, experiment

__all__ = ["HEAD", "QUERY", "p2_joint_training", "three_sequences"]

HEAD, QUERY = (-1.0, 0.0), ((0.0,), (-1.0,))
"""Where head and query of :func:`three_sequences` start."""

EPSILONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
RATIOS = (0.5, 1.0, 2.0, 4.0)
SIZES = ((4, 4, 6), (6, 4, 8))
SATURATED = 0.99


def three_sequences(epsilon: ArrayLike = 0.0, ratio: ArrayLike = 1.0) -> Problem:
    r"""Three sequences of two tokens in the plane; the third feature has label slack :math:`\epsilon`.

    Each sequence has the token (0, 0) and a feature: (1, 1) with label +1, (1, -1) with label -1 and
    :math:`(\frac12,1+\epsilon)` with label +1. Keys are the tokens, and the query is the number 1. The
    published instances are :math:`\epsilon=0` ("tight") and :math:`\epsilon=\frac12` ("not tight").

    Parameters
    ----------
    epsilon : array_like, shape (...)
        Label slack of the third feature; several make a batch.
    ratio : array_like, shape (...)
        Factor on the values, not on the keys: a head w on values multiplied by c is the head c w on the
        values themselves, and moves c times as far with a step.

    Returns
    -------
    Problem
        n = 3, T = d = 2.

    Raises
    ------
    ShapeError
        If the two shapes do not fit together.
    DataError
        If a number is not finite, or a ratio is not positive.
    """
    given = as_float(epsilon, "epsilon"), as_float(ratio, "ratio")
    try:
        slack, factor = np.broadcast_arrays(*given)
    except ValueError:
        raise ShapeError(
            f"epsilon and ratio must broadcast together, got shapes {given[0].shape} and {given[1].shape}."
        ) from None
    if not (factor > 0).all():
        raise DataError(f"ratio must be positive, got {float(factor.min())}.")
    keys = np.zeros((*slack.shape, 3, 2, 2))
    keys[..., 0, 1, :], keys[..., 1, 1, :] = (1.0, 1.0), (1.0, -1.0)
    keys[..., 2, 1, 0], keys[..., 2, 1, 1] = 0.5, 1.0 + slack
    return Problem(factor[..., None, None, None] * keys, np.ones((3, 1)), [1.0, -1.0, 1.0], keys=keys)  # type: ignore[arg-type]


def _angle(p: FloatArray) -> FloatArray:
    return np.asarray(np.degrees(np.arctan2(p[..., 1], p[..., 0])))


def _published(device: str | None) -> dict[str, Any]:
    p = three_sequences([0.0, 0.5])
    record = np.unique(np.r_[0:201, np.geomspace(200, 2000, 25).round()])
    run = train_jointly(
        p, HEAD, Direct(QUERY), normalized(0.1), int(record[-1]), record=record, device=device
    )
    feature = probabilities(p, run.W)[..., 1]
    label = 1.0 / (1.0 + np.exp(-run.margin))
    return {
        "steps": run.steps,
        "v": run.v,
        "p": run.W[..., 0],
        "feature": feature.mean(-1),
        "label": label.mean(-1),
        "log_loss": run.log_loss,
    }


def _family(device: str | None) -> dict[str, Any]:
    epsilon, ratio = np.meshgrid(EPSILONS, RATIOS)
    p = three_sequences(epsilon, ratio)
    record = np.geomspace(50, 3000, 21).round()
    start = np.asarray(HEAD) / ratio[..., None]
    run = train_jointly(
        p, start, Direct(QUERY), normalized(0.1), int(record[-1]), record=record, device=device
    )
    limits = [
        [_angle(joint_limit(three_sequences(e), c, [1, 1, 1]).W[:, 0]) for e in EPSILONS] for c in RATIOS
    ]
    return {
        "epsilon": np.array(EPSILONS),
        "ratio": np.array(RATIOS),
        "steps": run.steps,
        "angle": _angle(run.W[..., 0]),
        "limit": np.array(limits),
    }


def _flow(device: str | None) -> dict[str, Any]:
    p = three_sequences([0.0, 0.1, 0.5])
    run = train_jointly(
        p, HEAD, Direct(QUERY), normalized(0.5), 4000, together=True, record=60, device=device
    )
    return {
        "epsilon": np.array([0.0, 0.1, 0.5]),
        "steps": run.steps,
        "v": run.v,
        "p": run.W[..., 0],
        "log_loss": run.log_loss,
    }


def _random(n: int, T: int, d: int, task: Task) -> dict[str, Any]:
    raw = random_problem(n, T, d, batch=task.trials, seed=task.seed)
    p = Problem(raw.X, np.ones((n, 1)), raw.y, keys=raw.X)
    start = 0.01 * np.random.default_rng(task.seed).normal(size=(task.trials, d))
    run = train_jointly(
        p,
        start,
        Direct.zeros(p),
        normalized(0.1),
        4000,
        record=[1000, 4000],
        device=task.device,
        progress=task.show_progress,
    )
    return compared(p, run)


def compared(p: Problem, run: JointRun, ratio: float = 1.0) -> dict[str, Any]:
    """Compare runs on a batch of problems with the SVMs of the tokens that they select.

    Parameters
    ----------
    p : Problem
        A batch (trials,).
    run : JointRun
        Its runs.
    ratio : float
        Ratio of the steps of the head and of the query.

    Returns
    -------
    dict of ndarray
        ``saturated``, ``feasible``, ``all_support``, ``single``, shape (trials,), and correlations
        ``head``, ``joint``, ``tight``, ``relaxed``, shape (trials, r), NaN where there is no SVM.

    Raises
    ------
    ShapeError
        If problem and runs are not one batch (trials,).
    """
    if len(p.batch_shape) != 1 or run.v.shape[:-2] != p.batch_shape:
        raise ShapeError(
            f"compared takes a batch (trials,) of problems with its runs, got batch axes {p.batch_shape} of "
            f"the problem and {run.v.shape[:-2]} of the runs. Make a single problem a batch: p.expand(1)."
        )
    trials, r = run.v.shape[:2]
    saturated = run.top_probability[:, -1].min(-1) > SATURATED
    found = {key: np.full((trials, r), np.nan) for key in ("head", "joint", "tight", "relaxed")}
    flags = {key: np.zeros(trials, dtype=bool) for key in ("feasible", "all_support", "single")}
    for b in np.flatnonzero(saturated):
        tokens = run.selected[b]
        try:
            own, tight, relaxed = (joint_limit(p[int(b)], c, tokens) for c in (ratio, 0.0, np.inf))
        except (InfeasibleError, SolverError):
            continue
        flags["feasible"][b] = True
        flags["all_support"][b] = not own.slack.any()
        scores = p.y[b][:, None] * (p.X[b] @ own.v)
        reaching = scores >= own.label_margin * (1 - 1e-9)
        flags["single"][b] = (reaching.sum(-1) == 1).all()
        found["head"][b] = compare.correlation(run.v[b, :, :, None], own.v[:, None])
        for key, limit in (("joint", own), ("tight", tight), ("relaxed", relaxed)):
            found[key][b] = compare.correlation(run.W[b], limit.W)
    return {"saturated": saturated, **flags, **found}


@experiment(
    "p2_joint_training",
    about="head and query trained together: tight and relaxed SVM, who moves faster",
    source="Max-Margin Token Selection (2023), joint training; our families and random instances",
    trials=100,
    cost="about 20 s on 1 core",
)
def p2_joint_training(task: Task) -> dict[str, Any]:
    """Train head and query together by normalised steps of 0.1, and by plain flow.

    Parameters
    ----------
    task : Task
        Trials are random instances of each size; the seed is that of the first, and of the starts.

    Returns
    -------
    published_steps, published_log_loss, published_feature, published_label : ndarray
        (r,), and (2, r) for the tight and the loose instance: logarithm of the loss, mean attention
        probability of the features, mean logistic probability of the labels.
    published_v, published_p : ndarray
        (2, r, 2) heads and queries.
    family_epsilon, family_ratio, family_steps : ndarray
        (6,) label slacks of the third feature, (4,) step of the head over step of the query, (r,).
    family_angle, family_limit : ndarray
        (4, 6, r) angle of the query in degrees, (4, 6) predicted limit.
    flow_epsilon, flow_steps, flow_v, flow_p, flow_log_loss : ndarray
        (3,), (r,), (3, r, 2), (3, r, 2), (3, r): both blocks divided by the norm of the whole gradient,
        steps of 0.5.
    small_*, large_* : ndarray
        Random instances with (n, T, d) = (4, 4, 6) and (6, 4, 8), keys equal to tokens, after 1000 and 4000
        steps: flags (trials,) and correlations (trials, 2) as ``compared`` returns them.
    """
    parts: list[tuple[str, dict[str, Any]]] = [
        ("published", task.part("published", _published, task.device)),
        ("family", task.part("family", _family, task.device)),
        ("flow", task.part("flow", _flow, task.device)),
    ]
    for name, size in zip(("small", "large"), SIZES, strict=True):
        parts.append((name, task.part(name, _random, *size, task)))
    return {f"{part}_{key}": value for part, found in parts for key, value in found.items()}
