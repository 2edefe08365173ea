"""Pictures of margins: a separating line with the points nearest to it, also for the tokens of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from svmlib.arrays import as_float
from svmlib.errors import DataError

from ._arguments import entries, filled, number, position
from .plane import FAR, STAR, frame, planar, segment
from .style import COLORS, INK, axes_or_new, legend, style

if TYPE_CHECKING:
    from svmlib.data import Problem

__all__ = ["margin_picture", "token_margins"]


def margin_picture(
    X: ArrayLike,
    w: ArrayLike,
    b: float = 0.0,
    *,
    y: ArrayLike,
    support: ArrayLike | None = None,
    levels: tuple[float, float, float] = (-1.0, 0.0, 1.0),
    looks: tuple[str, str] = ("positive", "negative"),
    names: tuple[str, str] = ("class +1", "class −1"),
    ax: Axes | None = None,
) -> Axes:
    r"""Draw points in the plane, a separating line, its margins, and rings round the support vectors.

    The lines are the level sets of :math:`x\mapsto w^\top x+b`; the arrow is the margin between the
    separating line and the upper level.

    Parameters
    ----------
    X : array_like, shape (N, 2)
        Points.
    w : array_like, shape (2,)
        Normal of the line.
    b : float
        Offset.
    y : array_like, shape (N,)
        Signs: which points belong to which class.
    support : array_like of bool, shape (N,), optional
        Points with a ring.
    levels : three floats
        Lower margin, separating line, upper margin.
    looks, names : pair of str
        Meanings (colours and markers) and names of the two classes.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn, with equal scales.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If ``w`` is 0: it separates nothing; or if a label in ``y`` is 0.
    """
    points = filled(X, "X", "at least one point", ndim=2, last=(2,))
    normal = as_float(w, "w", ndim=1, last=(2,))
    sign = np.sign(as_float(y, "y", ndim=1, last=(len(points),), meaning="one label for each point of X"))
    if not sign.all():
        raise DataError(f"y must be +1 or -1, but entry {int(np.argmin(abs(sign)))} is 0: it names no class.")
    b = number(b, "b")
    heights = [number(at, "levels") for at in entries(levels, "levels", 3, "lower, middle and upper line")]
    classes = [style(look) for look in entries(looks, "looks", 2, "one for each class")]
    titles = entries(names, "names", 2, "one for each class")
    size = float(np.hypot(*normal))
    if size == 0:
        raise DataError("w is zero: it has no level lines to draw.")
    ax = axes_or_new(ax)
    for value, look, name in zip((1, -1), classes, titles, strict=True):
        marker, members = look.marker or "o", points[sign == value]
        ax.plot(
            *members.T,
            linestyle="none",
            marker=marker,
            color=look.color,
            markersize=13 if marker == STAR else 7,
            markeredgecolor="white",
            label=name if len(members) else None,
        )
    if support is not None:
        ring = as_float(
            support, "support", ndim=1, last=(len(points),), meaning="one for each point of X"
        ).astype(bool)
        circle = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": COLORS["support"]}
        ax.plot(
            *points[ring].T,
            linestyle="none",
            markersize=13,
            markeredgewidth=1.6,
            label="on the margin",
            **circle,
        )
    along = np.array([-normal[1], normal[0]]) / size
    middle = points.mean(axis=0)
    feet = [middle + (level - normal @ middle - b) / size * (normal / size) for level in heights]
    for foot, line in zip(feet, ((0, (4, 3)), "-", (0, (4, 3))), strict=True):
        segment(
            ax, foot - FAR * along, foot + FAR * along, color=INK, linestyle=line, linewidth=1.2, zorder=1.5
        )
    arrow = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", feet[2], feet[1], arrowprops=arrow)
    frame(ax, np.r_[points, feet])
    legend(ax, above=True)
    return ax


def token_margins(
    problem: Problem,
    W: ArrayLike,
    sequence: int,
    *,
    selected: ArrayLike | None = None,
    support: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw what the attention SVM asks of one sequence: :math:`Wz_i` puts its token 1 above the others.

    The upper line runs through the selected token, the lower one where scores :math:`x^\top Wz_i` are
    smaller by 1, and the separating line in the middle.

    Parameters
    ----------
    problem : Problem
        With d = 2.
    W : array_like, shape (2, 2)
        Attention weights.
    sequence : int
        Which sequence, from 0.
    selected : array_like of int, shape (n,), optional
        Selected tokens; the optimal ones by default.
    support : array_like of bool, shape (n, T), optional
        Tokens with a ring.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the problem is not planar, or sizes do not fit.
    DataError
        If ``problem`` is no Problem, or W z is 0.
    """
    planar(problem, "token_margins")
    sequence = position(sequence, "sequence", problem.n, "sequences")
    best = int(problem.checked_tokens(selected)[sequence])
    seen = problem.visible[sequence]
    q = as_float(W, "W", ndim=2, last=(2, problem.query_dim)) @ problem.z[sequence]
    if not q.any():
        raise DataError(f"W maps the query of sequence {sequence} to 0: it has no level lines to draw.")
    rings = (
        None
        if support is None
        else as_float(
            support,
            "support",
            ndim=2,
            last=(problem.n, problem.T),
            meaning="one for each token of the problem",
        )
    )
    return margin_picture(
        problem.keys[sequence][seen],
        q,
        0.5 - float(q @ problem.keys[sequence, best]),
        y=np.where(np.arange(problem.T) == best, 1.0, -1.0)[seen],
        support=None if rings is None else rings[sequence][seen],
        levels=(-0.5, 0.0, 0.5),
        looks=("opt", "token"),
        names=("selected token", "other tokens"),
        ax=ax,
    )
