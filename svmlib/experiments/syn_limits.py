"""Where the experiments on synthetic classes leave their theory: ratios of rates, finite sequences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from svmlib import scansnap
from svmlib.arrays import FloatArray
from svmlib.scansnap import TokenProcess, flow, reduced_flow, simulate

from .framework import Task, experiment
from .syn import LENGTH, MOMENTUM, QUERIES, STEPS, _seeds

__all__ = ["p3_length", "p3_ratio"]


def _ends(process: TokenProcess, ratios: tuple[float, ...], task: Task) -> dict[str, ArrayLike]:
    """Entropy at the end, by what is left of the experiment."""
    rates, seeds = np.asarray(ratios), _seeds(task)
    longest = STEPS / (1 - MOMENTUM)

    def trained(T: float | None, start: str) -> FloatArray:
        run = simulate(
            process,
            rates,
            1.0,
            STEPS,
            T=T,
            momentum=MOMENTUM,
            start=start,
            seeds=seeds if T is not None or start == "uniform" else [task.seed],
            record=[STEPS],
            device=task.device,
        )
        return np.asarray(scansnap.distinct_entropy(process, run.s)[..., 0, :].mean(-1))

    def solved(solver: Callable[..., scansnap.ScanFlow | scansnap.ReducedFlow]) -> FloatArray:
        ends = [solver(process, [longest], rate, 1.0, rtol=1e-7).s[0] for rate in ratios]
        return np.asarray(scansnap.distinct_entropy(process, np.array(ends)).mean(-1))

    return {
        "sampled": trained(LENGTH, "uniform"),
        "zero": trained(LENGTH, "zero"),
        "population": trained(None, "zero")[:, 0],
        "flow": solved(flow),
        "reduced": solved(reduced_flow),
    }


@experiment(
    "p3_ratio",
    about="entropy against the ratio of the rates: sampled runs, the population, its flow, and the theory",
    source="Scan and Snap (2023), figure 6, control",
    trials=10,
    test_trials=2,
    cost="about 2 minutes on one core",
)
def p3_ratio(
    task: Task,
    *,
    queries: Sequence[int] = QUERIES,
    ratios: Sequence[float] = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0),
) -> dict[str, ArrayLike]:
    """Take away randomness, then steps, then the decoder's delay from the sweep; attention has the rate 1.

    Parameters
    ----------
    task : Task
        Seeds of the sampled runs, device.
    queries : sequence of int
        Numbers of query tokens, Q sizes.
    ratios : sequence of float
        Rates of the decoder, V of them.

    Returns
    -------
    dict
        ``queries`` (Q,), ``ratios`` (V,); entropies on distinct tokens at the end: ``sampled`` (Q, V, trials)
        with a random start, ``zero`` (Q, V, trials) from zero, ``population`` (Q, V) with momentum and
        without randomness, ``flow`` (Q, V), the gradient flow of both layers at time 1000, and ``reduced``
        (Q, V), that of attention behind a decoder in the form that the theory gives it.
    """
    found: dict[str, list[FloatArray]] = {}
    for q in task.progress(queries, "queries"):
        part = task.part(f"queries{q}", _ends, scansnap.syn_medium(int(q)), tuple(ratios), task)
        for name, a in part.items():
            found.setdefault(name, []).append(a)
    return {"queries": queries, "ratios": ratios, **{key: np.stack(a) for key, a in found.items()}}


def _length(process: TokenProcess, T: float | None, task: Task) -> dict[str, ArrayLike]:
    seeds = _seeds(task) if T is not None else [task.seed]
    run = simulate(
        process, 1.0, 1.0, STEPS, T=T, momentum=MOMENTUM, seeds=seeds, record=[STEPS], device=task.device
    )
    s = run.s[:, 0]
    return {
        "common": scansnap.common_mass(process, s).mean(-1),
        "entropy": scansnap.distinct_entropy(process, s).mean(-1),
        "loss": run.loss[:, 0],
    }


@experiment(
    "p3_length",
    about="sequences of finite length against infinitely long ones: attention after 100 iterations",
    source="Scan and Snap (2023), section 3 and figure 4, control",
    trials=20,
    test_trials=4,
    cost="about 30 s on one core",
)
def p3_length(
    task: Task, *, lengths: Sequence[int] = (15, 31, 63, 127, 255, 511, 1023), queries: int = 3
) -> dict[str, ArrayLike]:
    """Train from zero with rates 1 and 1, momentum 0.9, batches of 128, at several lengths and at none.

    Parameters
    ----------
    task : Task
        Seeds, device.
    lengths : sequence of int
        Numbers of contextual tokens, H of them.
    queries : int
        Query tokens of the larger of the two data sets.

    Returns
    -------
    dict
        ``lengths`` (H,); with ``small_`` or ``medium_`` for the two data sets: ``common``, mass on common
        tokens, ``entropy`` on distinct ones and ``loss`` of the last batch, each (H, trials); with ``_drawn``
        (trials,) where classes are drawn and frequencies are exact; with ``_population`` (1,) without any
        randomness.
    """
    out: dict[str, ArrayLike] = {"lengths": lengths}
    for name, process in (("small", scansnap.syn_small()), ("medium", scansnap.syn_medium(queries))):
        found: dict[str, list[FloatArray]] = {}
        for T in task.progress(lengths, name):
            for key, a in task.part(f"{name}{T}", _length, process, int(T), task).items():
                found.setdefault(f"{name}_{key}", []).append(a)
        out |= {key: np.stack(a) for key, a in found.items()}
        for kind, length in (("drawn", math.inf), ("population", None)):
            part = task.part(f"{name}-{kind}", _length, process, length, task)
            out |= {f"{name}_{key}_{kind}": a for key, a in part.items()}
    return out
