r"""What is read off attention maps over training: entropy, speed of change, and when change breaks off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from svmlib import compare
from svmlib.arrays import FloatArray, as_float
from svmlib.errors import DataError, ShapeError

__all__ = ["Onset", "attention_change", "attention_entropy", "change_speed", "freeze_onset"]

LEAST, SIDE = 7, 3
EVIDENCE = 6.0
"""Difference in BIC from which evidence is called strong."""
BETWEEN = 10
"""Candidate knots in an interval of two points."""
AXES = "probes, heads, T positions that read, T positions that are read"


def attention_entropy(maps: ArrayLike, *, relative: bool = False) -> FloatArray:
    """Compute the mean entropy of attention of each head, in nats.

    Parameters
    ----------
    maps : array_like, shape (..., P, H, T, T)
        Attention of causal models on P probes, by head: rows are probabilities. A row may be zero if nothing
        can be read: the first one of a :class:`~svmlib.language.ScanLayer`.
    relative : bool
        Whether entropies are divided by those of uniform attention, so that they lie between 0 and 1.

    Returns
    -------
    ndarray, shape (..., H)
        Means over probes and over the positions that can read at least two.

    Raises
    ------
    ShapeError
        If the axes do not fit, or no position can read two.
    DataError
        If a row is no probability, or reads the future.

    Notes
    -----
    Averages over heads and layers are those of *Scan and Snap* (2023), figure 10.
    """
    value, readable = _maps(as_float(maps, "maps", min_ndim=4, meaning=AXES))
    used = np.flatnonzero(readable > 1)
    entropy = compare.entropy(value[..., used, :])
    if relative:
        entropy = entropy / np.log(readable[used])
    return np.asarray(entropy.mean((-3, -1)))


def attention_change(maps: ArrayLike) -> FloatArray:
    r"""Compute how far attention moves from one snapshot to the next, in total variation.

    The distance of two rows is :math:`\frac12\sum_\tau|b'_\tau-b_\tau|`, the probability that has to move.

    Parameters
    ----------
    maps : array_like, shape (r, P, H, T, T)
        Attention at r snapshots on P probes, by head.

    Returns
    -------
    ndarray, shape (r - 1, H)
        Means over probes and over the positions that can read at least two; between 0 and 1.

    Raises
    ------
    ShapeError
        If there are not two snapshots, the axes do not fit, or no position can read two.
    DataError
        If a row is no probability, or reads the future.
    """
    value, readable = _maps(as_float(maps, "maps", ndim=5, meaning=f"snapshots, {AXES}"))
    if len(value) < 2:
        raise ShapeError(f"A change needs two snapshots, got maps of shape {value.shape}.")
    moved = 0.5 * np.abs(np.diff(value[..., readable > 1, :], axis=0)).sum(-1)
    return np.asarray(moved.mean((1, -1)))


def change_speed(steps: ArrayLike, maps: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Compute the mean change of attention per step between snapshots, and the steps in the middle.

    Parameters
    ----------
    steps : array_like, shape (r,)
        Steps of the snapshots, rising, from 0 on.
    maps : array_like, shape (r, P, H, T, T)
        Attention, see :func:`attention_change`.

    Returns
    -------
    middle : ndarray, shape (r - 1,)
        Geometric means of neighbouring steps; half the second step where the first one is 0.
    speed : ndarray, shape (r - 1, H)
        Change per step. Where attention moves to and fro this falls with the distance of the snapshots:
        compare speeds over equally many steps.

    Raises
    ------
    ShapeError
        If there is not one step for each map.
    DataError
        If steps do not rise, or are negative.
    """
    change = attention_change(maps)
    at = as_float(steps, "steps", ndim=1, last=(len(change) + 1,), meaning="one for each snapshot")
    if at[0] < 0 or (np.diff(at) <= 0).any():
        raise DataError("steps must rise, from 0 or later.")
    middle = np.sqrt(at[1:] * at[:-1])
    if not at[0]:
        middle[0] = at[1] / 2
    return middle, change / np.diff(at)[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Onset:
    """Two lines that meet in a knot, fitted to speeds in double logarithmic axes."""

    step: float
    """Step at the knot."""
    low: float
    """Lower end of the steps at which a knot is not refuted at the level of 5 %, by the F test."""
    high: float
    """Upper end."""
    height: float
    """Speed of the fit at the knot."""
    before: float
    """Slope before the knot: speed grows like the step to that power."""
    after: float
    """Slope after it."""
    share: float
    """Share of the residual sum of squares of one line that the knot removes."""
    improvement: float
    """How much lower the BIC is with the knot than with one line."""
    left_out: int
    """Points with speed 0, which were left out."""
    found: bool
    """Whether speed breaks off at the knot: improvement above 6, and after < before."""

    def curve(self, steps: ArrayLike) -> FloatArray:
        """Evaluate the fit.

        Parameters
        ----------
        steps : array_like, shape (...)
            Positive steps.

        Returns
        -------
        ndarray, shape (...)
            Speeds.

        Raises
        ------
        DataError
            If a step is not positive.
        """
        x = np.log(_positive(as_float(steps, "steps"), "steps") / self.step)
        return np.asarray(self.height * np.exp(np.where(x < 0, self.before, self.after) * x))


def freeze_onset(steps: ArrayLike, speed: ArrayLike) -> Onset:
    r"""Find the step from which attention slows down faster, if there is one.

    Fits :math:`\log v=a+b\log t+c\,(\log t-\log k)_+` by least squares, for every candidate knot k in closed
    form: all points with at least three on each side (the knot counts on both), and nine places evenly
    between two of them on the logarithmic axis. The knot is called an onset if it lowers the BIC by more than
    6 against one line, where it counts for two parameters (place and change of slope), and slopes fall there.

    Parameters
    ----------
    steps : array_like, shape (k,)
        Positive steps, rising.
    speed : array_like, shape (k,)
        Speeds, not negative. A speed of 0 has no logarithm and lies below what was resolved: it is left out,
        and counted.

    Returns
    -------
    Onset
        The best knot, with a verdict.

    Raises
    ------
    ShapeError
        If there are not as many speeds as steps.
    DataError
        If steps are not positive or do not rise, a speed is negative, or fewer than seven are positive.

    Notes
    -----
    BIC takes errors of the logarithm for independent. Speeds of one run are not quite, and a curve that bends
    smoothly has a best knot too: look at ``low`` and ``high``, and at several seeds. Differences of
    :math:`10^{-9}` count as none, so that exact data make no evidence out of rounding.
    """
    t = _positive(as_float(steps, "steps", ndim=1), "steps")
    v = as_float(speed, "speed", ndim=1, last=(len(t),), meaning="one for each step")
    if (np.diff(t) <= 0).any():
        raise DataError("steps must rise.")
    if (v < 0).any():
        raise DataError(f"speed must not be negative, got {v.min():g}.")
    kept = v > 0
    n = int(kept.sum())
    if n < LEAST:
        raise DataError(
            f"Two lines need at least {LEAST} positive speeds, got {n} (and {len(v) - n} of 0). "
            "Record more often."
        )
    x, y = np.log(t[kept]), np.log(v[kept])
    inner = x[SIDE - 1 : n - SIDE + 1]
    parts = np.arange(BETWEEN) / BETWEEN
    knots = np.append((inner[:-1, None] + np.diff(inner)[:, None] * parts).ravel(), inner[-1])

    mean = x.mean()
    basis = np.stack([np.full(n, n**-0.5), (x - mean) / np.linalg.norm(x - mean)])
    hinge = np.maximum(x - knots[:, None], 0.0)
    bend = hinge - hinge @ basis.T @ basis
    rest = y - basis.T @ (basis @ y)
    c = bend @ rest / (bend * bend).sum(1)
    noise = n * 1e-18
    two = ((rest - c[:, None] * bend) ** 2).sum(1) + noise
    one = rest @ rest + noise

    best = int(two.argmin())
    line = y - c[best] * hinge[best]
    slope = float(basis[1] @ line / np.linalg.norm(x - mean))
    height = float(line.mean() + slope * (knots[best] - mean))
    improvement = float(n * np.log(one / two[best]) - 2 * np.log(n))
    alike = np.exp(knots[two <= two[best] * (1 + stdtrit(n - 4, 0.975) ** 2 / (n - 4))])
    return Onset(
        step=float(np.exp(knots[best])),
        low=float(alike.min()),
        high=float(alike.max()),
        height=float(np.exp(height)),
        before=slope,
        after=slope + float(c[best]),
        share=float(1 - two[best] / one),
        improvement=improvement,
        left_out=len(v) - n,
        found=bool(improvement > EVIDENCE and c[best] < 0),
    )


def _maps(value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Check attention; say how many positions each one can read."""
    T = value.shape[-1]
    if value.shape[-2] != T or not value.size:
        raise ShapeError(f"maps must have axes for {AXES}, none empty, got shape {value.shape}.")
    first = value[..., 0, 0]
    if first.any() and not first.all():
        raise DataError("In some maps the first position reads itself, in others nothing: do not mix models.")
    readable = np.arange(T) + np.float64(first.any())
    future = np.arange(T) >= readable[:, None]
    if value[..., future].any():
        raise DataError("maps of causal models are expected: no position reads a later one.")
    sums = value[..., readable > 0, :].sum(-1)
    if (value < 0).any() or (np.abs(sums - 1) > 0.02).any():  # 0.02: what half precision does to a sum
        raise DataError(
            f"Rows of maps must be probabilities, got an entry {value.min():g} and sums from "
            f"{sums.min(initial=1.0):g} to {sums.max(initial=1.0):g}."
        )
    if readable[-1] < 2:
        raise ShapeError(
            f"No position of maps of shape {value.shape} can read two others: use longer probes."
        )
    return value, readable


def _positive(a: FloatArray, name: str) -> FloatArray:
    if not (a > 0).all():
        raise DataError(
            f"{name} must be positive, got {a.min():g}: logarithmic axes have no 0. Leave it out."
        )
    return a
