"""Figures that show an instance of sequences in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmlib import data
from svmlib.errors import ShapeError

from .live import LiveFigure


class PlanarFigure(LiveFigure):
    """A figure with fields ``X``, ``z``, ``v``, ``scoring`` and ``scores``."""

    @staticmethod
    def _consistent(state: dict[str, Any]) -> dict[str, Any]:
        X, z, scores = state["X"], state["z"], state["scores"]
        if len(z) != len(X):
            raise ShapeError(f"z must have one query for each of the {len(X)} sequences of X, got {len(z)}.")
        if state["scoring"] == "own" and [len(s) for s in scores] != [len(x) for x in X]:
            raise ShapeError(
                f"scores must have one number for each token: {[len(x) for x in X]} numbers a sequence, "
                f"got {[len(s) for s in scores]}."
            )
        return state

    def problem(self) -> data.Problem:
        """Return the data that the figure shows.

        Returns
        -------
        Problem
            With the tokens as keys; what the head reads is a token's score.
        """
        s = self.state
        n, T = len(s["X"]), max(len(x) for x in s["X"])
        keys, scores, mask = np.zeros((n, T, 2)), np.zeros((n, T)), np.zeros((n, T), bool)
        for i, tokens in enumerate(s["X"]):
            k = len(tokens)
            keys[i, :k], mask[i, :k] = tokens, True
            scores[i, :k] = s["scores"][i] if s["scoring"] == "own" else np.asarray(tokens) @ s["v"]
        return data.Problem(scores[..., None], s["z"], np.ones(n), np.ones(1), keys=keys, mask=mask)
