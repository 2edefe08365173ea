"""Attention of language models on real text, over training: the embedded text, and WikiText-2."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from svmlib import text

from ._language_runs import prepared, trained_models
from .framework import Task, experiment

__all__ = [
    "p3_embedded",
    "p3_embedded_models",
    "p3_embedded_scan",
    "p3_wikitext2",
    "p3_wikitext2_models",
    "p3_wikitext2_scan",
]

FIGURE = "Scan and Snap (2023), figure 7"
EMBEDDED, WIKITEXT = 2000, 3000
"""Words of the vocabularies."""


@experiment(
    "p3_embedded",
    about="attention of a transformer of one layer on the text that comes with Python",
    source=FIGURE,
    trials=3,
    test_trials=1,
    cost="about 2 minutes on one core",
)
def p3_embedded(
    task: Task,
    *,
    models: Sequence[str] = ("1",),
    rates: Sequence[float] = (1.0, 2.5, 5.0),
    steps: int = 600,
    width: int = 64,
) -> dict[str, ArrayLike]:
    """Train causal transformers by SGD at a constant rate, with gradients clipped to norm 0.5.

    Batches of 16 windows of 32 tokens, 2,000 words, one head, feed-forward parts as wide as the stream,
    LayerNorm after the residual sums, no dropout. Trials are seeds of weights and windows.

    Parameters
    ----------
    task : Task
        Seeds, device.
    models : sequence of str
        "1" and "3" layers, "1p" and "3p" with positions, "scan" the layer of the theory (without clipping).
    rates : sequence of float
        Learning rates.
    steps, width : int
        Number of steps, width of the transformers.

    Returns
    -------
    dict
        ``models`` (K,), ``rates`` (R,), ``steps`` (r,) of the snapshots. Of the text: ``vocabulary`` (V,),
        checksums, numbers of tokens and shares of unknown ones, ``probe`` (T,), ``queries`` (Q,). Then,
        with leading axes (K, R, trials): ``loss`` (r,) and ``valid`` (5,), the latter at the steps
        ``shown``; by layer ``entropy`` and ``relative``
        (L, r), and ``speed`` (L, s) of attention, the change per step over the 20 steps from ``speed_at``
        (s,) on; of the lowest layer ``distance`` (r, r) between snapshots, ``maps`` (5, T, T) of the probe at
        these steps, and (r,) ``mass_distinct``, ``mass_common`` and ``attended``, the mean
        discrimination of what queries attend to. For models without positions and with one layer, rank
        correlations of the growth of logits ``with_velocity``, ``with_windows``, ``with_discrimination``,
        ``with_frequency`` (r, Q), of the order of dropping with frequency ``order`` (Q,), of two expectations
        ``limit`` (Q,), and the ``growth`` (3, V) itself.
    """
    data = prepared(text.load_corpus(), "train", "test", EMBEDDED, 20)
    return trained_models(task, data, models, rates, steps, width)


@experiment(
    "p3_embedded_models",
    about="the same for one and three layers, with and without positions, for longer",
    source=FIGURE,
    trials=3,
    test_trials=1,
    cost="about 25 minutes on one core",
)
def p3_embedded_models(
    task: Task,
    *,
    models: Sequence[str] = ("1", "1p", "3", "3p"),
    rates: Sequence[float] = (1.0, 5.0),
    steps: int = 3000,
    width: int = 64,
) -> dict[str, ArrayLike]:
    """Train as :func:`p3_embedded` does.

    Parameters
    ----------
    task : Task
        Seeds, device.
    models, rates, steps, width
        As for :func:`p3_embedded`.

    Returns
    -------
    dict
        As :func:`p3_embedded`.
    """
    data = prepared(text.load_corpus(), "train", "test", EMBEDDED, 20)
    return trained_models(task, data, models, rates, steps, width)


@experiment(
    "p3_embedded_scan",
    about="the layer of the theory on the text that comes with Python",
    source=FIGURE,
    trials=3,
    test_trials=1,
    cost="about 6 minutes on one core",
)
def p3_embedded_scan(
    task: Task, *, rates: Sequence[float] = (1.0, 5.0, 20.0), steps: int = 2000
) -> dict[str, ArrayLike]:
    """Train decoder and attention logits themselves, from zero, by SGD at one constant rate for both.

    Parameters
    ----------
    task : Task
        Seeds of the windows, device.
    rates : sequence of float
        Learning rates.
    steps : int
        Number of steps.

    Returns
    -------
    dict
        As :func:`p3_embedded`.
    """
    data = prepared(text.load_corpus(), "train", "test", EMBEDDED, 20)
    return trained_models(task, data, ("scan",), rates, steps, 1)


@experiment(
    "p3_wikitext2",
    about="attention of a transformer of one layer on WikiText-2, with and without positions",
    source=FIGURE + " and figure 10",
    trials=3,
    test_trials=1,
    cost="about 25 minutes on one core",
)
def p3_wikitext2(
    task: Task,
    *,
    models: Sequence[str] = ("1", "1p"),
    rates: Sequence[float] = (1.0, 2.5, 5.0),
    steps: int = 4000,
    width: int = 64,
    train: str = "valid",
    test: str = "test",
) -> dict[str, ArrayLike]:
    """Train as :func:`p3_embedded` does, with 3,000 words.

    The text is found as :func:`svmlib.text.load_corpus` says. The record that comes with the package was
    trained on the *validation* split, a ninth of the training split, and evaluated on the test split;
    ``train="train"`` takes the real one.

    Parameters
    ----------
    task : Task
        Seeds, device.
    models, rates, steps, width
        As for :func:`p3_embedded`.
    train, test : str
        Splits to train and to evaluate on.

    Returns
    -------
    dict
        As :func:`p3_embedded`.
    """
    data = prepared(text.load_corpus("wikitext-2"), train, test, WIKITEXT, 0)
    return trained_models(task, data, models, rates, steps, width)


@experiment(
    "p3_wikitext2_models",
    about="the same for three layers",
    source=FIGURE,
    trials=3,
    test_trials=1,
    cost="about 35 minutes on one core",
)
def p3_wikitext2_models(
    task: Task,
    *,
    models: Sequence[str] = ("3", "3p"),
    rates: Sequence[float] = (1.0, 2.5, 5.0),
    steps: int = 4000,
    width: int = 64,
    train: str = "valid",
    test: str = "test",
) -> dict[str, ArrayLike]:
    """Train as :func:`p3_wikitext2` does.

    Parameters
    ----------
    task : Task
        Seeds, device.
    models, rates, steps, width
        As for :func:`p3_embedded`.
    train, test : str
        Splits, as for :func:`p3_wikitext2`.

    Returns
    -------
    dict
        As :func:`p3_embedded`.
    """
    data = prepared(text.load_corpus("wikitext-2"), train, test, WIKITEXT, 0)
    return trained_models(task, data, models, rates, steps, width)


@experiment(
    "p3_wikitext2_scan",
    about="the layer of the theory on WikiText-2",
    source=FIGURE,
    trials=3,
    test_trials=1,
    cost="about 12 minutes on one core",
)
def p3_wikitext2_scan(
    task: Task,
    *,
    rates: Sequence[float] = (1.0, 5.0, 20.0),
    steps: int = 2000,
    train: str = "valid",
    test: str = "test",
) -> dict[str, ArrayLike]:
    """Train as :func:`p3_embedded_scan` does, with 3,000 words.

    Parameters
    ----------
    task : Task
        Seeds of the windows, device.
    rates : sequence of float
        Learning rates.
    steps : int
        Number of steps.
    train, test : str
        Splits, as for :func:`p3_wikitext2`.

    Returns
    -------
    dict
        As :func:`p3_embedded`.
    """
    data = prepared(text.load_corpus("wikitext-2"), train, test, WIKITEXT, 0)
    return trained_models(task, data, ("scan",), rates, steps, 1)
