"""One layer, two theories: attention with and without norm, behind a decoder that stands still or learns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import logsumexp

from svmlib import compare, scansnap, svm
from svmlib.arrays import FloatArray, as_float, frozen
from svmlib.errors import DataError, SolverError
from svmlib.scansnap import TokenProcess

from .framework import Task, experiment

__all__ = ["LayerFlow", "layer_flow", "p3_two_theories", "selection_svm", "two_processes"]

VOCABULARY = 60
RATIOS = (0.0, 1.0, 10.0, 100.0)
FREEZE = 2.0
FROZEN_AT = (0.5, 2.0, 8.0, 1000.0)
LAST = 1e10


@dataclass(frozen=True, slots=True, eq=False)
class LayerFlow:
    """What a flow of decoder and attention recorded; L counts the tokens that occur as context."""

    times: FloatArray
    """(r,) times."""
    loss: FloatArray
    """(r,) cross-entropy of the population."""
    z: FloatArray
    """(r, Q, L) attention logits."""
    s: FloatArray
    """(r, C, L) attention by token type."""
    scores: FloatArray
    """(r, C, L) inner products of the tokens with minus the gradient of the loss in the attention output."""
    decoder: FloatArray
    """(r, L, C + 1) rows of the decoder: the next token of every class, and any other token."""


def layer_flow(
    process: TokenProcess,
    times: ArrayLike,
    decoder_rate: float = 1.0,
    attention_rate: float = 1.0,
    *,
    normalized: bool = True,
    decoder: ArrayLike | None = None,
    rtol: float = 1e-8,
) -> LayerFlow:
    r"""Solve the gradient flow of decoder and attention from z = 0, with or without normalisation.

    The decoder reads :math:`s_c/\|s_c\|`, or :math:`s_c` itself. With a rate of 0 it stands still.

    Parameters
    ----------
    process : TokenProcess
        Classes and their frequencies.
    times : array_like, shape (r,)
        Increasing times, not negative, the last one positive.
    decoder_rate, attention_rate : float
        Learning rates, not negative.
    normalized : bool
        Whether attention is scaled to length one before the decoder reads it.
    decoder : array_like, shape (L, C + 1), optional
        Decoder at time 0, in the form of :attr:`LayerFlow.decoder`; zero by default.
    rtol : float
        Relative accuracy of the solver.

    Returns
    -------
    LayerFlow
        Its records.

    Raises
    ------
    DataError
        If the times or a rate are not allowed.
    ShapeError
        If the decoder has another shape.
    SolverError
        If the solver gives up.

    Notes
    -----
    With normalisation and from a decoder of zeros this is :func:`svmlib.scansnap.flow`.
    """
    when = as_float(times, "times", ndim=1)
    if not when.size or when[0] < 0 or (np.diff(when) <= 0).any() or when[-1] <= 0:
        raise DataError("times must be increasing and not negative, and the last one positive.")
    if decoder_rate < 0 or attention_rate < 0:
        raise DataError(f"Rates must not be negative, got {decoder_rate:g} and {attention_rate:g}.")
    context = np.flatnonzero(process.P.any(0))
    (C, M), L, Q = process.P.shape, context.size, len(process.queries)
    shape = (L, C + 1)
    first = np.zeros(shape) if decoder is None else as_float(decoder, "decoder", ndim=2, last=shape)
    P, prior, row = process.P[:, context], process.prior[:, None], process.row
    number = np.append(np.ones(C), M - C)  # tokens that a column stands for
    log_number = np.log(np.maximum(number, 1e-300))

    def forward(y: FloatArray) -> tuple[FloatArray, ...]:
        D, z = y[: L * (C + 1)].reshape(shape), y[L * (C + 1) :].reshape(Q, L)
        mass = P * np.exp(z - z.max(1, keepdims=True))[row]
        s = mass / mass.sum(1, keepdims=True)
        length = np.linalg.norm(s, axis=1, keepdims=True) if normalized else np.ones((C, 1))
        read = s / length
        logits = read @ D
        p = np.exp(logits - logsumexp(logits + log_number, axis=1, keepdims=True))
        np.fill_diagonal(p[:, :C], 0.0)
        residual = -p
        np.fill_diagonal(residual[:, :C], p @ number)  # 1 minus the label's own would cancel
        scores = (residual * number) @ D.T
        if normalized:
            scores = (scores - read * (read * scores).sum(1, keepdims=True)) / length
        return s, read, logits, residual, scores

    def slope(_: float, y: FloatArray) -> FloatArray:
        s, read, _logits, residual, scores = forward(y)
        pull = prior * s * (scores - (s * scores).sum(1, keepdims=True))
        into = np.zeros((Q, L))
        np.add.at(into, row, pull)
        return np.concatenate(
            [decoder_rate * (read.T @ (prior * residual)).ravel(), attention_rate * into.ravel()]
        )

    start = np.concatenate([first.ravel(), np.zeros(Q * L)])
    solved = solve_ivp(slope, (0.0, float(when[-1])), start, "LSODA", when, rtol=rtol, atol=1e-3 * rtol)
    if not solved.success:
        raise SolverError(f"The flow could not be followed to time {when[-1]:g}: {solved.message}")
    states = solved.y.T
    seen = [forward(y) for y in states]
    logits = np.array([step[2] for step in seen])
    wrong = logits - np.diagonal(logits, axis1=1, axis2=2)[..., None] + log_number
    np.einsum("rcc->rc", wrong[..., :C])[:] = -np.inf
    loss = np.log1p(np.exp(wrong).sum(-1)) @ process.prior  # accurate where it is tiny
    values = (
        when,
        loss,
        states[:, L * (C + 1) :].reshape(-1, Q, L),
        np.array([step[0] for step in seen]),
        np.array([step[4] for step in seen]),
        states[:, : L * (C + 1)].reshape(-1, *shape),
    )
    return LayerFlow(*(frozen(np.asarray(a)) for a in values))


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
    """
    P = process.P[:, process.P.any(0)]
    chosen = np.asarray(tokens)
    keep = np.ones(P.shape[1], dtype=bool) if rivals is None else np.asarray(rivals, dtype=bool).copy()
    keep[chosen] = True
    held = [np.flatnonzero((row > 0) & keep) for row in P]
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


def _frozen(process: TokenProcess, times: FloatArray, multiple: float, normalized: bool) -> LayerFlow:
    stop = multiple * float(scansnap.transition(process.M, process.C))
    trained = layer_flow(process, [stop], 1.0, 0.0, normalized=normalized)
    return layer_flow(process, times, 0.0, 1.0, normalized=normalized, decoder=trained.decoder[-1])


def _arms(process: TokenProcess, normalized: bool, points: int) -> dict[str, Any]:
    times = np.append(0.0, np.geomspace(1e-2, LAST, points))
    runs = [
        layer_flow(process, times, ratio, normalized=normalized)
        if ratio
        else _frozen(process, times, FREEZE, normalized)
        for ratio in RATIOS
    ]
    first = int(process.common.sum())
    own = int((process.P[0] > 0).sum()) - first
    dominant = first + own * np.arange(process.C)  # the most frequent distinct token comes first
    common = np.arange(int(process.P.any(0).sum())) < first
    targets = [selection_svm(process, dominant), selection_svm(process, dominant, common)]
    z = np.stack([run.z[:, 0] for run in runs])
    held = np.flatnonzero(process.P[0] > 0)
    scores = np.stack([run.scores[:, 0, held] for run in runs])
    gap = scores[..., first, None] - scores
    rivals = np.delete(gap, first, -1)
    mean = rivals.mean(-1)
    ratio = rivals[:, 1:] / mean[:, 1:, None]  # a decoder that starts at zero has no scores
    steps = 0.5 * (mean[:, 1:] + mean[:, :-1]) * np.diff(times)
    with np.errstate(invalid="ignore", divide="ignore"):
        cos = [compare.correlation(z[..., None], target[:, None]) for target in targets]
    return {
        "z": z[..., held],
        "s": np.stack([run.s[:, 0, held] for run in runs]),
        "loss": np.stack([run.loss for run in runs]),
        "scores": scores,
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
        "scores": np.stack([run.scores[:, 0, held] for run in runs]),
    }


@experiment(
    "p3_two_theories",
    about="one layer with a decoder that stands still or learns, with and without normalisation",
    source="own experiment between Transformers as Support Vector Machines and Scan and Snap (2023)",
    trials=1,
    test_trials=1,
    cost="about 10 s on one core",
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
