"""Every position asks: causal self-attention, and next-token prediction on priority graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, graphs, svm
from svmlib.arrays import BoolArray, FloatArray, check_integer, check_positive
from svmlib.attention import Direct, Factored, probabilities
from svmlib.data import Problem, next_token_problem, random_next_tokens, random_sequence_problem
from svmlib.dynamics import gradient_descent, normalized, train
from svmlib.errors import DataError

from ._priority import PriorityPath, finite_minimum, priority_path, split_loss
from .framework import Task, experiment

__all__ = [
    "PriorityPath",
    "finite_minimum",
    "ntp_priority",
    "p1_causal",
    "priority_data",
    "priority_path",
    "split_loss",
]

RATE = 0.1
SOURCE = "Transformers as Support Vector Machines (2023), section on sequential and causal prediction"
SATURATED = 0.99


def _trained(
    n: int, T: int, d: int, causal: bool, steps: int, trials: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    p = random_sequence_problem(n, T, d, batch=trials, seed=seed, causal=causal)
    run = train(p, Direct.zeros(p), normalized(RATE), steps, record=12, device=device)
    goal = svm.attention_svm(p, run.selected, errors="nan")
    chosen = np.take_along_axis(p.scores, run.selected[..., None], -1)[..., 0]
    best = chosen == p.scores.max(-1)
    choice = np.broadcast_to(p.visible.sum(-1) > 1, best.shape)  # a position that sees one token has none
    return {
        "steps": run.steps,
        "correlation": compare.correlation(run.W, goal.W),
        "feasible": goal.feasible,
        "margin": goal.margin,
        "saturated": run.top_probability[..., -1, :].min(-1) > SATURATED,
        "optimal": (best & choice).sum(-1) / choice.sum(-1),
    }


def _feasible(n: int, T: int, d: int, causal: bool, trials: int, seed: int) -> dict[str, ArrayLike]:
    p = random_sequence_problem(n, T, d, batch=trials, seed=seed, causal=causal)
    rng = np.random.default_rng([seed, d])
    last = np.tile(np.arange(T), n) if causal else np.full(n * T, T - 1)
    drawn = rng.integers(0, last + 1, (trials, n * T))
    return {"optimal": svm.feasible(p), "drawn": svm.feasible(p, drawn)}


@experiment(
    "p1_causal",
    about="sequence and causal self-attention against the SVM of all positions, feasibility against d",
    source=SOURCE,
    trials=100,
    test_trials=10,
    cost="about 5 s on one core",
)
def p1_causal(
    task: Task,
    *,
    n: int = 2,
    T: int = 5,
    d: int = 10,
    steps: int = 2000,
    widths: Sequence[int] = (2, 3, 4, 5, 6, 8, 10),
) -> dict[str, ArrayLike]:
    """Train W with a label at every position, and count how often selections can be separated.

    Normalised steps of length 0.1 on the logistic loss from W = 0. The published section shows no
    experiment; the sizes are ours.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    n, T, d : int
        Sequences, tokens, dimension of the trained instances.
    steps : int
        Length of a run.
    widths : sequence of int
        Dimensions at which feasibility is counted.

    Returns
    -------
    dict
        For ``seq`` and ``csl`` each: ``steps_*`` (r,); ``correlation_*`` (trials, r) with the SVM of the
        tokens selected at the end; ``feasible_*``, ``saturated_*``, ``margin_*`` and ``optimal_*``
        (trials,), the last one being the share of positions that selected their best token, among those that
        see two or more; and ``widths`` (D,) with ``share_*_optimal`` and ``share_*_drawn`` (D, trials),
        whether the best and whether random tokens can be separated.

    Raises
    ------
    DataError
        If T is 1, or there is no width.
    """
    if check_integer(T, "T") < 2 or not len(widths):
        raise DataError(
            f"p1_causal needs T >= 2, since a single token leaves nothing to select, and at least one width; "
            f"got T={T} and widths={tuple(widths)}."
        )
    out: dict[str, Any] = {"widths": np.asarray(widths)}
    for kind in ("seq", "csl"):
        causal = kind == "csl"
        part = task.part(
            f"train_{kind}", _trained, n, T, d, causal, steps, task.trials, task.seed, task.device
        )
        for key in ("steps", "correlation", "feasible", "saturated", "margin", "optimal"):
            out[f"{key}_{kind}"] = part[key]
        rows = [
            task.part(f"feasible_{kind}_{w}", _feasible, n, T, w, causal, task.trials, task.seed)
            for w in task.progress(list(widths), f"feasible, {kind}")
        ]
        for key in ("optimal", "drawn"):
            out[f"share_{kind}_{key}"] = np.stack([row[key] for row in rows])
    return out


def priority_data(
    types: int,
    queries: int,
    samples: int,
    length: int,
    width: int,
    *,
    levels: int | None = None,
    repeats: int = 0,
    batch: int = 1,
    seed: int = 0,
) -> tuple[Problem, FloatArray, BoolArray, BoolArray]:
    """Random next-token data with their priority graphs and unit embeddings.

    Parameters
    ----------
    types, queries, samples, length : int
        As for :func:`svmlib.data.random_next_tokens`.
    width : int
        Width of the embeddings; from ``types`` on they are independent.
    levels : int, optional
        Levels of priority; with fewer than ``types``, which is the default, cycles appear.
    repeats : int
        Tokens of a list, drawn at random, that are written once more at its front.
    batch, seed : int
        Number of instances, and seed.

    Returns
    -------
    problem : Problem
        A batch of instances.
    keys : ndarray, shape (batch, types, width)
        Embeddings.
    edges : ndarray of bool, shape (batch, queries, types, types)
        Priority graphs.
    inside : ndarray of bool, shape (batch, n, repeats + length)
        Tokens in the component of their sequence's label.
    """
    sequences, labels = random_next_tokens(
        types, queries, samples, length, levels=levels, batch=batch, seed=seed
    )
    if check_integer(repeats, "repeats", 0):
        drawn = np.random.default_rng([seed, 2]).integers(0, length, (*labels.shape, repeats))
        sequences = np.concatenate([np.take_along_axis(sequences, drawn, -1), sequences], -1)
    keys = np.random.default_rng([seed, 1]).normal(size=(batch, types, width))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    edges = graphs.priority_graphs(sequences, labels, types)[:, :queries]
    inside = graphs.in_component(sequences, labels, graphs.components(edges))
    return next_token_problem(sequences, labels, keys), keys, edges, inside


def _graph_solutions(keys: FloatArray, edges: BoolArray, norm: str) -> FloatArray:
    G = edges.shape[1]
    found = [svm.graph_svm(k, k[:G], e, norm=norm).W for k, e in zip(keys, edges, strict=True)]
    return np.stack(found)


def _acyclic(
    sizes: tuple[int, ...], steps: int, factored: bool, trials: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    p, keys, edges, _ = priority_data(*sizes, batch=trials, seed=seed)
    start: Any = Factored.random(p, m=sizes[-1], seed=seed) if factored else Direct.zeros(p)
    run = train(p, start, normalized(RATE), steps, record=12, loss="log", device=device)
    out = {"steps": run.steps, "loss": run.loss, "norm": np.linalg.norm(run.W, axis=(-2, -1))}
    for norm in ("fro", "nuc") if factored else ("fro",):
        goal = _graph_solutions(keys, edges, norm)
        out[norm] = compare.correlation(run.W, goal)
    return out


def _cyclic(
    sizes: tuple[int, ...], levels: int, steps: int, rate: float, trials: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    p, keys, edges, inside = priority_data(*sizes, levels=levels, batch=trials, seed=seed)
    strict, every = graphs.strict(edges), edges.any((-3, -2, -1))
    has_cycle = (edges & ~strict).any((-3, -2, -1))
    has_order = strict.any((-3, -2, -1)) & every
    run = train(p, Direct.zeros(p), gradient_descent(rate), steps, record=12, loss="log", device=device)
    goal = _graph_solutions(keys, edges, "fro")
    minima = [finite_minimum(p[b], inside[b]) for b in range(trials)]
    finite = np.stack([W for W, _ in minima])
    found: dict[str, list[Any]] = {}
    for b in range(trials):
        projected = _projection(p[b], inside[b], run.W[b])
        at_finite = _inside_probabilities(p[b], finite[b], inside[b])
        parts = split_loss(p[b], run.W[b], inside[b])
        for key, value in (
            ("finite_error", np.linalg.norm(projected - finite[b], axis=(-2, -1))),
            (
                "probability_error",
                np.abs(_inside_probabilities(p[b], run.W[b], inside[b]) - at_finite).max((-2, -1)),
            ),
            ("inside_gap", parts[0] - minima[b][1]),
            ("outside", parts[1]),
        ):
            found.setdefault(key, []).append(value)
    with np.errstate(invalid="ignore"):
        correlation = compare.correlation(run.W, goal)
        recentred = compare.correlation(run.W - finite[:, None], goal)
    return {
        "steps": run.steps,
        "correlation": correlation,
        "recentred": recentred,
        "norm": np.linalg.norm(run.W, axis=(-2, -1)),
        "finite_norm": np.linalg.norm(finite, axis=(-2, -1)),
        "goal_norm": np.linalg.norm(goal, axis=(-2, -1)),
        "infimum": np.array([value for _, value in minima]),
        "has_cycle": has_cycle,
        "has_order": has_order,
        **{key: np.stack(rows) for key, rows in found.items()},
    }


def _projection(problem: Problem, inside: BoolArray, W: FloatArray) -> FloatArray:
    """(..., e, q) parts of matrices in the span of the cyclic features."""
    first = (problem.X[..., 0] > 0).argmax(-1)
    A = np.einsum("nte,nq->nteq", problem.differences(first), problem.z)[inside]
    _, size, V = np.linalg.svd(A.reshape(len(A), -1), full_matrices=False)
    basis = V[size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)]
    flat = W.reshape(*W.shape[:-2], -1)
    return np.asarray((flat @ basis.T @ basis).reshape(W.shape))


def _inside_probabilities(problem: Problem, W: FloatArray, inside: BoolArray) -> FloatArray:
    """(..., n, T) attention given that it falls into the component of the label."""
    s = np.where(inside, probabilities(problem, W), 0.0)
    return np.asarray(s / s.sum(-1, keepdims=True))


@experiment(
    "ntp_priority",
    about="next-token prediction: ordered tokens against the graph SVM, cycles against a convex problem",
    source="Mechanics of Next Token Prediction with Self-Attention (2024), its subject; sizes are ours",
    trials=40,
    test_trials=6,
    cost="about 15 s on one core",
)
def ntp_priority(
    task: Task,
    *,
    types: int = 6,
    queries: int = 2,
    samples: int = 12,
    length: int = 4,
    width: int = 8,
    levels: int = 2,
    steps: int = 2000,
    plain_steps: int = 10_000,
    rate: float = 1.0,
) -> dict[str, ArrayLike]:
    """Train on random priority graphs with the log loss, without and with cycles.

    Acyclic graphs: normalised steps of length 0.1 for W from 0 and for (K, Q) from Q = 0. Cyclic graphs:
    plain steps for W from 0, since normalised ones do not settle on the finite part.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    types, queries, samples, length, width : int
        Token types, last tokens, sequences for each of them, tokens of a sequence, width of embeddings.
    levels : int
        Levels of priority in the data with cycles.
    steps, plain_steps : int
        Steps of the normalised and of the plain runs.
    rate : float
        Step size of the plain runs.

    Returns
    -------
    dict
        ``acyclic_*`` and ``factored_*`` with ``steps`` (r,), ``loss``, ``norm``, ``fro`` (trials, r) and,
        for (K, Q), ``nuc``: correlations with the graph SVM of either norm. ``cyclic_*`` with ``steps``
        (r,) and, each (trials, r), ``correlation`` with the graph SVM, ``recentred``, the same after the
        finite part is subtracted, ``norm``, ``finite_error``, the distance of the part in the span of the
        cyclic features from the minimiser there, ``probability_error``, the largest error of an attention
        probability given the label's component, ``inside_gap`` and ``outside``, the two parts of the excess
        loss; and (trials,) ``finite_norm``, ``goal_norm``, ``infimum``, ``has_cycle``, ``has_order``.
    """
    check_integer(steps, "steps")
    check_integer(plain_steps, "plain_steps")
    check_positive(rate, "rate")
    if width < types:
        raise DataError(f"width must be at least types, so that embeddings are independent; got {width}.")
    sizes = (types, queries, samples, length, width)
    parts = {
        "acyclic": task.part("acyclic", _acyclic, sizes, steps, False, task.trials, task.seed, task.device),
        "factored": task.part("factored", _acyclic, sizes, steps, True, task.trials, task.seed, task.device),
        "cyclic": task.part(
            "cyclic", _cyclic, sizes, levels, plain_steps, rate, task.trials, task.seed, task.device
        ),
    }
    return {f"{name}_{key}": value for name, part in parts.items() for key, value in part.items()}
