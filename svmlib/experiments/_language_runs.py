"""Language models trained on a text, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from svmlib import language, text
from svmlib.arrays import FloatArray, IntArray
from svmlib.errors import DataError

from .framework import Task

MODELS = ("1", "1p", "3", "3p", "scan")
"""One or three layers, p with positions; scan is the layer of the theory."""
LENGTH, BATCH, CLIP = 32, 16, 0.5
PROBES = 48
LAG = 20
"""Steps between the two snapshots that say how fast attention changes."""
SHOWN = 5
"""Snapshots whose map is kept, for one probe."""
QUERIES, LEAST, DROPPED = 12, 20, 0.1
"""Queries, the most frequent words of letters; windows in which a token type must occur to be compared;
share of attention relative to the leader's whose loss counts as dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A text made ready for training, the same for all models."""

    vocabulary: text.Vocabulary
    words: IntArray
    held: IntArray
    probes: IntArray
    cooccurrence: text.Cooccurrence
    windows: FloatArray
    """(Q, V) attention's first direction on the real windows."""
    checksums: tuple[str, str]
    shown: int

    def about(self) -> dict[str, ArrayLike]:
        """Return what a record says about its text."""
        return {
            "vocabulary": list(self.vocabulary.words),
            "checksum_train": self.checksums[0],
            "checksum_test": self.checksums[1],
            "tokens_train": len(self.words),
            "tokens_test": len(self.held),
            "unknown_train": float((self.words == 0).mean()),
            "unknown_test": float((self.held == 0).mean()),
            "probe": self.probes[self.shown],
            "queries": self.cooccurrence.queries,
        }


def prepared(corpus: text.Corpus, train: str, test: str, size: int, shown: int) -> Prepared:
    """Encode a corpus, and choose probes and queries.

    Parameters
    ----------
    corpus : text.Corpus
        The text.
    train, test : str
        Splits to train and to evaluate on.
    size : int
        Words of the vocabulary.
    shown : int
        The window whose maps are kept.

    Returns
    -------
    Prepared
        Streams; 48 windows of the test split, equally far apart; co-occurrence with the 12 most frequent
        words of letters, and attention's first direction.
    """
    vocabulary = text.build_vocabulary(corpus, train, size=size)
    words, held = (text.encode(corpus, split, vocabulary).astype(np.int64) for split in (train, test))
    if len(held) < PROBES * LENGTH:
        raise DataError(f"The split {test!r} of {corpus.name} has {len(held)} words, too few for the probes.")
    starts = np.linspace(0, len(held) - LENGTH, PROBES).astype(int)
    # rows of dashes and the like are repetitions, not sentences
    queries = [k for k, word in enumerate(vocabulary.words) if word.isalpha()][:QUERIES]
    cooccurrence = text.cooccurrence(words, queries, length=LENGTH - 1, vocabulary=len(vocabulary))
    checksums = corpus.checksum(train), corpus.checksum(test)
    probes = held[starts[:, None] + np.arange(LENGTH)]
    windows = language.initial_velocity(
        words, cooccurrence.queries, length=LENGTH, vocabulary=len(vocabulary), stride=8
    )
    return Prepared(vocabulary, words, held, probes, cooccurrence, windows, checksums, shown)


def lagged_steps(steps: int, count: int = 12) -> IntArray:
    """Return geometric times, each followed by a second one 20 steps later.

    Parameters
    ----------
    steps : int
        Number of steps of the run.
    count : int
        Number of pairs, fewer for a short run.

    Returns
    -------
    ndarray of int
        Times in order, from 0, multiples of 20.

    Raises
    ------
    DataError
        If the number of steps is no multiple of 20, or below 100.
    """
    if steps < 5 * LAG or steps % LAG:
        raise DataError(f"steps must be a multiple of {LAG} from {5 * LAG} on, got {steps}.")
    first = np.unique((np.geomspace(1, steps // LAG - 1, count - 1) + 1e-9).astype(int)) * LAG
    first = np.concatenate([[0], first])
    return np.unique(np.concatenate([first, first + LAG]))


def _model(name: str, vocabulary: int, width: int, seed: int) -> language.Transformer | language.ScanLayer:
    if name not in MODELS:
        raise DataError(f"There is no model {name!r}: choose one of {', '.join(MODELS)}.")
    if name == "scan":
        return language.ScanLayer(vocabulary)
    return language.Transformer(
        vocabulary, layers=int(name[0]), width=width, hidden=width, positions=name.endswith("p"), seed=seed
    )


def _trained(
    data: Prepared, name: str, rate: float, steps: int, width: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    """Train one model; keep numbers over time, the maps of one probe, and what became of attention logits."""
    model = _model(name, len(data.vocabulary), width, seed)
    queries = data.cooccurrence.queries
    when = lagged_steps(steps)
    shown = np.linspace(0, len(when) - 1, SHOWN).astype(int)
    run = language.train_language(
        model,
        data.words,
        language.Training(
            rate=rate,
            steps=steps,
            batch=BATCH,
            length=LENGTH,
            clip=None if name == "scan" else CLIP,
            seed=seed,
        ),
        valid=data.held,
        probes=data.probes,
        observe=(lambda m: language.pair_logits(m, queries)[0]) if name in ("1", "scan") else None,
        record=when,
        valid_at=when[shown],
        device=device,
    )
    lowest = run.attention[0]
    apart = np.flatnonzero(np.diff(run.steps) == LAG)
    mass = language.mass(lowest, data.probes, data.cooccurrence)
    out: dict[str, ArrayLike] = {
        "steps": run.steps,
        "loss": run.loss,
        "valid": run.valid[shown],
        "entropy": np.stack([language.attention_entropy(a).mean(-1) for a in run.attention]),
        "relative": np.stack([language.attention_entropy(a, relative=True).mean(-1) for a in run.attention]),
        "speed_at": run.steps[apart],
        "speed": np.stack([language.attention_change(a)[apart].mean(-1) / LAG for a in run.attention]),
        "distance": _distances(lowest),
        "shown": run.steps[shown],
        "maps": lowest[shown, data.shown, 0].astype(np.float32),
        "mass_distinct": np.nanmean(mass["distinct"], axis=(1, 2)),
        "mass_common": np.nanmean(mass["common"], axis=(1, 2)),
        "attended": np.nanmean(
            language.attended(
                lowest, data.probes, data.cooccurrence, language.discrimination(data.cooccurrence, LEAST)
            ),
            axis=(1, 2),
        ),
    }
    if run.observed is not None:
        out |= biases(run.steps, run.observed, data.cooccurrence, data.windows)
    return out


def _distances(maps: FloatArray) -> FloatArray:
    """Compute the change of attention between any two snapshots."""
    r = len(maps)
    out = np.zeros((r, r))
    for a in range(r):
        for b in range(a):
            out[a, b] = out[b, a] = language.attention_change(maps[[a, b]]).mean()
    return out


def biases(
    steps: IntArray, logits: FloatArray, cooc: text.Cooccurrence, windows: FloatArray
) -> dict[str, ArrayLike]:
    """Compare what became of attention logits with what counts of the text let the theory expect.

    Parameters
    ----------
    steps : ndarray, shape (r,)
        Steps of the snapshots.
    logits : ndarray, shape (r, Q, V)
        Attention logits of query types for token types.
    cooc : text.Cooccurrence
        Counts.

    windows : ndarray, shape (Q, V)
        Attention's first direction on the real windows.

    Returns
    -------
    dict
        Rank correlations (r, Q) of the growth of logits, NaN at the first snapshot: ``with_velocity`` with
        :func:`svmlib.language.expected_velocity`, ``with_windows`` with the first direction on the real
        windows, ``with_discrimination``, and ``with_frequency`` among types that are expected to gain;
        ``order`` (Q,) of the step at which such a type falls behind the leader with its frequency; ``limit``
        (Q,) of both expected directions with each other; ``growth`` (3, V) of the first three queries at the
        end. Types in fewer than 20 windows are left out.
    """
    velocity, known = language.expected_velocity(cooc), cooc.seen.sum(1) >= LEAST
    discrimination, frequency = language.discrimination(cooc, LEAST), cooc.counts.sum(1)
    growth = logits - logits[:1]
    gains = known & (velocity > 0)
    out = {
        key: np.full(growth.shape[:2], np.nan)
        for key in ("with_velocity", "with_windows", "with_discrimination", "with_frequency")
    }
    order, limit = (np.full(len(cooc.queries), np.nan) for _ in range(2))
    for q in range(len(cooc.queries)):
        for r in range(1, len(growth)):
            for key, value, where in (
                ("with_velocity", velocity[q], known[q]),
                ("with_windows", windows[q], known[q]),
                ("with_discrimination", discrimination[q], known[q]),
                ("with_frequency", frequency[q], gains[q]),
            ):
                out[key][r, q] = language.rank_correlation(growth[r, q, where], value[where])
        limit[q] = language.rank_correlation(velocity[q, known[q]], windows[q, known[q]])
        dropped = language.drop_times(steps, logits[:, q, gains[q]], loss=DROPPED)
        order[q] = language.rank_correlation(dropped, frequency[q][gains[q]])
    return {**out, "order": order, "limit": limit, "growth": growth[-1, :3].astype(np.float32)}


def trained_models(
    task: Task, data: Prepared, models: Sequence[str], rates: Sequence[float], steps: int, width: int
) -> dict[str, ArrayLike]:
    """Train every model with every rate and seed.

    Parameters
    ----------
    task : Task
        Number of seeds, first seed, device.
    data : Prepared
        The text.
    models : sequence of str
        Models, of ``MODELS``.
    rates : sequence of float
        Learning rates.
    steps, width : int
        Number of steps, width of a transformer.

    Returns
    -------
    dict
        What :func:`p3_embedded` returns; layers that a model does not have are NaN.
    """
    jobs = [(m, r, s) for m in range(len(models)) for r in range(len(rates)) for s in range(task.trials)]
    runs = {}
    for m, r, s in task.progress(jobs, "runs"):
        seed, rate = task.seed + s, float(rates[r])
        key = f"{models[m]}-{rate:g}-{seed}"
        runs[m, r, s] = task.part(key, _trained, data, models[m], rate, steps, width, seed, task.device)
    out: dict[str, ArrayLike] = {"models": list(models), "rates": rates, **data.about()}
    for key in dict.fromkeys(key for run in runs.values() for key in run):
        found = {at: run[key] for at, run in runs.items() if key in run}
        if key in ("steps", "speed_at", "shown"):
            out[key] = next(iter(found.values()))
            continue
        inner = tuple(max(sizes) for sizes in zip(*(a.shape for a in found.values()), strict=True))
        whole = np.full(
            (len(models), len(rates), task.trials, *inner), np.nan, next(iter(found.values())).dtype
        )
        for at, a in found.items():
            whole[at][tuple(slice(n) for n in a.shape)] = a
        out[key] = whole
    return out
