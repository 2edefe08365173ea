"""Bars and cells: one number for each of a few things."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from svmlib.arrays import check_integer
from svmlib.errors import DataError, ShapeError

from ._arguments import entries, filled, position
from .style import COLORS, INK, axes_or_new, legend, style

__all__ = ["bars", "matrix", "shares"]


def bars(
    p: ArrayLike, *, highlight: int | None = None, names: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw attention probabilities as bars, with the highlighted token in green and hatched.

    Parameters
    ----------
    p : array_like, shape (T,)
        Probabilities, or any other number for each token.
    highlight : int, optional
        Position of the optimal or selected token.
    names : list of str, optional
        Names of the tokens; 1 to T by default.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If ``p`` has not one axis or no entry, or names or highlight do not fit it.
    """
    heights = filled(p, "p", "one number for each token", ndim=1)
    T = len(heights)
    ticks = (
        [str(t + 1) for t in range(T)] if names is None else entries(names, "names", T, "one for each token")
    )
    if highlight is not None:
        highlight = position(highlight, "highlight", T, "tokens")
    ax = axes_or_new(ax)
    for t, height in enumerate(heights):
        chosen = t == highlight
        face = COLORS["opt"] if chosen else COLORS["token"]
        ax.bar(t, height, width=0.7, color=face, edgecolor="white", hatch="//" if chosen else "", linewidth=0)
    ax.set_xticks(range(T), ticks)
    ax.grid(visible=False, axis="x")
    return ax


def shares(
    names: list[str],
    parts: ArrayLike,
    kinds: list[str],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw shares that add up to one as stacked bars, each kind in its own grey level and hatch.

    Parameters
    ----------
    names : list of str
        One name a bar.
    parts : array_like, shape (kinds, bars)
        Shares, each column with sum 1.
    kinds : list of str
        Names of the kinds, from the bottom of a bar to its top; at most 4.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the sizes do not fit.
    DataError
        If a share is negative or a column does not add up to 1.
    """
    values = filled(parts, "parts", "kinds by bars", ndim=2)
    looks = (("opt", ""), ("token", "//"), ("negative", "xx"), ("#E0E0E0", ""))
    if len(values) > len(looks):
        raise ShapeError(f"parts may have at most {len(looks)} kinds, got {len(values)}.")
    labels = entries(kinds, "kinds", len(values), "one for each row of parts")
    ticks = entries(names, "names", values.shape[1], "one for each column of parts")
    if values.min() < 0 or not np.allclose(values.sum(0), 1.0):
        raise DataError("parts must hold shares: not negative, and each column with sum 1.")
    ax = axes_or_new(ax)
    bottom = np.zeros(values.shape[1])
    for row, (color, hatch), label in zip(values, looks, labels, strict=False):
        face = style(color).color
        ax.bar(
            ticks,
            row,
            bottom=bottom,
            width=0.75,
            color=face,
            edgecolor="white",
            hatch=hatch,
            linewidth=0,
            label=label,
        )
        bottom += row
    ax.set_ylim(0, 1)
    ax.grid(visible=False, axis="x")
    legend(ax, above=True)
    return ax


def matrix(A: ArrayLike, *, digits: int = 2, ax: Axes | None = None) -> Axes:
    """Draw a matrix as coloured cells, white at zero, with its entries written in where they fit.

    Parameters
    ----------
    A : array_like, shape (m, k)
        Finite entries.
    digits : int
        Digits after the point.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If ``A`` has not two axes or no entry, or ``digits`` is no whole number from 0.
    """
    values, digits = filled(A, "A", "a matrix", ndim=2), check_integer(digits, "digits", 0)
    ax = axes_or_new(ax)
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    ax.imshow(values, cmap="PuOr", vmin=-top, vmax=top, aspect="equal")
    if max(values.shape) <= 8:
        for (i, j), entry in np.ndenumerate(values):
            ink = "white" if abs(entry) > 0.5 * top else INK
            ax.text(
                j, i, f"{entry:.{digits}f}".replace("-", "−"), ha="center", va="center", color=ink, fontsize=9
            )
    ax.grid(visible=False)
    ax.set_xticks(range(values.shape[1]), [str(j + 1) for j in range(values.shape[1])])
    ax.set_yticks(range(values.shape[0]), [str(i + 1) for i in range(values.shape[0])])
    return ax
