"""The token plane: drag tokens and queries, and watch where training turns."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from svmlib import compare, data, plot, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, Factored
from svmlib.dynamics import Run, gradient_descent, normalized, train
from svmlib.errors import InfeasibleError

from ._planar import PlanarFigure

OWN = {"W": "fro", "KQ": "nuc"}


class TokenPlane(PlanarFigure):
    r"""Sequences of tokens in the plane, paths of :math:`Wz_i` and :math:`KQ^\top z_i`, and the SVMs' rays.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape, or arrays do not fit each other.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "planar-1", "planar-2", "local",
    "wrong-limit" or "infeasible". Tokens ``X`` (n, T, 2), whose T may differ; queries ``z`` (n, 2); the head
    ``v`` (2,) or, with ``scoring="own"``, ``scores`` (n, T). What to ``show``: "W", "KQ" or "both". ``rule``,
    ``loss``, ``rate`` and ``steps``; ``tokens`` that the SVM separates, "selected" or "optimal"; the starts
    ``W0``, ``K0`` and ``Q0`` (2, 2).

    Examples
    --------
    >>> import svmlib as sv
    >>> figure = sv.widgets.TokenPlane(preset="planar-2", rate=0.05)
    >>> figure.state["steps"]
    2000
    """

    figure = "token_plane"

    def train(self) -> dict[str, Run]:
        """Train what the figure trains.

        Returns
        -------
        dict
            Runs by "W" and "KQ", with 400 records each.

        Raises
        ------
        SolverError
            If training leaves the finite numbers.
        """
        s, p = self.state, self.problem()
        rule = normalized(s["rate"]) if s["rule"] == "normalised" else gradient_descent(s["rate"])
        starts: dict[str, Direct | Factored] = {
            "W": Direct(np.asarray(s["W0"], float)),
            "KQ": Factored(np.asarray(s["K0"], float), np.asarray(s["Q0"], float)),
        }
        return {
            name: train(p, start, rule, s["steps"], loss=s["loss"], record=400)
            for name, start in starts.items()
            if s["show"] in ("both", name)
        }

    def picture(self) -> Figure:
        """Draw tokens, paths with the SVMs' rays, and the distance in direction.

        Returns
        -------
        Figure
            Three panels.
        """
        p, runs = self.problem(), self.train()
        solutions = {name: self._solved(p, run, OWN[name]) for name, run in runs.items()}
        fig, axes = plot.figure(3, height=2.9)
        plot.tokens(p, selected=next(iter(runs.values())).selected, queries=True, ax=axes[0])
        axes[0].set_title("tokens")
        plot.planar_paths(
            p,
            W=runs["W"].W if "W" in runs else None,
            KQ=runs["KQ"].W if "KQ" in runs else None,
            fro=solutions.get("W"),
            nuc=solutions.get("KQ"),
            log_radius=True,
            ax=axes[1],
        )
        axes[1].set_title("paths, log lengths")
        for name, W in solutions.items():
            if W is None:
                continue
            moving = runs[name].steps > 0
            away = np.maximum(1 - compare.correlation(runs[name].W[moving], W), 1e-16)
            plot.curve(runs[name].steps[moving], away, color=name, ax=axes[2])
        axes[2].set(xscale="log", yscale="log", xlabel="iteration", title="1 − correlation")
        return fig

    def _solved(self, p: data.Problem, run: Run, norm: str) -> FloatArray | None:
        tokens = run.selected if self.state["tokens"] == "selected" else p.optimal
        try:
            return svm.attention_svm(p, tokens, norm=norm).W
        except InfeasibleError:
            return None
