"""Composition: one head with a dial, the sparsemax it asks for, and the attention that training finds."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svmlib import plot
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, probabilities, quadratic, sparsemax
from svmlib.data import Problem
from svmlib.dynamics import Run, gradient_descent, normalized, train
from svmlib.errors import ShapeError

from .live import LiveFigure


class Composition(LiveFigure):
    r"""Training before the head :math:`v^\top u-\lambda\|u\|^2`, one sequence of orthonormal tokens.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "dial", "one", "all" or "waiting". The
    curvature ``lambda`` (write ``**{"lambda": 0.5}``), ``scores`` (T,), logits at the ``start`` (T,) or
    fewer, the rest being 0; ``rule``, ``rate`` and ``steps``.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.Composition(preset="all").best().round(3)
    array([0.338, 0.304, 0.221, 0.138])
    """

    figure = "composition"

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        if len(state["start"]) > len(state["scores"]):
            raise ShapeError(
                f"start must have at most {len(state['scores'])} logits, one for each token of scores, "
                f"got {len(state['start'])}."
            )
        return state

    def best(self) -> FloatArray:
        """Return the attention that the head asks for.

        Returns
        -------
        ndarray, shape (T,)
            The sparsemax of the scores over twice the curvature.
        """
        return sparsemax(np.array(self.state["scores"]) / (2 * self.state["lambda"]))

    def train(self) -> tuple[Problem, Run]:
        """Train as the figure does.

        Returns
        -------
        Problem
            One sequence of T orthonormal tokens.
        Run
            With 80 records.
        """
        s = self.state
        T = len(s["scores"])
        head = quadratic(s["scores"], s["lambda"])
        p = Problem(np.eye(T)[None], np.ones((1, 1)), np.ones(1), head=head)
        start = np.zeros((T, 1))
        start[: len(s["start"]), 0] = s["start"]
        rule = normalized(s["rate"]) if s["rule"] == "normalised" else gradient_descent(s["rate"])
        return p, train(p, Direct(start), rule, s["steps"], record=80)

    def picture(self) -> Figure:
        """Draw trained attention beside the sparsemax, logits over time, and the dial.

        Returns
        -------
        Figure
            Three panels.
        """
        p, run = self.train()
        best, trained = self.best(), probabilities(p, run.W[-1])[0]
        T, kept = len(best), best > 0
        fig, axes = plot.figure(3, height=2.8)
        axes[0].bar(range(1, T + 1), trained, color=[plot.COLORS["W" if k else "token"] for k in kept])
        axes[0].plot(range(1, T + 1), best, "_", color=plot.COLORS["KQ"], ms=18, mew=2)
        axes[0].set(title="attention", xlabel="token")
        logits = run.W[..., 0] - run.W[:, kept, 0].mean(1, keepdims=True)
        for t in range(T):
            color = "W" if kept[t] else "token"
            plot.curve(np.maximum(run.steps, 0.7), logits[:, t], color=color, marker="", ax=axes[1])
        axes[1].set(xscale="log", xlabel="step", title="logits")
        dials = np.geomspace(0.01, 10, 100)
        rows = sparsemax(np.array(self.state["scores"]) / (2 * dials[:, None]))
        for t in range(T):
            plot.curve(dials, rows[:, t], color="KQ", marker="", ax=axes[2])
            axes[2].plot(self.state["lambda"], trained[t], "o", color=plot.COLORS["W"])
        axes[2].set(xscale="log", xlabel="curvature", title="the dial")
        return fig
