"""Heat maps: how a row of numbers, such as attention by token, changes from one record to the next."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from svmlib.arrays import as_float, check_positive
from svmlib.errors import DataError, ShapeError

from ._arguments import entries, filled
from .style import INK, axes_or_new

__all__ = ["heat"]

ROWS = 14  # names of rows that fit


def _colors() -> Colormap:
    # from white, so that a page in dark mode, which inverts figures, has what is large brightest there too
    return mpl.colormaps["PuBu"]


def heat(
    A: ArrayLike,
    *,
    rows: Sequence[object] | None = None,
    groups: dict[str, tuple[int, int]] | None = None,
    top: float | None = None,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw numbers that are not negative as cells, the darker the larger: one row a record, the first on top.

    Parameters
    ----------
    A : array_like, shape (r, L)
        Values, such as attention on L tokens at r iterations; NaN leaves a cell empty.
    rows : sequence, optional
        What the rows are, such as their iterations; only some are named where there are many. 0 to r - 1 by
        default.
    groups : dict of str to pair of int, optional
        Names of groups of columns with their first column and the one after their last; lines separate them.
    top : float, optional
        Value of the darkest colour, for several panels with one scale; the largest entry by default.
    label : str
        What the colours show; with it there is a bar of colours.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If ``A`` has not two axes or no entry, or the names do not fit.
    DataError
        If an entry is negative or infinite, none is a number, or ``top`` is not positive.
    """
    values = filled(A, "A", "one row for each record", ndim=2, finite=False)
    known = values[~np.isnan(values)]
    if not known.size or not np.isfinite(known).all() or known.min() < 0:
        raise DataError("A must hold numbers that are finite and not negative, or NaN for an empty cell.")
    r, L = values.shape
    names = entries(range(r) if rows is None else rows, "rows", r, "one for each row of A")
    highest = (float(known.max()) or 1.0) if top is None else check_positive(top, "top")
    parts = {} if groups is None else {key: _columns(span, key, L) for key, span in groups.items()}
    ax = axes_or_new(ax)
    norm, colors = Normalize(0.0, highest), _colors()
    ax.imshow(values, cmap=colors, norm=norm, aspect="auto", interpolation="nearest")
    shown = np.unique(np.linspace(0, r - 1, min(r, ROWS)).round().astype(int))
    ax.set_yticks(shown, [str(names[k]) for k in shown])
    ax.grid(visible=False)
    if parts:
        ax.set_xticks([(first + end - 1) / 2 for first, end in parts.values()], list(parts))
        ax.tick_params(axis="x", length=0)
        for edge in sorted({e for span in parts.values() for e in span} - {0, L}):
            ax.axvline(edge - 0.5, color=INK, linewidth=0.9, linestyle=":")
    if label:
        _bar(ax, ScalarMappable(norm, colors), label, bool((known > highest).any()))
    return ax


def _columns(span: tuple[int, int], key: str, L: int) -> tuple[int, int]:
    first, end = as_float(
        entries(span, f"groups[{key!r}]", 2, "first column and the one after the last"), key
    )
    if not (0 <= first < end <= L and first == int(first) and end == int(end)):
        raise ShapeError(
            f"groups[{key!r}] must lie in the {L} columns of A, from 0 to {L}, got {tuple(span)}."
        )
    return int(first), int(end)


def _bar(ax: Axes, mappable: ScalarMappable, label: str, beyond: bool) -> None:
    figure = ax.get_figure()
    bar = figure.colorbar(mappable, ax=ax, extend="max" if beyond else "neither", pad=0.02)
    bar.set_label(label, color=INK)
    bar.ax.tick_params(labelsize=9, color=INK, labelcolor=INK, width=0.8)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    bar.outline.set_visible(False)
