"""Priority graphs: tokens at their heights, arrows from the token with priority to the other."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, FancyArrowPatch
from numpy.typing import ArrayLike

from svmlib import graphs
from svmlib.arrays import FloatArray, IntArray, as_float
from svmlib.errors import ShapeError

from ._arguments import entries
from .style import COLORS, INK, axes_or_new

__all__ = ["priority_graph"]

SIZE = 15  # points: radius of a token's disc, at which arrows end


def priority_graph(edges: ArrayLike, *, names: list[str] | None = None, ax: Axes | None = None) -> Axes:
    """Draw one token-priority graph, tokens with priority above.

    Edges between components are solid, those inside a component dashed and bent, and each component of
    several tokens is shaded. Tokens without an edge are left out.

    Parameters
    ----------
    edges : array_like of bool, shape (V, V)
        ``edges[a, b]`` is True where token a has priority over token b.
    names : list of str, optional
        Names of the tokens; 1 to V by default.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If ``edges`` is not square, has no edge, or the names do not fit.
    DataError
        If ``edges`` is not boolean.
    """
    flags = as_float(edges, "edges", ndim=2)
    component, height, strict = graphs.components(flags), graphs.levels(flags), graphs.strict(flags)
    V = len(component)
    labels = (
        [str(a + 1) for a in range(V)] if names is None else entries(names, "names", V, "one for a token")
    )
    if (component < 0).all():
        raise ShapeError("edges holds no edge between different tokens: there is nothing to draw.")
    at = _places(component, height)
    ax = axes_or_new(ax)
    for c in range(component.max() + 1):
        members = at[component == c]
        if len(members) > 1:
            middle, width = members.mean(0), float(np.ptp(members[:, 0])) + 1.0
            ax.add_patch(Ellipse(middle, width, 0.62, facecolor="#EFE3EE", edgecolor="none", zorder=0))
    for a, b in np.argwhere(flags > 0):
        if a == b:
            continue
        inside = not strict[a, b]
        # a token between the two would hide a straight arrow
        bend = 0.28 if inside or abs(height[a] - height[b]) > 1 else 0.0
        ax.add_patch(
            FancyArrowPatch(
                tuple(at[a]),
                tuple(at[b]),
                arrowstyle="-|>",
                mutation_scale=13,
                connectionstyle=f"arc3,rad={bend}",
                shrinkA=SIZE,
                shrinkB=SIZE,
                color=COLORS["support"] if inside else COLORS["opt"],
                linestyle=(0, (4, 1.6)) if inside else "-",
                linewidth=1.5,
                zorder=1,
            )
        )
    for a in np.flatnonzero(component >= 0):
        ax.plot(*at[a], "o", markersize=2 * SIZE - 7, color="white", markeredgecolor=INK, zorder=2)
        ax.annotate(labels[a], tuple(at[a]), ha="center", va="center", color=INK, fontsize=11, zorder=3)
    shown = at[component >= 0]
    ax.set_xlim(shown[:, 0].min() - 0.8, shown[:, 0].max() + 0.8)
    ax.set_ylim(shown[:, 1].min() - 0.5, shown[:, 1].max() + 0.5)
    ax.set_axis_off()
    return ax


def _places(component: IntArray, height: IntArray) -> FloatArray:
    """(V, 2) positions: height upwards, the tokens of a height side by side, components together."""
    at = np.zeros((len(component), 2))
    for h in np.unique(height[component >= 0]):
        row = np.flatnonzero((component >= 0) & (height == h))
        row = row[np.argsort(component[row], kind="stable")]
        at[row, 0] = 1.3 * (np.arange(len(row)) - (len(row) - 1) / 2)
        at[row, 1] = h
    return at
