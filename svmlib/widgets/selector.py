"""Softmax as a selector: a direction, a norm, and what attention makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svmlib import plot
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, probabilities
from svmlib.data import Problem
from svmlib.errors import DataError

from .live import LiveFigure


class Selector(LiveFigure):
    r"""Attention :math:`\mathbb S(Xp)` of tokens in the plane, for a direction and a norm of p.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "front", "tie" or "middle". Tokens ``X``
    (T, 2), the ``good`` one, from 1, the ``angle`` of p in degrees and its ``norm``.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.Selector(norm=100).probabilities().round(3)
    array([1., 0., 0., 0., 0.])
    """

    figure = "selector"

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        if state["good"] > len(state["X"]):
            raise DataError(f"good must be one of the {len(state['X'])} tokens, got {state['good']}.")
        return state

    def probabilities(self, norm: float | None = None) -> FloatArray:
        """Compute what the tokens get.

        Parameters
        ----------
        norm : float, optional
            Norm of p, by default that of the state.

        Returns
        -------
        ndarray, shape (T,)
            Attention probabilities.
        """
        s = self.state
        angle = np.deg2rad(s["angle"])
        p = (s["norm"] if norm is None else norm) * np.array([np.cos(angle), np.sin(angle)])
        problem = Problem(np.array([s["X"]]), np.ones((1, 1)), np.ones(1), np.zeros(2))
        return np.asarray(probabilities(problem, Direct(p[:, None]))[0])

    def picture(self) -> Figure:
        """Draw tokens with p, attention, and attention against the norm.

        Returns
        -------
        Figure
            Three panels.
        """
        s = self.state
        X, good, angle = np.array(s["X"]), s["good"] - 1, np.deg2rad(s["angle"])
        p = np.array([np.cos(angle), np.sin(angle)])
        fig, axes = plot.figure(3, height=2.8)
        axes[0].plot(*X.T, "o", color=plot.COLORS["token"])
        axes[0].plot(*X[good], "*", color=plot.COLORS["opt"], ms=11)
        axes[0].annotate("", p, (0, 0), arrowprops={"arrowstyle": "->", "color": plot.COLORS["query"]})
        axes[0].axline(X[good], X[good] + [-p[1], p[0]], color=plot.COLORS["opt"], lw=0.8)
        axes[0].set(title="tokens and p", aspect="equal")
        plot.bars(self.probabilities(), highlight=good, ax=axes[1])
        axes[1].set_title("attention")
        norms = np.geomspace(0.1, 1000, 80)
        rows = np.array([self.probabilities(norm) for norm in norms])
        for t in range(len(X)):
            curve = np.where(rows[:, t] > 1e-8, rows[:, t], np.nan)
            plot.curve(norms, curve, color="opt" if t == good else "token", marker="", ax=axes[2])
        axes[2].set(xscale="log", yscale="log", xlabel="norm of p", title="hardening")
        return fig
