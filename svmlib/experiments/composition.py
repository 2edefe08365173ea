"""Do the generalised SVM and the finite part predict trained attention? Random ReLU heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, svm
from svmlib.arrays import BoolArray, FloatArray, IntArray, check_integer
from svmlib.attention import Direct, Factored, probabilities
from svmlib.data import Problem
from svmlib.dynamics import normalized, train
from svmlib.errors import DataError

from ._mixtures import SELECTED, STATUS, classify, composition_problem, misses, paired, silent
from ._textbook import textbook_path
from .framework import Task, experiment

__all__ = [
    "STATUS",
    "awake",
    "classify",
    "composition_problem",
    "misses",
    "p1_composition",
    "p1_composition_kq",
    "p1_composition_longer",
    "p1_composition_published",
    "paired",
    "silent",
    "textbook_path",
]

RATE = 0.1
STEPS = 2000
EVERY = 100
CHUNK = 1000  # instances of a part, a fifth of it where few are asked for
MANY = 100
CURVES = ("eq", "mm", "one", "size")  # stored in half precision: enough to draw them
PATIENCE = 400  # instances tried for each accepted one, at most
SOURCE = "Transformers as Support Vector Machines (2023), figure on heads with one hidden layer"


def _trained(p: Problem, how: str, seeds: IntArray, device: str | None) -> FloatArray:
    record = range(EVERY, STEPS + 1, EVERY)
    if how == "published":
        return textbook_path(p, STEPS, rate=RATE, record=record)
    start: Any = Direct.zeros(p)
    if how == "KQ":
        K = [0.1 * np.random.default_rng(s).normal(size=(p.d, p.d)) for s in seeds]
        start = Factored(np.stack(K), np.zeros((len(p), p.d, p.d)))
    return train(p, start, normalized(RATE), STEPS, record=record, device=device).W


def awake(p: Problem, W: FloatArray, s: FloatArray, off: BoolArray, norm: str) -> FloatArray:
    """One minus the correlation of W with the program of the sequences whose head is not off.

    Parameters
    ----------
    p : Problem
        Data with one batch axis.
    W : ndarray, shape (b, e, q)
        Trained weights; their finite part is subtracted first.
    s : ndarray, shape (b, n, T)
        Their attention.
    off : ndarray of bool, shape (b, n)
        Sequences that are not asked.
    norm : str
        "fro" or "nuc".

    Returns
    -------
    ndarray, shape (b,)
        NaN where nothing is asked, or there is no solution.
    """
    best = np.arange(p.T) == s.argmax(-1)[..., None]
    keep = np.where(off[..., None], best, True)  # a sequence of one visible token asks for nothing
    q = Problem(p.X, p.z, p.y, head=p.head, mask=keep)
    chosen = (s > SELECTED) & keep
    mm = svm.generalized_svm(q, chosen, norm, errors="nan").W
    finite = svm.finite_part(q, np.where(keep, s, 0.0), chosen, norm, errors="nan").W
    return np.asarray(1 - compare.correlation(W - finite, mm))


def _chunk(
    sizes: tuple[int, int, int, int], first: int, count: int, how: str, device: str | None
) -> dict[str, ArrayLike]:
    n, T, d, hidden = sizes
    drawn = composition_problem(n, T, d, hidden, batch=count, seed=first)
    two = np.flatnonzero((drawn.y < 0).any(-1))  # the others would be rejected: do not train them
    path = _trained(drawn[two], how, first + two, device)
    s = probabilities(drawn[two], path[:, -1])
    status = np.full(count, STATUS.index("one label"))
    status[two] = classify(drawn[two], s)
    accepted = status[two] == 0
    kept = accepted if accepted.any() else np.arange(len(two)) == 0  # an empty batch could not be solved
    index, p, path, s = two[kept], drawn[two[kept]], path[kept], s[kept]
    norm = "nuc" if how == "KQ" else "fro"
    found: dict[str, Any] = misses(p, path, s, norm)
    off = silent(p, path)
    found["awake"] = awake(p, path[:, -1], s, off[:, -1], norm)
    found["silent"] = off[:, off.shape[1] // 2 :].mean(1)
    found["size"] = np.linalg.norm(path, axis=(-2, -1))
    solved = np.isfinite(found["eq"][:, -1]) & accepted[kept]
    status[index[~solved & accepted[kept]]] = STATUS.index("unsolved")
    found |= {"seed": first + index, "probability": s, "labels": p.y}
    return {"status": status, **{key: np.asarray(a)[solved] for key, a in found.items()}}


def _accepted(task: Task, how: str, sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    """Chunk after chunk until enough runs are accepted; those after the last one needed do not count."""
    parts: list[dict[str, Any]] = []
    have, tried, count = 0, 0, CHUNK if task.trials >= MANY else CHUNK // 5
    while have < task.trials:
        if tried >= task.trials * PATIENCE:
            raise DataError(
                f"Only {have} of {tried} runs with n, T, d, h = {sizes} pass the filter: try other sizes."
            )
        first = task.seed + tried
        part = task.part(f"d{sizes[2]}_from{first}", _chunk, sizes, first, count, how, task.device)
        parts.append(part)
        have, tried = have + len(part["seed"]), tried + count
        _show(task, sizes[2], have, tried)
    found = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
    status = found.pop("status")
    found = {key: a[: task.trials] for key, a in found.items()}
    tried = int(found["seed"][-1]) - task.seed + 1
    counts = np.bincount(status[:tried], minlength=len(STATUS))
    return {"tried": tried, "counts": counts, **found}


def _show(task: Task, d: int, have: int, tried: int) -> None:
    if task.show_progress:
        from tqdm import tqdm

        tqdm.write(f"d = {d}: {min(have, task.trials)} of {task.trials} accepted after {tried} trained")


def _table(
    task: Task, how: str, widths: Sequence[int], n: int, T: int, hidden: int | None
) -> dict[str, ArrayLike]:
    found: dict[str, list[Any]] = {}
    for d in task.progress(widths, "d"):
        h = check_integer(d if hidden is None else hidden, "hidden")
        for key, a in _accepted(task, how, (n, T, d, h)).items():
            found.setdefault(key, []).append(a.astype(np.float16) if key in CURVES else a)
    steps = np.arange(EVERY, STEPS + 1, EVERY)
    return {"widths": np.asarray(widths), "steps": steps, **{key: np.stack(a) for key, a in found.items()}}


@experiment(
    "p1_composition",
    about="how well the generalised SVM predicts W trained with random ReLU heads",
    source=SOURCE,
    trials=500,
    test_trials=3,
    cost="about 4 minutes on one core",
)
def p1_composition(
    task: Task, *, widths: Sequence[int] = (4, 6, 8, 10), n: int = 3, T: int = 4, hidden: int | None = None
) -> dict[str, ArrayLike]:
    """Train W on random instances until enough pass the published filter, and compare with formulas.

    2000 normalised steps of length 0.1 from W = 0 on the logistic loss. ``trials`` is the number of
    *accepted* runs for each d; far more are trained.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens.
    hidden : int, optional
        Width of the head, d by default.

    Returns
    -------
    dict
        ``widths`` (D,) and ``steps`` (r,), a snapshot every 100 steps; ``tried`` (D,), the number of
        instances up to the last one accepted, and ``counts`` (D, 5), how many of them have which fate, in the
        order of ``svmlib.experiments.composition.STATUS``. Of the accepted runs: ``seed`` (D, trials);
        ``eq``, ``mm`` and ``one`` (D, trials, r), one minus the correlation with the three predictions of
        ``svmlib.experiments.composition.misses``, and ``rest`` and ``cosine`` (D, trials); ``awake`` (D,
        trials), as ``rest`` but without the sequences whose head is off at the end; ``silent`` (D, trials,
        n), in which share of the second half of the snapshots the head of a sequence is off; ``size`` (D,
        trials, r), norm of W; ``probability`` (D, trials, n, T) at the end, and ``labels`` (D, trials, n).
    """
    return _table(task, "W", widths, n, T, hidden)


@experiment(
    "p1_composition_published",
    about="the same with the published arithmetic: textbook gradient, constant in the denominator",
    source=SOURCE,
    trials=500,
    test_trials=3,
    cost="about 3 minutes on one core",
)
def p1_composition_published(
    task: Task, *, widths: Sequence[int] = (4, 6, 8, 10), n: int = 3, T: int = 4, hidden: int | None = None
) -> dict[str, ArrayLike]:
    """Repeat :func:`p1_composition` with the arithmetic of the published code, which stops when saturated.

    Parameters
    ----------
    task : Task
        Trials and seed.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens.
    hidden : int, optional
        Width of the head, d by default.

    Returns
    -------
    dict
        As :func:`p1_composition`.
    """
    return _table(task, "published", widths, n, T, hidden)


@experiment(
    "p1_composition_kq",
    about="how well the nuclear generalised SVM predicts (K, Q) trained with random ReLU heads",
    source=SOURCE,
    trials=50,
    test_trials=3,
    cost="about 20 s on one core",
)
def p1_composition_kq(
    task: Task, *, widths: Sequence[int] = (4, 6, 8), n: int = 3, T: int = 4, hidden: int | None = None
) -> dict[str, ArrayLike]:
    """Repeat :func:`p1_composition` for (K, Q), of width d and from a small random K, with nuclear programs.

    Parameters
    ----------
    task : Task
        Trials, seed and device.
    widths : sequence of int
        Dimensions d.
    n, T : int
        Sequences and tokens.
    hidden : int, optional
        Width of the head, d by default.

    Returns
    -------
    dict
        As :func:`p1_composition`; ``cosine`` need not be 0 here.
    """
    return _table(task, "KQ", widths, n, T, hidden)


def _longer(
    d: int, horizons: tuple[int, ...], trials: int, seed: int, device: str | None
) -> dict[str, ArrayLike]:
    p = composition_problem(3, 4, d, batch=trials, seed=seed)
    run = train(p, Direct.zeros(p), normalized(RATE), horizons[-1], record=horizons, device=device)
    status, miss, asleep, off = [], [], [], silent(p, run.W)
    for k in range(len(horizons)):
        s = probabilities(p, run.W[:, k])
        status.append(classify(p, s))
        kept = status[-1] == 0
        row, other = np.full(trials, np.nan), np.full(trials, np.nan)
        if kept.any():
            row[kept] = misses(p[kept], run.W[kept, k : k + 1], s[kept])["eq"][:, 0]
            other[kept] = awake(p[kept], run.W[kept, k], s[kept], off[kept, k], "fro")
        miss.append(row)
        asleep.append(other)
    size = np.linalg.norm(run.W, axis=(-2, -1))
    columns = {"status": status, "eq": miss, "awake": asleep}
    return {"size": size, "silent": off, **{key: np.stack(a, -1) for key, a in columns.items()}}


@experiment(
    "p1_composition_longer",
    about="what becomes of rejected and accepted runs when they are trained ten times as long",
    source="a control of our own for the figure on heads with one hidden layer",
    trials=300,
    test_trials=10,
    cost="about 30 s on one core",
)
def p1_composition_longer(
    task: Task, *, widths: Sequence[int] = (4, 6, 8), horizons: Sequence[int] = (500, 2000, 20000)
) -> dict[str, ArrayLike]:
    """Train instances of :func:`p1_composition`, accepted by the filter or not, and look several times.

    Parameters
    ----------
    task : Task
        Trials: instances, not accepted ones; seed, device.
    widths : sequence of int
        Dimensions d.
    horizons : sequence of int
        Steps at which to look, increasing.

    Returns
    -------
    dict
        ``widths`` (D,), ``horizons`` (H,) and, each (D, trials, H): ``status``, positions in
        ``svmlib.experiments.composition.STATUS``; ``eq`` and ``awake``, see :func:`p1_composition`, NaN where
        not accepted; ``size``, norm of W. And ``silent`` (D, trials, H, n), whether a sequence's head is off.
    """
    found: dict[str, list[Any]] = {}
    for d in task.progress(widths, "d"):
        part = task.part(f"d{d}", _longer, d, tuple(horizons), task.trials, task.seed, task.device)
        for key, a in part.items():
            found.setdefault(key, []).append(a)
    return {
        "widths": np.asarray(widths),
        "horizons": np.asarray(horizons),
        **{key: np.stack(a) for key, a in found.items()},
    }
