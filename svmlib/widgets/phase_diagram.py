"""The phase diagram of global convergence in the plane, counted by Python, with instances to open."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets
from matplotlib.figure import Figure

from svmlib import experiments, plot

from .live import LiveFigure

FATES = ("global", "local", "open")


def _example(cell: Any) -> dict[str, Any] | None:
    if np.isnan(cell).all():
        return None
    there = ~np.isnan(cell[..., 0])
    n, T = int(there.any(1).sum()), int(there.any(0).sum())
    part = cell[:n, :T]
    return {"X": part[..., :2].tolist(), "z": part[:, 0, 2:4].tolist(), "scores": part[..., 4].tolist()}


class PhaseDiagram(LiveFigure):
    """Shares of global, local and unsaturated runs over the numbers of sequences and tokens in the plane.

    Parameters
    ----------
    page : str
        Address of the page whose token plane opens an instance, relative to the page of this figure.
    **values : object
        Fields of the state.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "W" or "KQ"; ``which`` is trained, the
    ``fate`` whose share is shown ("global", "local", "open" or "feasible"), and the cell (``n``, ``T``).
    Numbers come from the record of :func:`svmlib.experiments.beyond_planar_phase`.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.PhaseDiagram().table["trials"]
    200
    """

    figure = "phase_diagram"
    table = traitlets.Dict().tag(sync=True)

    def __init__(self, page: str = "../implicit_bias/descent.html", **values: Any) -> None:
        super().__init__(**values)
        found = experiments.stored("beyond_planar_phase")

        def percent(a: Any) -> list[list[float]]:
            return (100 * np.asarray(a).mean(-1)).round(1).tolist()  # type: ignore[no-any-return]

        self.table = {
            "page": page,
            "trials": found.trials,
            "sequences": found["sequences"].tolist(),
            "tokens": found["tokens"].tolist(),
            "feasible": percent(found["feasible"]),
            **{w: {f: percent(found[w] == k) for k, f in enumerate(FATES)} for w in ("W", "KQ")},
            "examples": [
                [{f: _example(cell[k]) for k, f in enumerate(FATES)} for cell in row]
                for row in found["examples"]
            ],
        }

    def picture(self) -> Figure:
        """Draw the shares of global runs of both trainings.

        Returns
        -------
        Figure
            Two panels.
        """
        fig, axes = plot.figure(2, height=2.4)
        for ax, which, title in zip(axes, ("W", "KQ"), ("$W$", "$(K, Q)$"), strict=True):
            plot.matrix(np.array(self.table[which]["global"]), digits=0, ax=ax)
            ax.set_yticks(range(len(self.table["sequences"])), [str(n) for n in self.table["sequences"]])
            ax.set_xticks(range(len(self.table["tokens"])), [str(T) for T in self.table["tokens"]])
            ax.set(xlabel="tokens $T$", ylabel="sequences $n$", title=title)
        return fig
