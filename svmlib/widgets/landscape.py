"""The landscape of one query: the loss, its flat points, and which tokens each start ends up with."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svmlib import data, plot, svm
from svmlib.arrays import FloatArray, IntArray
from svmlib.attention import Direct
from svmlib.dynamics import Run, gap, gradient_descent, normalized, train
from svmlib.errors import InfeasibleError, ShapeError

from .live import LiveFigure

GRID, FAR, STEPS = 41, 0.05, 2000


class Landscape(LiveFigure):
    r"""The loss over p in the plane, for keys that one query reads.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape, or arrays do not fit each other.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "wrong-limit", "saddle", "minimum",
    "between" or "one". Keys ``X`` (n, T, 2), whose T may differ, their ``scores`` (n, T), the ``start`` (2,)
    of the path, its ``rule``, ``rate``, ``steps`` and ``loss``; ``reach``, half the width that is shown; the
    ``cone`` about the SVM's direction; ``basins`` says whether starts are coloured by where they end.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.Landscape().train().selected  # the first sequence keeps its worse token
    array([0, 1])
    """

    figure = "landscape"

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        sizes = [len(x) for x in state["X"]]
        if [len(s) for s in state["scores"]] != sizes:
            raise ShapeError(
                f"scores must have one number for each token of X: {sizes} numbers a sequence, "
                f"got {[len(s) for s in state['scores']]}."
            )
        return state

    def problem(self) -> data.Problem:
        """Return the data that the figure shows.

        Returns
        -------
        Problem
            With the tokens as keys, and scores as what the head reads.
        """
        s = self.state
        n, T = len(s["X"]), max(len(x) for x in s["X"])
        keys, scores, mask = np.zeros((n, T, 2)), np.zeros((n, T)), np.zeros((n, T), bool)
        for i, tokens in enumerate(s["X"]):
            k = len(tokens)
            keys[i, :k], scores[i, :k], mask[i, :k] = tokens, s["scores"][i], True
        return data.prompt_problem(keys, scores, mask=mask)

    def train(self) -> Run:
        """Train from the start that is shown.

        Returns
        -------
        Run
            With p as a matrix of one column.
        """
        s = self.state
        rule = normalized(s["rate"]) if s["rule"] == "normalised" else gradient_descent(s["rate"])
        start = Direct(np.array(s["start"], float)[:, None])
        return train(self.problem(), start, rule, s["steps"], loss=s["loss"], record=200)

    def ends(self) -> tuple[FloatArray, IntArray]:
        """Train from a grid of starts, all at once.

        Returns
        -------
        starts : ndarray, shape (1681, 2)
            Starts, row by row from the top.
        selected : ndarray of int, shape (1681, n)
            Tokens in the end; -1 where attention is not saturated.
        """
        reach = self.state["reach"]
        side = np.linspace(-reach, reach, GRID)
        starts = np.stack(np.meshgrid(side, side[::-1]), -1).reshape(-1, 2)
        p = self.problem()
        many = data.Problem(
            np.broadcast_to(p.X, (len(starts), *p.X.shape)), p.z, p.y, p.v, keys=p.keys, mask=p.mask
        )
        run = train(
            many, Direct(starts[..., None]), normalized(FAR), STEPS, loss=self.state["loss"], record=1
        )
        sure = run.top_probability[:, -1].min(-1) > 0.99
        return starts, np.where(sure[:, None], run.top_token[:, -1], -1)

    def picture(self) -> Figure:
        """Draw the loss with a path, and the starts by where they end.

        Returns
        -------
        Figure
            Two panels.
        """
        p, reach = self.problem(), self.state["reach"]
        side = np.linspace(-reach, reach, 81)
        grid = np.stack(np.meshgrid(side, side[::-1]), -1)
        values = gap(
            data.Problem(np.broadcast_to(p.X, (81, 81, *p.X.shape)), p.z, p.y, p.v, keys=p.keys, mask=p.mask),
            grid[..., None],
            self.state["loss"],
        )
        run = self.train()
        fig, axes = plot.figure(2, height=3.2)
        box = (-reach, reach, -reach, reach)
        axes[0].contourf(side, side[::-1], values, 12, cmap="Blues")
        names, index = np.unique(self.ends()[1], axis=0, return_inverse=True)
        axes[1].imshow(index.reshape(GRID, GRID), cmap="Set2", extent=box, vmin=0, vmax=max(7, len(names)))
        for ax in axes:
            ax.plot(*run.W[:, :, 0].T, color=plot.COLORS["W"])
            ax.plot(*self.state["start"], "D", color=plot.COLORS["query"])
            try:
                direction = svm.attention_svm(p).W
            except InfeasibleError:
                pass
            else:
                plot.rays(np.c_[direction, direction * 0], np.array([[1.0, 0.0]]), ax=ax)
            ax.set(xlim=box[:2], ylim=box[2:], aspect="equal")
        axes[0].set_title("loss and a path")
        axes[1].set_title("where starts end")
        return fig
