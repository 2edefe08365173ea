"""Scan and snap: attention and decoder trained on the population of infinitely long sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svmlib import plot, scansnap
from svmlib.errors import DataError, ShapeError

from .live import LiveFigure


class ScanAndSnap(LiveFigure):
    r"""Attention of classes of sequences while decoder and attention learn at two rates.

    Raises
    ------
    DataError
        If a field is unknown, or a value is no number, no option or out of bounds.
    ShapeError
        If an array has the wrong shape, or arrays do not fit each other.

    Notes
    -----
    Fields of the state, all of them keyword arguments. ``preset``: "transition", "syn-small", "fast-decoder"
    or "growing". Frequencies of ``common`` tokens (C, m) and of each class's ``own`` tokens (C, k), the size
    of the ``vocabulary``, ``oneQuery`` for all classes or one each; ``decoderRate``, ``attentionRate``,
    ``momentum`` and ``steps``; the class ``shown``, from 1.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.widgets.ScanAndSnap(preset="growing").process()
    TokenProcess(2 classes, 10 tokens, 3 of them common, 1 query tokens)
    """

    figure = "scan_and_snap"

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        common, own = state["common"], state["own"]
        for name, rows in (("common", common), ("own", own)):
            if len({len(row) for row in rows}) > 1 or len(rows) != len(own):
                raise ShapeError(
                    f"{name} must have {len(own)} rows of one length, one for each class of own, "
                    f"got lengths {[len(row) for row in rows]}."
                )
        if min(map(min, own)) <= 0:
            raise DataError("own must hold positive frequencies: leave out tokens that never occur.")
        needed = len(common[0]) + len(own) * len(own[0]) + len(own) + (1 if state["oneQuery"] else len(own))
        if state["vocabulary"] < needed:
            raise DataError(f"vocabulary is {state['vocabulary']}, but these classes need {needed} tokens.")
        if state["shown"] > len(own):
            raise DataError(f"shown must be one of the {len(own)} classes, got {state['shown']}.")
        return state

    def process(self) -> scansnap.TokenProcess:
        """Return the classes that the figure shows.

        Returns
        -------
        TokenProcess
            Common tokens first, then those of each class, queries and next tokens.
        """
        s = self.state
        C, k, m = len(s["own"]), len(s["own"][0]), len(s["common"][0])
        P = np.zeros((C, s["vocabulary"]))
        P[:, :m] = s["common"]
        for c, row in enumerate(s["own"]):
            P[c, m + c * k : m + (c + 1) * k] = row
        first, queries = m + C * k, 1 if s["oneQuery"] else C
        query = first + np.arange(C) % queries if queries > 1 else np.full(C, first)
        return scansnap.TokenProcess(P, query, first + queries + np.arange(C))

    def simulate(self) -> scansnap.ScanRun:
        """Train as the figure does.

        Returns
        -------
        ScanRun
            Records at 80 steps.
        """
        s = self.state
        return scansnap.simulate(
            self.process(),
            s["decoderRate"],
            s["attentionRate"],
            s["steps"],
            momentum=s["momentum"],
            record=80,
        )

    def picture(self) -> Figure:
        """Draw attention at the start and at the end, over time, and its entropy.

        Returns
        -------
        Figure
            Three panels.
        """
        process, run, c = self.process(), self.simulate(), self.state["shown"] - 1
        s = run.s[0, :, c]
        mine = np.flatnonzero(process.P[c] > 0)
        order = mine[np.argsort(s[-1, mine])][-14:]
        fig, axes = plot.figure(3, height=3.2)
        shade = [plot.COLORS["token" if process.common[t] else "opt"] for t in order]
        axes[0].barh(range(len(order)), s[-1, order], color=shade)
        axes[0].plot(s[0, order], range(len(order)), "|", color=plot.COLORS["guide"], ms=9)
        axes[0].set(yticks=[], title="attention", xlabel="bar: end; tick: start")
        steps = np.maximum(run.steps, 0.7)
        for t in mine:
            color = "token" if process.common[t] else "opt"
            plot.curve(steps, s[:, t], color=color, marker="", ax=axes[1])
        axes[1].set(xscale="log", xlabel="step", title="over time")
        entropy = scansnap.distinct_entropy(process, run.s[0])[:, c]
        plot.curve(steps, entropy, color="plain", ax=axes[2])
        plot.curve(steps, scansnap.common_mass(process, run.s[0])[:, c], color="token", ax=axes[2])
        rate = self.state["decoderRate"] / (1 - self.state["momentum"])
        axes[2].axvline(float(scansnap.transition(process.M, process.C, rate)), color=plot.COLORS["guide"])
        axes[2].set(xscale="log", xlabel="step", title="entropy; common share", ylim=(0, None))
        return fig
