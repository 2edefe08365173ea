"""One layer, two theories: attention with and without norm, behind a decoder that stands still or learns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, scansnap, svm
from svmlib.arrays import FloatArray
from svmlib.errors import DataError, ShapeError
from svmlib.scansnap import ScanFlow, TokenProcess, flow

from .framework import Task, experiment

__all__ = ["p3_two_theories", "scores", "selection_svm", "two_processes"]

VOCABULARY = 60
RATIOS = (0.0, 1.0, 10.0, 100.0)
FREEZE = 2.0
FROZEN_AT = (0.5, 2.0, 8.0, 1000.0)
LAST = 1e10
RESTS = (1e6, 1e8)
STILL = 1e-9


def scores(run: ScanFlow, normalized: bool = True) -> FloatArray:
    r"""Compute the scores of tokens: minus the derivative of the loss in the attention output, read on them.

    Parameters
    ----------
    run : ScanFlow
        A flow.
    normalized : bool
        Whether the decoder read attention scaled to length one.

    Returns
    -------
    ndarray, shape (r, C, M)
        :math:`(I-f_cf_c^\top)g_c/\|s_c\|` with the norm, :math:`g_c` without.
    """
    if not normalized:
        return run.sent
    length = np.linalg.norm(run.s, axis=-1, keepdims=True)
    f = run.s / length
    return np.asarray((run.sent - f * (f * run.sent).sum(-1, keepdims=True)) / length)


def selection_svm(process: TokenProcess, tokens: ArrayLike, rivals: ArrayLike | None = None) -> FloatArray:
    """Shortest logits that prefer a token of each class by 1 to the other tokens of that class.

    Parameters
    ----------
    process : TokenProcess
        Classes with one query, and equally many tokens in each.
    tokens : array_like of int, shape (C,)
        Selected token of each class, as a number among the tokens that occur.
    rivals : array_like of bool, shape (L,), optional
        Tokens that count as others; all by default.

    Returns
    -------
    ndarray, shape (L,)
        Logits of the tokens that occur.

    Raises
    ------
    DataError
        If a selected token does not occur in its class.
    ShapeError
        If the number of selected tokens is not C, or classes have different numbers of tokens.
    """
    P = process.P[:, process.P.any(0)]
    chosen = np.asarray(tokens)
    if chosen.shape != (process.C,):
        raise ShapeError(f"tokens must have one token for each of {process.C} classes, got {chosen.shape}.")
    keep = np.ones(P.shape[1], dtype=bool) if rivals is None else np.asarray(rivals, dtype=bool).copy()
    keep[chosen] = True
    held = [np.flatnonzero((row > 0) & keep) for row in P]
    if any(c not in h for c, h in zip(chosen, held, strict=True)):
        raise DataError(f"tokens must hold one token that occurs in each class, got {chosen.tolist()}.")
    if len({h.size for h in held}) > 1:
        raise ShapeError(f"Classes must have equally many tokens, got {[h.size for h in held]}.")
    keys = np.stack([np.eye(P.shape[1])[h] for h in held])
    place = [int(np.flatnonzero(h == c)[0]) for h, c in zip(held, chosen, strict=True)]
    return np.asarray(svm.token_svm(keys, place).p)


def two_processes() -> tuple[TokenProcess, TokenProcess]:
    """Three classes each: common tokens are rarer than the first distinct one, or the most frequent of all.

    Returns
    -------
    rare : TokenProcess
        The one with rare common tokens.
    frequent : TokenProcess
        The one with a frequent common token.
    """
    rare = scansnap.symmetric(3, [0.2, 0.1], [0.3, 0.2, 0.15, 0.05], vocabulary=VOCABULARY)
    frequent = scansnap.symmetric(3, [0.4, 0.1], [0.2, 0.15, 0.1, 0.05], vocabulary=VOCABULARY)
    return rare, frequent


def _frozen(process: TokenProcess, times: FloatArray, multiple: float, normalized: bool) -> ScanFlow:
    stop = multiple * float(scansnap.transition(process.M, process.C))
    decoder = flow(process, [stop], 1.0, 0.0, normalize=normalized).decoder[-1]
    return _settled(process, times, decoder, normalized)


def _settled(process: TokenProcess, times: FloatArray, decoder: FloatArray, normalized: bool) -> ScanFlow:
    # Attention that has come to rest stays there. The solver would chase rounding errors, in ever smaller
    # steps: a run whose logits have stopped for a decade is held.
    for rest in RESTS if normalized else ():
        if rest >= times[-1]:
            break
        clock = np.unique(np.append(times[times < rest], [rest / 10, rest]))
        run = flow(process, clock, 0.0, 1.0, normalize=True, decoder=decoder)
        last = run.z[clock >= rest / 10]
        if np.ptp(last, axis=0).max() <= STILL:
            at = np.searchsorted(clock, np.minimum(times, rest))
            held = {f.name: getattr(run, f.name)[at] for f in fields(run)}
            return ScanFlow(**held | {"times": times})
    return flow(process, times, 0.0, 1.0, normalize=normalized, decoder=decoder)


def _arms(process: TokenProcess, normalized: bool, points: int) -> dict[str, Any]:
    times = np.append(0.0, np.geomspace(1e-2, LAST, points))
    runs = [
        flow(process, times, ratio, normalize=normalized)
        if ratio
        else _frozen(process, times, FREEZE, normalized)
        for ratio in RATIOS
    ]
    first = int(process.common.sum())
    own = int((process.P[0] > 0).sum()) - first
    dominant = first + own * np.arange(process.C)  # the most frequent distinct token comes first
    L = int(process.P.any(0).sum())  # contextual tokens come first
    common = np.arange(L) < first
    targets = [selection_svm(process, dominant), selection_svm(process, dominant, common)]
    z = np.stack([run.z[:, 0] for run in runs])
    held = np.flatnonzero(process.P[0] > 0)
    worth = np.stack([scores(run, normalized)[:, 0, held] for run in runs])
    gap = worth[..., first, None] - worth
    rivals = np.delete(gap, first, -1)
    mean = rivals.mean(-1)
    ratio = rivals[:, 1:] / mean[:, 1:, None]  # a decoder that starts at zero has no scores
    steps = 0.5 * (mean[:, 1:] + mean[:, :-1]) * np.diff(times)
    with np.errstate(invalid="ignore", divide="ignore"):
        cos = [compare.correlation(z[..., :L, None], target[:, None]) for target in targets]
    return {
        "z": z[..., held],
        "s": np.stack([run.s[:, 0, held] for run in runs]),
        "loss": np.stack([run.loss for run in runs]),
        "scores": worth,
        "gap": mean,
        "spread": np.stack([ratio.min((1, 2)), ratio.max((1, 2))]),
        "budget": np.concatenate([np.zeros((len(runs), 1)), np.cumsum(steps, -1)], -1),
        "correlation": np.stack(cos),
        "svm": np.stack(targets),
    }


def _freezing(process: TokenProcess, normalized: bool) -> dict[str, Any]:
    runs = [_frozen(process, np.array([0.0, LAST]), k, normalized) for k in FROZEN_AT]
    held = np.flatnonzero(process.P[0] > 0)
    return {
        "s": np.stack([run.s[-1, 0, held] for run in runs]),
        "loss": np.stack([run.loss for run in runs]),
        "scores": np.stack([scores(run, normalized)[:, 0, held] for run in runs]),
    }


@experiment(
    "p3_two_theories",
    about="one layer with a decoder that stands still or learns, with and without normalisation",
    source="own experiment between Transformers as Support Vector Machines and Scan and Snap (2023)",
    trials=1,
    test_trials=1,
    cost="about 5 s on one core",
)
def p3_two_theories(task: Task, *, points: int = 600) -> dict[str, ArrayLike]:
    """Follow attention behind frozen and learning decoders, and compare its direction with SVMs.

    Parameters
    ----------
    task : Task
        Not used: nothing is drawn at random.
    points : int
        Number of times at which runs are recorded.

    Returns
    -------
    dict
        Tokens are those of the first class: common ones, then its distinct ones, most frequent first. The
        leading axis of 2 is without and with normalisation; then comes one run for each entry of ``ratio``,
        the rate of the decoder over that of attention (0: frozen).

        ratio, times :
            Rates of the decoder, and times. Attention has rate 1.
        z, s, scores :
            (2, 4, r, 6) logits, attention, scores; ``loss`` (2, 4, r).
        gap, budget :
            (2, 4, r) mean score gap of the most frequent distinct token, and its integral.
        spread :
            (2, 4) smallest and largest score gap over the mean one, without normalisation.
        correlation :
            (2, 2, 4, r) of all logits with ``svm`` (2, 2, L): the selection of that token of each class
            against all others, and against the common tokens alone.
        frozen_at, frozen_s, frozen_loss, frozen_scores :
            The second process of ``two_processes`` behind decoders frozen at these multiples of the
            transition time: attention at the end (2, 4, 6), loss and scores at both ends.
    """
    rare, frequent = two_processes()
    arms = [task.part(f"arms{k}", _arms, rare, bool(k), points) for k in (0, 1)]
    stops = [task.part(f"frozen{k}", _freezing, frequent, bool(k)) for k in (0, 1)]
    out: dict[str, ArrayLike] = {name: np.stack([a[name] for a in arms]) for name in arms[0]}
    out["spread"] = arms[0]["spread"]
    out |= {f"frozen_{name}": np.stack([a[name] for a in stops]) for name in stops[0]}
    return out | {
        "ratio": np.array(RATIOS),
        "frozen_at": np.array(FROZEN_AT),
        "times": np.append(0.0, np.geomspace(1e-2, LAST, points)),
    }
