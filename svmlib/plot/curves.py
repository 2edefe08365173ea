"""Curves, bands over runs, points, histograms: anything over one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_positive
from svmlib.errors import DataError, ShapeError

from ._arguments import choice, entries, number
from .style import INK, axes_or_new, checked_axes, legend, style

__all__ = ["band", "curve", "histogram", "power_guide", "scatter"]


def _abscissa(x: ArrayLike, name: str, against: str, size: int) -> FloatArray:
    out = as_float(x, name, ndim=1)
    if len(out) != size:
        raise ShapeError(
            f"{name} must have one entry for each of the {size} values of {against}, got {len(out)}."
        )
    return out


def _without_infinity(a: FloatArray, name: str) -> FloatArray:
    wrong = np.argwhere(np.isinf(a))
    if len(wrong):
        raise DataError(
            f"{name} has {len(wrong)} infinite of {a.size} entries, the first at index "
            f"{tuple(map(int, wrong[0]))}. Write NaN for what is to be left out."
        )
    return a


def _look(color: str, points: int) -> dict[str, Any]:
    look = style(color)
    return {
        "color": look.color,
        "linestyle": look.dash,
        "linewidth": 1.8,
        "marker": look.marker,
        "markersize": 4.5,
        "markevery": max(1, points // 8),
    }


def curve(
    x: ArrayLike,
    y: ArrayLike,
    *,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw a curve with the colour, dash and marker of its meaning.

    Parameters
    ----------
    x, y : array_like, shape (r,)
        Points; NaN in ``y`` leaves a gap.
    color : str
        A meaning (:data:`STYLES`) or a colour.
    label : str, optional
        Entry of the legend.
    ax : Axes, optional
        Where to draw; a new figure by default.
    **line
        Changes for ``ax.plot``, for example ``marker=""``.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the sizes do not fit.
    """
    values = as_float(y, "y", ndim=1, finite=False)
    steps = _abscissa(x, "x", "y", len(values))
    ax = axes_or_new(ax)
    ax.plot(steps, values, label=label, **{**_look(color, len(steps)), **line})
    legend(ax)
    return ax


_SPREADS = {"std": "mean ± 1 std", "error": "mean ± 1 standard error", "quartiles": "median and quartiles"}


def band(
    x: ArrayLike,
    Y: ArrayLike,
    *,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
    spread: str = "std",
) -> Axes:
    """Draw runs as one curve with a band; the title of the legend says what they are and of how many runs.

    Parameters
    ----------
    x : array_like, shape (r,)
        Iterations.
    Y : array_like, shape (runs, r)
        One row a run. NaN entries are left out.
    color, label, ax
        As for :func:`curve`.
    spread : str
        "std": the mean, and one standard deviation to both sides. "error": the mean, and one standard
        error to both sides, for shares of runs. "quartiles": the median, and the middle half of the runs;
        right for logarithmic axes.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the sizes do not fit.
    DataError
        If ``spread`` is unknown, an entry is infinite, or none is a number.
    """
    values = _without_infinity(as_float(Y, "Y", ndim=2, finite=False), "Y")
    steps = _abscissa(x, "x", "a row of Y", values.shape[1])
    spread = choice(spread, "spread", tuple(_SPREADS))
    known = np.isfinite(values)
    if not known.any():
        raise DataError(f"Y, of shape {values.shape}, has no finite entry to draw.")
    summary = np.full((3, len(steps)), np.nan)
    for k in np.flatnonzero(known.any(axis=0)):
        column = values[known[:, k], k]
        if spread == "quartiles":
            summary[:, k] = np.quantile(column, (0.25, 0.5, 0.75))
        else:
            width = column.std() / (np.sqrt(len(column)) if spread == "error" else 1.0)
            summary[:, k] = column.mean() + width * np.array([-1.0, 0.0, 1.0])
    ax = axes_or_new(ax)
    ax.fill_between(steps, summary[0], summary[2], color=style(color).color, alpha=0.18, linewidth=0)
    ax.plot(steps, summary[1], label=label, **_look(color, len(steps)))
    runs, total = int(known.any(axis=1).sum()), len(values)
    count = f"{runs} runs" if runs == total else f"{runs} of {total} runs"
    legend(ax, title=f"{_SPREADS[spread]}, {count}")
    return ax


def power_guide(
    ax: Axes,
    slope: float,
    *,
    at: tuple[float, float] | None = None,
    span: float = 8.0,
    label: str | None = None,
) -> None:
    r"""Draw a reference slope :math:`y\propto x^{\mathrm{slope}}`, a straight line on two logarithmic axes.

    Parameters
    ----------
    ax : Axes
        Axes that have curves.
    slope : float
        Exponent.
    at : pair of float, optional
        Where the line begins; by default above the middle of the last curve.
    span : float
        The line ends at ``span`` times where it begins.
    label : str, optional
        Text at the line, "slope ..." by default.

    Raises
    ------
    DataError
        If ``ax`` is no axes, ``slope`` is not finite, a position is not positive, or there is no curve to
        stand beside.
    ShapeError
        If ``at`` is no pair.
    """
    checked_axes(ax)
    slope, span = number(slope, "slope"), check_positive(span, "span")
    if at is None:
        lines = [np.asarray(line.get_xydata(), dtype=float) for line in ax.get_lines()]
        points = lines[-1] if lines else np.empty((0, 2))
        points = points[np.isfinite(points).all(axis=1) & (points > 0).all(axis=1)]
        if not len(points):
            raise DataError(
                "power_guide finds no curve with positive points in ax; say where it begins (at=(x, y))."
            )
        x0, y0 = points[len(points) // 2]
        at = (float(x0), 2.0 * float(y0))
    left, height = (check_positive(c, "at") for c in entries(at, "at", 2, "x and y of where the line begins"))
    x = np.array([left, left * span])
    y = height * (x / x[0]) ** slope
    look = style("guide")
    ax.plot(x, y, color=look.color, linestyle=look.dash, linewidth=1.6)
    text = label if label is not None else f"slope {slope:g}".replace("-", "−")
    middle = (np.sqrt(x[0] * x[1]), np.sqrt(y[0] * y[1]))
    ax.annotate(text, middle, xytext=(5, 3), textcoords="offset points", color=INK, fontsize=9)


def scatter(
    x: ArrayLike,
    y: ArrayLike,
    *,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
    **points: Any,
) -> Axes:
    """Draw points with the colour and marker of their meaning.

    Parameters
    ----------
    x, y : array_like, shape (r,)
        Points.
    color, label, ax
        As for :func:`curve`.
    **points
        Changes for ``ax.plot``.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the sizes do not fit.
    """
    marker = {"linestyle": "none", "marker": style(color).marker or "o", "alpha": 0.75, "markevery": 1}
    return curve(x, y, color=color, label=label, ax=ax, **{**marker, **points})


def histogram(
    values: ArrayLike,
    *,
    bins: Any = 20,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many values fall into each bin.

    Parameters
    ----------
    values : array_like, shape (r,)
        Numbers; NaN is left out.
    bins : int or array_like
        As for ``numpy.histogram``.
    color, label, ax
        As for :func:`curve`.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    DataError
        If a value is infinite, or none is a number, or ``bins`` is not allowed.
    """
    data = _without_infinity(as_float(values, "values", ndim=1, finite=False), "values")
    data = data[np.isfinite(data)]
    if not data.size:
        raise DataError("values has no finite entry to count.")
    try:
        bins = as_float(np.histogram_bin_edges(data, bins), "bins")
    except (TypeError, ValueError) as exc:
        raise DataError(
            "bins must be a positive integer, at least two increasing finite edges, or a rule of "
            f'numpy such as "auto", got {bins!r}.'
        ) from exc
    ax = axes_or_new(ax)
    look = style(color)
    ax.hist(data, bins=bins, color=look.color, alpha=0.35, label=label)
    ax.hist(data, bins=bins, color=look.color, histtype="step", linewidth=1.6, linestyle=look.dash)
    legend(ax)
    return ax
