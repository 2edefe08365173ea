"""Pictures in the plane: tokens, paths of W z and the rays they turn to, the probability simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_integer
from svmlib.data import check_problem
from svmlib.errors import DataError, ShapeError

from ._arguments import entries, filled
from .style import COLORS, INK, axes_or_new, legend, style

if TYPE_CHECKING:
    from svmlib.data import Problem

__all__ = ["paths", "planar_paths", "rays", "simplex", "tokens"]

_SEQUENCE_MARKERS = "osD^vP"
FAR = 1e4  # a ray leaves every picture
STAR = "*"


def segment(ax: Axes, start: FloatArray, end: FloatArray, **line: Any) -> None:
    # an artist, unlike a plotted line, does not move the axes' limits
    ax.add_artist(Line2D([start[0], end[0]], [start[1], end[1]], **line))


def frame(ax: Axes, points: FloatArray) -> None:
    # one scale on both axes, and room for the points in a frame that is not flat
    low, high = points.min(axis=0), points.max(axis=0)
    half = np.maximum(high - low, 0.8 * (high - low).max()) / 2
    ax.update_datalim([(low + high) / 2 - half, (low + high) / 2 + half])
    ax.set_aspect("equal")
    ax.margins(0.1)


def planar(problem: Problem, what: str) -> None:
    check_problem(problem)
    if problem.key_dim != 2 or problem.batch_shape:
        raise ShapeError(
            f"{what} draws one problem with d=2, got d={problem.key_dim} and batch {problem.batch_shape}. "
            "Pick one with p[i], or project it first."
        )


def _name(
    ax: Axes, text: str, at: FloatArray, color: str, offset: tuple[float, float] = (5, 4), **place: Any
) -> None:
    look = {"color": color, "fontsize": 9, **place}
    ax.annotate(text, (at[0], at[1]), xytext=offset, textcoords="offset points", **look)


def tokens(
    problem: Problem,
    *,
    selected: ArrayLike | None = None,
    queries: bool = False,
    equal: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the tokens of a planar problem: one marker a sequence, a star where a token is selected.

    Where the problem has keys of its own, they are what is drawn.

    Parameters
    ----------
    problem : Problem
        With d = 2 and no batch axis.
    selected : array_like of int, shape (n,), optional
        Selected tokens; the optimal ones by default.
    queries : bool
        Whether the queries are drawn as arrows.
    equal : bool
        Whether both axes have one scale, so that angles are true.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the problem is not planar, or ``selected`` does not fit.
    DataError
        If ``problem`` is no Problem.
    """
    planar(problem, "tokens")
    stars = problem.checked_tokens(selected)
    ax = axes_or_new(ax)
    for i in range(problem.n):
        others = problem.visible[i].copy()
        others[stars[i]] = False
        x = problem.keys[i]
        ax.plot(
            *x[others].T,
            linestyle="none",
            marker=_SEQUENCE_MARKERS[i % len(_SEQUENCE_MARKERS)],
            color=COLORS["token"],
            markerfacecolor=COLORS["token"] if i % 2 == 0 else "white",
            markersize=6,
            label=f"tokens of sequence {i + 1}",
        )
    best = problem.keys[np.arange(problem.n), stars]
    star = "optimal token" if selected is None else "selected token"
    ax.plot(
        *best.T,
        linestyle="none",
        marker="*",
        color=COLORS["opt"],
        markersize=13,
        label=star,
        markeredgecolor="white",
    )
    for i, at in enumerate(best):
        _name(ax, str(i + 1), at, COLORS["opt"], (6, 5))
    if queries:
        look = {"arrowstyle": "-|>", "color": COLORS["query"], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        for i, z in enumerate(problem.z):
            ax.annotate("", z, (0, 0), arrowprops=look)
            beyond = 10 * z / (np.hypot(*z) or 1.0)
            _name(ax, f"$z_{{{i + 1}}}$", z, COLORS["query"], tuple(beyond), ha="center", va="center")
    if equal:
        frame(ax, np.r_[problem.keys[problem.visible], problem.z if queries else np.zeros((0, 2))])
    legend(ax, above=True)
    return ax


def paths(
    points: ArrayLike,
    *,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
    every: int | None = None,
    names: bool = False,
    log_radius: bool = False,
) -> Axes:
    r"""Draw planar paths, such as :math:`W(k)z_i`, with a marker every so many iterates.

    Parameters
    ----------
    points : array_like, shape (r, n, 2)
        r iterates of n paths.
    color, label, ax
        As for :func:`curve`.
    every : int, optional
        Iterates from marker to marker; about eight markers by default.
    names : bool
        Whether paths are numbered at their ends.
    log_radius : bool
        Whether a point at distance r from the origin is drawn at distance log(1 + r), in its own
        direction: rays stay rays, and a path that grows a thousandfold stays in the picture.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If ``points`` has another shape or no entry, or ``every`` is no positive integer.
    """
    p = filled(points, "points", "at least one iterate of one path", ndim=3, last=(2,))
    step = max(1, len(p) // 8) if every is None else check_integer(every, "every")
    if log_radius:
        length = np.hypot(p[..., 0], p[..., 1])[..., None]
        p = p * (np.log1p(length) / np.where(length > 0, length, 1.0))
    ax = axes_or_new(ax)
    look = style(color)
    for i in range(p.shape[1]):
        ax.plot(
            *p[:, i].T,
            color=look.color,
            linestyle=look.dash,
            linewidth=1.8,
            marker=look.marker,
            markersize=4.5,
            markevery=step,
            label=label if i == 0 else None,
        )
        if names:
            _name(ax, str(i + 1), p[-1, i], look.color)
    legend(ax, above=True)
    return ax


def rays(
    W: ArrayLike, z: ArrayLike, *, color: str = "fro", label: str | None = None, ax: Axes | None = None
) -> Axes:
    r"""Draw the half-lines from the origin through :math:`Wz_i`, without moving the limits of the axes.

    Parameters
    ----------
    W : array_like, shape (2, 2)
        A solution of the attention SVM.
    z : array_like, shape (n, 2)
        Queries.
    color, label, ax
        As for :func:`curve`.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the shapes are others.
    """
    directions = as_float(z, "z", ndim=2, last=(2,)) @ as_float(W, "W", ndim=2, last=(2, 2)).T
    ax = axes_or_new(ax)
    look = style(color)
    for i, q in enumerate(directions):
        length = np.hypot(*q)
        if length > 0:
            options = {"color": look.color, "linestyle": look.dash, "linewidth": 1.4, "zorder": 1.5}
            segment(ax, np.zeros(2), FAR * q / length, label=label if i == 0 else None, **options)
    legend(ax, above=True)
    return ax


def planar_paths(
    problem: Problem,
    *,
    W: ArrayLike | None = None,
    KQ: ArrayLike | None = None,
    fro: ArrayLike | None = None,
    nuc: ArrayLike | None = None,
    every: tuple[int | None, int | None] = (None, None),
    show_tokens: bool = False,
    log_radius: bool = False,
    ax: Axes | None = None,
) -> Axes:
    r"""Draw how the queries' images turn to the rays of the SVMs, in the plane.

    Parameters
    ----------
    problem : Problem
        With d = 2.
    W, KQ : array_like, shape (r, 2, 2), optional
        Iterates of :math:`W` (solid) and of :math:`KQ^\top` (dashed).
    fro, nuc : array_like, shape (2, 2), optional
        Solutions of the SVM in the Frobenius and the nuclear norm.
    every : pair of int, optional
        Iterates from marker to marker on the paths of W and of (K, Q).
    show_tokens : bool
        Whether tokens are drawn too.
    log_radius : bool
        Whether distances from the origin are on a logarithmic scale, see :func:`paths`; circles then
        show the lengths 1, 10, 100, ...
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        Where it was drawn.

    Raises
    ------
    ShapeError
        If the problem is not planar, a matrix is not 2 x 2, there are no iterates, or ``every`` is no pair.
    DataError
        If ``problem`` is no Problem, or tokens are asked for on a logarithmic scale, which would move them.
    """
    planar(problem, "planar_paths")
    if show_tokens and log_radius:
        raise DataError("Tokens have no place on a logarithmic radius; leave out show_tokens or log_radius.")
    markers = entries(every, "every", 2, "for the paths of W and of (K, Q), each a positive integer or None")
    ax = axes_or_new(ax)
    if show_tokens:
        tokens(problem, equal=False, ax=ax)
    for matrix, color, label in ((fro, "fro", "Frobenius SVM"), (nuc, "nuc", "nuclear SVM")):
        if matrix is not None:
            rays(as_float(matrix, color), problem.z, color=color, label=label, ax=ax)
    longest = 0.0
    for iterates, color, label, step in (
        (W, "W", "$W(k)z_i$", markers[0]),
        (KQ, "KQ", "$K(k)Q(k)^\\top z_i$", markers[1]),
    ):
        if iterates is not None:
            matrices = filled(iterates, color, "at least one iterate", ndim=3, last=(2, 2))
            images = np.einsum("rab,nb->rna", matrices, problem.z)
            longest = max(longest, float(np.hypot(images[..., 0], images[..., 1]).max()))
            paths(images, color=color, label=label, every=step, names=True, log_radius=log_radius, ax=ax)
    if log_radius:
        _circles(ax, longest)
    return ax


def _circles(ax: Axes, longest: float) -> None:
    """Circles of radius log(1 + 10^k), in place of the axes' ticks."""
    top = int(np.log10(max(longest, 1.0)))
    for k in range(top + 1):
        radius = np.log1p(10.0**k)
        ax.add_artist(Circle((0, 0), radius, fill=False, edgecolor="#CFCFCF", linewidth=0.8, zorder=0.5))
        at = radius * np.array([np.sqrt(0.5), -np.sqrt(0.5)])
        _name(ax, f"{'length ' if k == top else ''}$10^{k}$", at, "#666666", (2, -2), va="top", fontsize=8)
    limit = 1.06 * np.log1p(max(longest, 1.0))
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)


def simplex(
    P: ArrayLike,
    *,
    color: str = "W",
    label: str | None = None,
    ax: Axes | None = None,
    names: tuple[str, str, str] = ("token 1", "token 2", "token 3"),
) -> Axes:
    """Draw a path of distributions over three tokens in their triangle; a corner is one token chosen.

    Parameters
    ----------
    P : array_like, shape (r, 3)
        Probabilities, rows that sum to 1.
    color, label, ax
        As for :func:`curve`.
    names : three str
        Names of the corners.

    Returns
    -------
    Axes
        Where it was drawn, without ticks.

    Raises
    ------
    ShapeError
        If ``P`` has another shape or no row, or there are not three names.
    DataError
        If a row is no distribution.
    """
    p = filled(P, "P", "at least one distribution", ndim=2, last=(3,))
    titles = entries(names, "names", 3, "one for each corner")
    sums = p.sum(axis=1)
    if (p < 0).any() or not np.allclose(sums, 1.0, atol=1e-9):
        worst = int(np.argmax(np.abs(sums - 1.0)))
        raise DataError(
            f"P must have non-negative rows that sum to 1; row {worst} sums to {sums[worst]:.6g}."
        )
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3.0) / 2.0]])
    fresh = ax is None or not ax.lines
    ax = axes_or_new(ax)
    if fresh:
        ax.fill(*corners.T, facecolor="none", edgecolor=INK, linewidth=1.0)
        for corner, name, place in zip(corners, titles, ((0, -14), (0, -14), (0, 6)), strict=True):
            ax.annotate(
                name, corner, xytext=place, textcoords="offset points", ha="center", color=INK, fontsize=9
            )
        ax.set_aspect("equal")
        ax.margins(0.12)
        ax.set_axis_off()
    paths((p @ corners)[:, None, :], color=color, label=label, ax=ax)
    return ax
