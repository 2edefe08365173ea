"""The regularisation path: a radius to slide, and the solutions on both balls."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from svmlib import attention, compare, plot, svm
from svmlib.dynamics import Path, regularization_path
from svmlib.errors import InfeasibleError

from ._planar import PlanarFigure


class RegularisationPath(PlanarFigure):
    r"""The loss minimised over balls of the Frobenius and of the nuclear norm.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape, or arrays do not fit each other.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "planar-1", "planar-2" or "local".
    The ``radius`` in units of the SVM's norm, the ``loss``, and the instance: tokens ``X``
    (n, T, 2), queries ``z`` (n, 2), the head ``v`` (2,) or, with ``scoring="own"``, ``scores`` (n, T).

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.RegularisationPath(radius=10).path("fro", [10.0]).W.shape
    (1, 2, 2)
    """

    figure = "regularisation_path"

    def _unit(self, norm: str) -> float:
        try:
            return float(svm.attention_svm(self.problem(), norm=norm).value)
        except InfeasibleError:
            return 1.0

    def path(self, norm: str, radii: list[float]) -> Path:
        """Minimise the loss over balls.

        Parameters
        ----------
        norm : str
            "fro" or "nuc".
        radii : list of float
            Radii in units of the SVM's norm, or as they are where there is no SVM.

        Returns
        -------
        Path
            Minimisers.
        """
        sizes = self._unit(norm) * np.asarray(radii, float)
        return regularization_path(self.problem(), sizes, norm=norm, loss=self.state["loss"])

    def picture(self) -> Figure:
        """Draw attention at the radius, and the distance from the SVM along the path.

        Returns
        -------
        Figure
            Two panels.
        """
        p, radius = self.problem(), self.state["radius"]
        radii = sorted({radius, *np.geomspace(0.1, 100, 13)})
        fig, axes = plot.figure(2, height=3.0)
        for name, norm in (("W", "fro"), ("KQ", "nuc")):
            path = self.path(norm, radii)
            s = attention.probabilities(p, path.W[radii.index(radius)])
            x = np.concatenate([np.arange(len(row)) + i * (len(row) + 1) for i, row in enumerate(s)])
            shift = -0.2 if name == "W" else 0.2
            axes[0].bar(x + shift, s.ravel(), width=0.4, color=plot.COLORS[name])
            try:
                solution = svm.attention_svm(p, norm=norm).W
            except InfeasibleError:
                continue
            away = np.maximum(1 - compare.correlation(path.W, solution), 1e-12)
            plot.curve(radii, away, color=name, ax=axes[1])
        axes[0].set(title="attention at the radius", xticks=[])
        axes[1].set(xscale="log", yscale="log", xlabel="radius over the SVM's norm", title="1 − correlation")
        return fig
