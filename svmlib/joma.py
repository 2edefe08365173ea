r"""Attention behind a hidden layer: what the weights of the hidden layer know about the attention logits.

A query token attends to contextual tokens with frequencies :math:`\mathbb P(l\mid c)` and logits z, and a
hidden layer reads the result: hidden unit k has the pre-activation :math:`v_k^\top b_c+r_k` with exponential
attention

.. math:: b_{cl}=\mathbb P(l\mid c)\,e^{z_l/\vartheta},

or with softmax, the same divided by its sum over tokens, where r is what the residual connection adds
(Tian et al. 2024, *JoMA*).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp
from scipy.special import erf, logsumexp

from svmlib.arrays import FloatArray, IntArray, as_float, check_integer, check_positive, frozen
from svmlib.dynamics import record_steps
from svmlib.errors import DataError, SolverError

__all__ = ["Invariant", "JomaRun", "entropy_path", "erf_ratio", "frequencies", "invariant", "toy", "train"]

ACTIVATIONS: dict[str, Any] = {
    "linear": (lambda h: h, lambda h: np.ones_like(h)),
    "relu": (lambda h: np.maximum(h, 0.0), lambda h: (h > 0).astype(float)),
    "tanh": (np.tanh, lambda h: 1.0 - np.tanh(h) ** 2),
}


class Weights(NamedTuple):
    """Attention logits (L,), hidden layer (L, K), residual part (K,), last layer (K, C)."""

    z: FloatArray
    v: FloatArray
    r: FloatArray
    top: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class JomaRun:
    """What training recorded."""

    steps: IntArray
    """(r,) numbers of completed steps; for the flow, numbers of the records."""
    loss: FloatArray
    """(r,) cross-entropy, the mean over classes."""
    z: FloatArray
    """(r, L) attention logits."""
    v: FloatArray
    """(r, L, K) weights of the hidden layer, one column for each unit."""
    residual: FloatArray
    """(r, K) what the residual connection adds."""
    b: FloatArray
    """(r, C, L) attention; rows sum to 1 for softmax only."""
    temperature: float
    """Temperature of the logits."""


class Invariant(NamedTuple):
    """Attention logits computed from the hidden layer, each (r, L)."""

    exponential: FloatArray
    """With the squares of the weights alone: exact for exponential attention."""
    softmax: FloatArray
    """Minus their sum times the mean attention at the start: the approximation for softmax."""
    integral: FloatArray
    """The same with the integral of the mean attention along the run in the place of the product."""


def frequencies(
    classes: int = 20, distinct: int = 10, common: int = 10, *, bumps: bool = True, seed: int = 0
) -> FloatArray:
    r"""Draw the frequencies of the published demonstration of the invariant.

    Parameters
    ----------
    classes : int
        Number of classes C.
    distinct, common : int
        Numbers of tokens whose frequency depends on the class as a bump, and of others.
    bumps : bool
        Whether the first ones have bumps of height 1; otherwise all are random.
    seed : int
        Seed of numpy's generator: other numbers from 0 to 1/2.

    Returns
    -------
    ndarray, shape (C, distinct + common)
        Frequencies, rows with sum 1.

    Notes
    -----
    The setting of Figure 2 of *JoMA* (2024). Class c = 0, 1, ... has its bump at token c distinct/C.
    """
    C, d, k = (
        check_integer(a, name)
        for a, name in ((classes, "classes"), (distinct, "distinct"), (common, "common"))
    )
    P = 0.5 * np.random.default_rng(check_integer(seed, "seed", 0)).random((C, d + k))
    if bumps:
        P[:, :d] = np.exp(-((np.arange(d) - np.arange(C)[:, None] / C * d) ** 2) / 30.0)
    return np.asarray(P / P.sum(1, keepdims=True))


def train(
    P: ArrayLike,
    steps: int,
    rate: float = 0.1,
    *,
    softmax: bool = True,
    temperature: float = 1.0,
    activation: str = "linear",
    hidden: int | None = None,
    scale: float = 0.01,
    seed: int = 0,
    record: int | Iterable[int] | None = None,
    flow: bool = False,
) -> JomaRun:
    r"""Train attention and hidden layer on the cross-entropy of classes with exact frequencies.

    Parameters
    ----------
    P : array_like, shape (C, L)
        Frequencies of the contextual tokens of each class; class c is to be predicted.
    steps : int
        Number of gradient steps.
    rate : float
        Step size.
    softmax : bool
        Whether attention is divided by its sum.
    temperature : float
        Temperature of the logits.
    activation : str
        "linear", "relu" or "tanh".
    hidden : int, optional
        Number of hidden units, below a last layer that is trained too. By default the hidden units are the
        logits of the classes.
    scale : float
        Standard deviation of attention logits and hidden layer at the start.
    seed : int
        Seed of the start.
    record : int or iterable of int, optional
        When to record, see :func:`svmlib.dynamics.record_steps`.
    flow : bool
        Whether to follow the gradient flow to the times rate times step in the place of steps.

    Returns
    -------
    JomaRun
        Records.

    Raises
    ------
    DataError
        If P is no table of frequencies, or the activation is not known.
    SolverError
        If the weights leave the finite numbers.

    Notes
    -----
    *JoMA* (2024), section 3, for one query. Exponential attention grows without bound under long training.
    """
    table = as_float(P, "P", ndim=2)
    if (table < 0).any() or not table.any(1).all():
        raise DataError("P must hold frequencies: none negative, and a positive one in each row.")
    if activation not in ACTIVATIONS:
        raise DataError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
    eta, heat = check_positive(rate, "rate"), check_positive(temperature, "temperature")
    when = record_steps(record, steps)
    (C, L), rng = table.shape, np.random.default_rng(check_integer(seed, "seed", 0))
    K = C if hidden is None else check_integer(hidden, "hidden")
    top = np.eye(C) if hidden is None else rng.normal(size=(K, C)) / np.sqrt(K)
    z, v, r = (scale * rng.normal(size=n) for n in ((L,), (L, K), (K,)))
    start = Weights(z, v, r, top)
    sizes = np.cumsum([a.size for a in start])[:-1]

    def unpack(y: FloatArray) -> Weights:
        return Weights(*(a.reshape(b.shape) for a, b in zip(np.split(y, sizes), start, strict=True)))

    def slope(_: float, y: FloatArray) -> FloatArray:
        moves = _descent(unpack(y), table, softmax, heat, activation)[0]
        last = moves.top if hidden is not None else np.zeros_like(top)
        return np.concatenate([a.ravel() for a in (*moves[:3], last)])

    first = np.concatenate([a.ravel() for a in start])
    if flow:
        states = _followed(slope, first, np.asarray(eta * when, dtype=float))
    else:
        states, y = [], first
        for k in range(int(when[-1]) + 1):
            if k in when:
                states.append(y)
            y = y + eta * slope(0.0, y)
    if not np.isfinite(states).all():
        raise SolverError("The weights left the finite numbers: take a smaller rate, or fewer steps.")
    kept = [unpack(np.asarray(y)) for y in states]
    seen = [_descent(w, table, softmax, heat, activation) for w in kept]
    return JomaRun(
        steps=frozen(when),
        loss=frozen(np.array([move[1] for move in seen])),
        z=frozen(np.array([w.z for w in kept])),
        v=frozen(np.array([w.v for w in kept])),
        residual=frozen(np.array([w.r for w in kept])),
        b=frozen(np.array([move[2] for move in seen])),
        temperature=heat,
    )


def invariant(run: JomaRun) -> Invariant:
    r"""Compute the attention logits from the weights of the hidden layer.

    Parameters
    ----------
    run : JomaRun
        A run; its first record is the reference.

    Returns
    -------
    Invariant
        Three predictions; with :math:`q=\sum_kv_k\odot v_k`, :math:`S=\sum_lq_l` and differences to the
        first record, :math:`z(0)+\Delta q/2\vartheta`, :math:`z(0)+(\Delta q-\bar b(0)\Delta S)/2\vartheta`
        and :math:`z(0)+(\Delta q-\int\bar b\,\mathrm dS)/2\vartheta`, the integral over the records.

    Notes
    -----
    *JoMA* (2024), Theorem 1.
    """
    squares = (run.v**2).sum(-1)
    grown = squares - squares[:1]
    total = grown.sum(-1)
    mean = run.b.mean(1)
    steps = 0.5 * (mean[1:] + mean[:-1]) * np.diff(total)[:, None]
    integral = np.concatenate([np.zeros((1, squares.shape[1])), np.cumsum(steps, 0)])
    factor = 0.5 / run.temperature
    first = run.z[:1]
    return Invariant(
        np.asarray(first + factor * grown),
        np.asarray(first + factor * (grown - mean[:1] * total[:, None])),
        np.asarray(first + factor * (grown - integral)),
    )


def toy(
    target: ArrayLike, steps: int = 5000, rate: float = 0.02, *, temperature: float = 3.0, start: float = 0.05
) -> FloatArray:
    r"""Iterate :math:`v\leftarrow v+\eta\,(\mu-v)\odot\mathbb S(v^2/\vartheta)`, a unit behind attention.

    Parameters
    ----------
    target : array_like, shape (..., L)
        Where the weights are drawn to, :math:`\mu`.
    steps : int
        Number of steps.
    rate : float
        Step size.
    temperature : float
        Temperature of attention.
    start : float
        All components at the start.

    Returns
    -------
    ndarray, shape (steps + 1, ..., L)
        The components, step by step.

    Notes
    -----
    *JoMA* (2024), Figure 4.
    """
    goal = as_float(target, "target", min_ndim=1)
    eta, heat = check_positive(rate, "rate"), check_positive(temperature, "temperature")
    v = np.empty((check_integer(steps, "steps", 0) + 1, *goal.shape))
    v[0] = start
    for k in range(len(v) - 1):
        v[k + 1] = v[k] + eta * (goal - v[k]) * _own_attention(v[k], heat)
    return v


def entropy_path(v: ArrayLike, temperature: float = 3.0) -> FloatArray:
    r"""Compute the entropy of the attention :math:`\mathbb S(v^2/\vartheta)`, in nats.

    Parameters
    ----------
    v : array_like, shape (..., L)
        Weights of a hidden unit.
    temperature : float
        Temperature of attention.

    Returns
    -------
    ndarray, shape (...)
        Entropy, between 0 and the logarithm of L.
    """
    s = _own_attention(as_float(v, "v", min_ndim=1), check_positive(temperature, "temperature"))
    return np.asarray(-(s * np.log(np.where(s > 0, s, 1.0))).sum(-1))


def erf_ratio(v: ArrayLike, force: ArrayLike) -> FloatArray:
    r"""Compute :math:`\operatorname{erf}(v_l/\sqrt2)/\Delta_l`, the same for all components that start at 0.

    Parameters
    ----------
    v : array_like, shape (..., L)
        Weights of a hidden unit.
    force : array_like, shape (L,)
        Constant forces, none of them 0.

    Returns
    -------
    ndarray, shape (..., L)
        The ratios.

    Raises
    ------
    DataError
        If a force is 0.
    """
    push = as_float(force, "force", ndim=1)
    if not push.all():
        raise DataError("A force is 0: that component never moves.")
    return np.asarray(erf(as_float(v, "v", min_ndim=1) / np.sqrt(2.0)) / push)


def _own_attention(v: FloatArray, heat: float) -> FloatArray:
    logits = v**2 / heat
    return np.asarray(np.exp(logits - logsumexp(logits, axis=-1, keepdims=True)))


def _followed(slope: Any, first: FloatArray, times: FloatArray) -> list[FloatArray]:
    if times[-1] == 0.0:
        return [first] * times.size
    solved = solve_ivp(slope, (0.0, float(times[-1])), first, "DOP853", times, rtol=1e-10, atol=1e-12)
    if not solved.success:
        raise SolverError(f"The flow could not be followed to time {times[-1]:g}: {solved.message}")
    return list(solved.y.T)


def _descent(
    w: Weights, P: FloatArray, softmax: bool, heat: float, activation: str
) -> tuple[Weights, float, FloatArray]:
    # minus the gradients of the loss, the loss, attention
    act, act_slope = ACTIVATIONS[activation]
    b = P * np.exp(w.z / heat)
    if softmax:
        b = b / b.sum(1, keepdims=True)
    h = b @ w.v + w.r
    logits = act(h) @ w.top
    log_p = logits - logsumexp(logits, axis=1, keepdims=True)
    C = len(P)
    residual = (np.eye(C) - np.exp(log_p)) / C
    back = (residual @ w.top.T) * act_slope(h)
    into = back @ w.v.T
    if softmax:
        into = into - (b * into).sum(1, keepdims=True)
    moves = Weights((b * into).sum(0) / heat, b.T @ back, back.sum(0), act(h).T @ residual)
    return moves, float(-np.diagonal(log_p).mean()), b
