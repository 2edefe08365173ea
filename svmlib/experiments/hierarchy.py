"""A hierarchy of SVMs: what each head of a trained transformer has to do with the SVM of its own tokens."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from svmlib import attention, data
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Architecture, Direct, Transformed, TransformerWeights
from svmlib.data import Problem
from svmlib.dynamics import gradient_descent, normalized, train_layers
from svmlib.errors import DataError

from .framework import Task, experiment
from .heads import head_measures, head_path, suppression
from .induction import induction_problem, induction_values, prefix_sharing
from .record import Record

__all__ = [
    "VARIANTS",
    "head_measures",
    "head_path",
    "hypotheses",
    "p1_hierarchy",
    "pooled_heads",
    "suppression",
    "trained_transformer",
]

GROWING = 1.5
"""Growth of a norm over the second half of a run that counts: 2 where all steps add up."""

VARIANTS: dict[str, dict[str, Any]] = {
    "attention": {"mlp": False},
    "relu": {},
    "gelu": {"activation": "gelu"},
    "everything": {},
}
"""Heads alone; with MLPs of two activations, at random and fixed; and with all blocks trained (ReLU)."""


def _recorded(steps: int) -> list[int]:
    return [0, steps // 2, steps - 2, steps - 1, steps]


def trained_transformer(
    problem: Problem,
    architecture: Architecture,
    *,
    everything: bool = False,
    steps: int = 2000,
    seed: int = 0,
    **how: Any,
) -> Any:
    """Train a random transformer as the experiment does.

    Parameters
    ----------
    problem : Problem
        Data.
    architecture : Architecture
        What it is made of.
    everything : bool
        Train all blocks, by plain descent of step 0.1; otherwise the attention matrices alone, by steps of
        length 0.1 for each.
    steps : int
        Number of steps.
    seed : int
        Seed of the first instance's weights.
    **how : dict
        Passed on to :func:`svmlib.dynamics.train_layers`.

    Returns
    -------
    LayersRun
        The run, recorded at its start, half-way and at its last three steps unless ``record`` says otherwise.
    """
    how.setdefault("record", _recorded(steps))
    start = TransformerWeights.random(problem, architecture, seed=seed)
    rule = gradient_descent(0.1) if everything else normalized(0.1)
    blocks = ("W",) if not everything else ("W", "V", "E", "F", "v") if architecture.mlp else ("W", "V", "v")
    return train_layers(problem, architecture, start, rule, steps, trainable=blocks, **how)


FIELDS = (
    *("corr", "change", "span", "half", "general", "equation", "all_rows", "margin", "feasible", "single"),
    *("settled", "entropy", "optimal", "local", "growth", "turn", "size", "rank", "rows"),
    *("control", "control_span", "control_feasible", "random", "random_span", "random_feasible"),
)


def _measured(problem: Problem, architecture: Architecture, run: Any, seed: int) -> dict[str, FloatArray]:
    L, H, B = architecture.layers, architecture.heads, len(problem)
    out = {name: np.full((B, L, H), np.nan) for name in FIELDS}
    first, half, end = run.history[0], run.history[1], run.history[-1]
    last, before = (run.W[:, -k] - run.W[:, -k - 1] for k in (1, 2))
    out["turn"] = _cosine(last, before)
    sizes = np.linalg.norm(end.W, axis=(-2, -1), keepdims=True)
    same = first.W * sizes / np.linalg.norm(first.W, axis=(-2, -1), keepdims=True)
    untrained = first._replace(attention=Direct(same))
    views = [attention.transformer(problem, architecture, w) for w in (half, end, untrained)]
    for layer in range(L):
        for head in range(H):

            def measured(w: TransformerWeights, view: Transformed, **how: Any) -> dict[str, FloatArray]:
                return head_measures(problem, architecture, w, layer, head, seen=view, **how)  # noqa: B023

            found = measured(end, views[1], start=first)
            then = measured(half, views[0])
            found |= {"half": then["corr"], "growth": found["size"] / then["size"]}
            for name, w, view, how in (
                ("control", untrained, views[2], {}),
                ("random", end, views[1], {"tokens": "random", "seed": seed}),
            ):
                other = measured(w, view, **how)
                found[name], found[f"{name}_span"] = other["corr"], other["span"]
                found[f"{name}_feasible"] = other["feasible"]
            for name in FIELDS:
                if name in found:
                    out[name][:, layer, head] = found[name]
    return out


def _cosine(A: FloatArray, B: FloatArray) -> FloatArray:
    """Correlation of matrices, NaN where one is 0."""
    norms = np.linalg.norm(A, axis=(-2, -1)) * np.linalg.norm(B, axis=(-2, -1))
    return np.asarray((A * B).sum((-2, -1)) / np.where(norms > 0, norms, np.nan))


def _random_part(
    task: Task, variant: str, layers: int, heads: int, n: int, T: int, d: int, steps: int
) -> dict[str, Any]:
    p = data.random_problem(n, T, d, batch=task.trials, seed=task.seed)
    a = Architecture(layers=layers, heads=heads, **VARIANTS[variant])
    run = trained_transformer(
        p, a, everything=variant == "everything", steps=steps, seed=task.seed, device=task.device,
        progress=task.show_progress,
    )  # fmt: skip
    return {**_measured(p, a, run, task.seed), "loss": run.loss[:, -1], "accuracy": run.accuracy[:, -1]}


def _induction_part(task: Task, steps: int) -> dict[str, Any]:
    p = induction_problem(batch=task.trials, seed=task.seed)
    a = Architecture(layers=2, mlp=False, causal=True)
    start = TransformerWeights.random(p, a, seed=task.seed, scale=0.1)
    start = start._replace(V=induction_values(p))
    run = train_layers(
        p, a, start, normalized(0.1), steps, record=_recorded(steps), device=task.device,
        progress=task.show_progress,
    )  # fmt: skip
    numbers = _measured(p, a, run, task.seed)
    seen = attention.transformer(p, a, run.weights)
    return {
        **numbers,
        "loss": run.loss[:, -1],
        "accuracy": run.accuracy[:, -1],
        **prefix_sharing(seen),
    }


@experiment(
    "p1_hierarchy",
    about="heads of 2 and 3 layers against the SVMs of the tokens that they select",
    source="Transformers as Support Vector Machines (2023), outlook: a hierarchy of SVMs",
    trials=24,
    test_trials=2,
    cost="about 15 min on one core",
)
def p1_hierarchy(
    task: Task,
    *,
    variants: tuple[str, ...] = ("attention", "relu", "gelu", "everything"),
    layers: tuple[int, ...] = (2, 3),
    heads: tuple[int, ...] = (1, 2, 4),
    n: int = 8,
    T: int = 6,
    d: int = 12,
    steps: int = 2000,
    induction: bool = True,
) -> dict[str, Any]:
    r"""Correlation of every head of trained transformers with the SVM of its own tokens, and controls.

    Random data as in the papers and random transformers with residual connections; attention matrices are
    trained by normalised steps of 0.1 each, the rest stays at random; in the variant "everything" all blocks
    are trained by plain descent. Positions that the read-out cannot see carry no constraint. An induction
    task comes with value maps that are given.

    Parameters
    ----------
    task : Task
        Trials are random data sets with random transformers; the seed is that of the first.
    variants : tuple of str
        Any of "attention" (no MLP), "relu", "gelu" and "everything".
    layers, heads : tuple of int
        Numbers of layers and of heads; all pairs are run.
    n, T, d : int
        Sizes of an instance.
    steps : int
        Number of steps.
    induction : bool
        Whether to run the induction task too.

    Returns
    -------
    VARIANT_LxH_corr, VARIANT_LxH_change : ndarray
        (trials, L, H) correlation of W, and of W − W(0), with the attention SVM of the tokens of largest
        probability; likewise for the names below.
    VARIANT_LxH_span, VARIANT_LxH_half : ndarray
        The same for the part of W that the data see, and for W half-way.
    VARIANT_LxH_general, VARIANT_LxH_equation : ndarray
        Correlation with the generalised SVM of all tokens above 1e-3, and with the sum of the finite part and
        a multiple of it; NaN where no token is masked out.
    VARIANT_LxH_all_rows : ndarray
        Correlation with the SVM of all positions, those that are not read too; NaN in the last layer.
    VARIANT_LxH_margin : ndarray
        Smallest logit margin at norm one over the largest possible one, that of the SVM.
    VARIANT_LxH_feasible, VARIANT_LxH_single, VARIANT_LxH_settled : ndarray
        Whether the SVM is feasible; shares of read positions with a single token above 1e-3, and with none
        between 1e-6 and 1e-3.
    VARIANT_LxH_entropy, VARIANT_LxH_size, VARIANT_LxH_growth : ndarray
        Mean entropy of attention; norm of W, and divided by that half-way.
    VARIANT_LxH_turn : ndarray
        Correlation of the last two steps: near 1 where they go on, near -1 where W oscillates.
    VARIANT_LxH_rank, VARIANT_LxH_rows : ndarray
        Rank of the SVM's solution; number of positions read.
    VARIANT_LxH_optimal, VARIANT_LxH_local : ndarray
        Share of positions that select their token of highest local score; whether each selected token has a
        higher local score than its support tokens.
    VARIANT_LxH_control, VARIANT_LxH_control_span, VARIANT_LxH_control_feasible : ndarray
        Correlations for the untrained network, its matrices scaled to the trained norms, with the SVM of the
        tokens that *it* selects.
    VARIANT_LxH_random, VARIANT_LxH_random_span, VARIANT_LxH_random_feasible : ndarray
        Correlations of the trained W with the SVM of randomly chosen tokens.
    VARIANT_LxH_loss, VARIANT_LxH_accuracy : ndarray
        (trials,) at the end.
    induction_NAME : ndarray
        The same for the induction task, two layers of one head; ``induction_previous`` and
        ``induction_match`` are the shares of positions that attend to the token before, and of read-outs that
        attend to the value that follows their symbol.
    """
    unknown = [v for v in variants if v not in VARIANTS]
    if unknown:
        raise DataError(f"variants must be out of {', '.join(VARIANTS)}; got {unknown[0]!r}.")
    jobs = [(v, L, H) for v in variants for L in layers for H in heads]
    out: dict[str, Any] = {}
    for v, L, H in task.progress(jobs, "networks"):
        key = f"{v}_{L}x{H}"
        part = task.part(key, _random_part, task, v, L, H, n, T, d, steps)
        out |= {f"{key}_{name}": value for name, value in part.items()}
    if induction:
        part = task.part("induction", _induction_part, task, steps)
        out |= {f"induction_{name}": value for name, value in part.items()}
    return out


def pooled_heads(record: Record, variant: str, field: str, layer: str = "lower") -> FloatArray:
    """Gather one measure of all heads of a variant, over networks and trials.

    Parameters
    ----------
    record : Record
        Of :func:`p1_hierarchy`.
    variant : str
        "attention", "relu", "gelu" or "everything".
    field : str
        Name of an array without the network, "corr" for example.
    layer : str
        "last" for the layers that the read-out reads, "lower" for the others.

    Returns
    -------
    ndarray
        One number a head.

    Raises
    ------
    DataError
        If the record has no such variant or field, or ``layer`` is something else.
    """
    if layer not in ("lower", "last"):
        raise DataError(f'layer must be "lower" or "last", got {layer!r}.')
    where = slice(-1, None) if layer == "last" else slice(None, -1)
    found = [a for k, a in record.arrays.items() if re.fullmatch(rf"{variant}_\d+x\d+_{field}", k)]
    if not found:
        raise DataError(f"The record has no {field!r} of the variant {variant!r}.")
    return np.concatenate([a[:, where].ravel() for a in found])


def hypotheses(record: Record, variant: str, layer: str = "lower") -> BoolArray:
    """Say which heads satisfy the hypotheses of the theorem on limits, as far as a run shows.

    All positions that are read have a single token above 1e-3 and none between 1e-6 and 1e-3, the selected
    tokens are locally optimal, and the norm has grown by half or more over the second half of the run.

    Parameters
    ----------
    record : Record
        Of :func:`p1_hierarchy`.
    variant, layer : str
        As for :func:`pooled_heads`.

    Returns
    -------
    ndarray of bool
        One entry a head, in the order of :func:`pooled_heads`.
    """
    single, settled, local, growth = (
        pooled_heads(record, variant, field, layer) for field in ("single", "settled", "local", "growth")
    )
    return np.asarray((single == 1) & (settled == 1) & (local == 1) & (growth > GROWING))
