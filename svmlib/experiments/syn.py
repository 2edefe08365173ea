"""Next-token prediction on synthetic classes: two of them and many, SGD and Adam, several learning rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess, simulate

from ._published import syn_medium_entropies, syn_small_losses
from .framework import Task, experiment

__all__ = [
    "p3_adam",
    "p3_recall",
    "p3_syn_medium",
    "p3_syn_momentum",
    "p3_syn_small",
    "syn_medium_entropies",
    "syn_small_losses",
]

PAPER = "Scan and Snap (2023), "
LENGTH, MOMENTUM, STEPS = 127, 0.9, 100
QUERIES, RATES, RATIOS = (1, 3, 5, 10), (0.5, 1.0, 2.0, 3.0), (1.0, 2.0, 5.0, 10.0)  # of the sweep


def _seeds(task: Task) -> range:
    return range(task.seed, task.seed + task.trials)


def _measured(process: TokenProcess, s: FloatArray) -> dict[str, FloatArray]:
    """Means over classes of what is read off attention (..., C, M)."""
    own = np.where(process.distinct, s, 0.0)
    return {
        "entropy": scansnap.distinct_entropy(process, s).mean(-1),
        "entropy_all": compare.entropy(s).mean(-1),
        "entropy_part": -(own * np.log(np.where(own > 0, own, 1.0))).sum(-1).mean(-1),
        "common": scansnap.common_mass(process, s).mean(-1),
    }


@experiment(
    "p3_syn_small",
    about="two classes with a query each: attention by token over 100 iterations of SGD",
    source=PAPER + "figure 4",
    trials=20,
    test_trials=3,
    cost="3 s",
)
def p3_syn_small(
    task: Task, *, decoder_rates: Sequence[float] = (1.0, 10.0), attention_rate: float = 1.0, every: int = 2
) -> dict[str, ArrayLike]:
    """Train on batches of 128 sequences with 127 contextual tokens, momentum 0.9, from D = Z = 0.

    Seeds are ``seed``, ``seed + 1`` and so on; all rates see the same sequences.

    Parameters
    ----------
    task : Task
        Seeds, device.
    decoder_rates : sequence of float
        Learning rates of the decoder.
    attention_rate : float
        Learning rate of attention.
    every : int
        Iterations between two records.

    Returns
    -------
    dict
        ``decoder_rates`` (E,), ``steps`` (r,); ``loss`` (E, trials, r) of the next batch; ``s`` (E, trials,
        r, 2, 34) attention by token type, and ``z`` of the same shape, the attention logits of the two
        queries.
    """
    run = simulate(
        scansnap.syn_small(),
        np.asarray(decoder_rates),
        attention_rate,
        STEPS,
        T=LENGTH,
        momentum=MOMENTUM,
        seeds=_seeds(task),
        record=range(0, STEPS + 1, every),
        device=task.device,
        progress=task.show_progress,
    )
    return {"decoder_rates": decoder_rates, "steps": run.steps, "loss": run.loss, "s": run.s, "z": run.z}


@experiment(
    "p3_syn_momentum",
    about="two classes with a query each: momentum, none, and none with ten times the rates",
    source=PAPER + "figure 4, control",
    trials=5,
    test_trials=2,
    cost="6 s",
)
def p3_syn_momentum(
    task: Task, *, decoder_rate: float = 1.0, attention_rate: float = 1.0
) -> dict[str, ArrayLike]:
    """Compare 100 iterations with momentum 0.9 to ten times as many without it, and to ten times the rates.

    Parameters
    ----------
    task : Task
        Seeds, device.
    decoder_rate, attention_rate : float
        Learning rates.

    Returns
    -------
    dict
        ``steps`` (r,) of the runs with momentum or with ten times the rates; those of the slow run are ten
        times as many. For each of ``momentum_``, ``slow_`` and ``fast_``: ``loss`` (trials, r) and ``s``
        (trials, r, 2, 34).
    """
    out: dict[str, ArrayLike] = {}
    when = np.arange(0, STEPS + 1, 5)
    for name, beta, longer, factor in (
        ("momentum", MOMENTUM, 1, 1),
        ("slow", 0.0, 10, 1),
        ("fast", 0.0, 1, 10),
    ):
        run = simulate(
            scansnap.syn_small(),
            factor * decoder_rate,
            factor * attention_rate,
            STEPS * longer,
            T=LENGTH,
            momentum=beta,
            seeds=_seeds(task),
            record=when * longer,
            device=task.device,
            progress=task.show_progress,
        )
        out |= {f"{name}_loss": run.loss, f"{name}_s": run.s}
    return {"steps": when, **out}


@experiment(
    "p3_adam",
    about="two classes with a query each: Adam with three learning rates keeps three profiles of tokens",
    source=PAPER + "figure 5",
    trials=10,
    test_trials=3,
    cost="3 s",
)
def p3_adam(task: Task, *, rates: Sequence[float] = (0.1, 0.5, 1.0)) -> dict[str, ArrayLike]:
    """Train decoder and attention with Adam at one learning rate, otherwise as in :func:`p3_syn_small`.

    Parameters
    ----------
    task : Task
        Seeds, device.
    rates : sequence of float
        Learning rates.

    Returns
    -------
    dict
        ``rates`` (E,), ``steps`` (r,), ``loss`` (E, trials, r), ``s`` (E, trials, r, 2, 34).
    """
    run = simulate(
        scansnap.syn_small(),
        np.asarray(rates),
        np.asarray(rates),
        STEPS,
        T=LENGTH,
        optimizer="adam",
        seeds=_seeds(task),
        record=range(0, STEPS + 1, 2),
        device=task.device,
        progress=task.show_progress,
    )
    return {"rates": rates, "steps": run.steps, "loss": run.loss, "s": run.s}


def _pairs(
    queries: int, rates: tuple[float, ...], ratios: tuple[float, ...], levels: FloatArray, task: Task
) -> dict[str, ArrayLike]:
    """One size: all rates by all ratios; levels are thresholds in units of 1/M."""
    process = scansnap.syn_medium(queries)
    attention, ratio = np.meshgrid(rates, ratios, indexing="ij")
    run = simulate(
        process,
        attention * ratio,
        attention,
        STEPS,
        T=LENGTH,
        momentum=MOMENTUM,
        start="uniform",
        seeds=_seeds(task),
        record=[0, STEPS],
        device=task.device,
        progress=task.show_progress,
    )
    z = run.z[..., 1, process.row, :] - run.z[..., 0, process.row, :]
    shared = np.broadcast_to(process.common, process.P.shape)
    measured = _measured(process, run.s)
    return {
        "loss": run.loss[..., 1],
        "recall": scansnap.recall(process, run.s[..., 1, :, :], levels / process.M),
        "risen": (z[..., process.distinct] > 0).mean(-1),
        "fallen": (z[..., shared] < 0).mean(-1),
        **{f"{key}_start": a[0, 0, :, 0] for key, a in measured.items()},
        **{key: a[..., 1] for key, a in measured.items()},
    }


def _sweep(
    queries: Sequence[int], rates: Sequence[float], ratios: Sequence[float], levels: FloatArray, task: Task
) -> dict[str, ArrayLike]:
    found: dict[str, list[FloatArray]] = {}
    for q in task.progress(queries, "queries"):
        grid = "-".join("_".join(f"{x:g}" for x in values) for values in (rates, ratios))
        part = task.part(f"queries{q}-{grid}", _pairs, int(q), tuple(rates), tuple(ratios), levels, task)
        for name, a in part.items():
            found.setdefault(name, []).append(a)
    return {name: np.stack(parts) for name, parts in found.items()}


@experiment(
    "p3_syn_medium",
    about="entropy of attention on distinct tokens for 4 sizes, 4 rates of attention and 4 ratios of rates",
    source=PAPER + "figure 6",
    trials=10,
    test_trials=2,
    cost="about 1 minute on one core",
)
def p3_syn_medium(
    task: Task,
    *,
    queries: Sequence[int] = QUERIES,
    rates: Sequence[float] = RATES,
    ratios: Sequence[float] = RATIOS,
) -> dict[str, ArrayLike]:
    """Run the sweep: random start, SGD with momentum 0.9, batches of 128, 127 contextual tokens, 100
    iterations.

    Two next tokens for each query, 10 common tokens for all classes and 10 distinct ones for each.

    Parameters
    ----------
    task : Task
        Seeds, device.
    queries : sequence of int
        Numbers of query tokens, Q sizes.
    rates : sequence of float
        Learning rates of attention, E of them.
    ratios : sequence of float
        Rate of the decoder over that of attention, V of them.

    Returns
    -------
    dict
        ``queries`` (Q,), ``rates`` (E,), ``ratios`` (V,); each (Q, E, V, trials), means over classes at the
        end: ``entropy`` on distinct tokens, scaled to sum 1 (the one of the figure); ``entropy_all`` over all
        tokens; ``entropy_part``, the terms of distinct tokens without scaling; ``common``, mass on common
        tokens; and ``loss`` of the last batch, ``risen``, ``fallen``: shares of the logits of distinct tokens
        that rose, of common tokens that fell. With ``_start``, (Q, trials): before the first iteration.
    """
    found = _sweep(queries, rates, ratios, np.ones(1), task)
    del found["recall"]
    return {"queries": queries, "rates": rates, "ratios": ratios, **found}


@experiment(
    "p3_recall",
    about="share of distinct tokens whose attention exceeds a threshold, by ratio and by size of the rates",
    source=PAPER + "figures 11 and 12",
    trials=10,
    test_trials=2,
    cost="about 40 s on one core",
)
def p3_recall(
    task: Task,
    *,
    queries: Sequence[int] = QUERIES,
    rates: Sequence[float] = RATES,
    ratios: Sequence[float] = RATIOS,
    rate: float = 1.0,
    ratio: float = 2.0,
    levels: Sequence[float] = tuple(np.geomspace(0.2, 5.0, 41).tolist()),
) -> dict[str, ArrayLike]:
    """Vary the ratio at one rate of attention, and the rate at one ratio, as in :func:`p3_syn_medium`.

    Parameters
    ----------
    task : Task
        Seeds, device.
    queries, rates, ratios : sequence
        As for :func:`p3_syn_medium`.
    rate : float
        Learning rate of attention while the ratio varies.
    ratio : float
        Ratio while the rate varies.
    levels : sequence of float
        Thresholds in units of 1/M.

    Returns
    -------
    dict
        ``queries`` (Q,), ``rates`` (E,), ``ratios`` (V,), ``levels`` (k,); ``recall_ratios`` (Q, V, trials,
        k) and ``recall_rates`` (Q, E, trials, k); ``entropy_ratios``, ``entropy_rates`` without the last
        axis.
    """
    at = np.asarray(levels, dtype=float)
    by_ratio = _sweep(queries, (rate,), ratios, at, task)
    by_rate = _sweep(queries, rates, (ratio,), at, task)
    return {
        "queries": queries,
        "rates": rates,
        "ratios": ratios,
        "levels": at,
        "recall_ratios": np.asarray(by_ratio["recall"])[:, 0],
        "recall_rates": np.asarray(by_rate["recall"])[:, :, 0],
        "entropy_ratios": np.asarray(by_ratio["entropy"])[:, 0],
        "entropy_rates": np.asarray(by_rate["entropy"])[:, :, 0],
    }
