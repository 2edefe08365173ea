"""Figures from arrays, in one style: a meaning has one colour, one dash and one marker in the whole book.

Functions draw on ``ax``, or on a new figure where it is left out, and return the axes:

>>> import svmlib as sv
>>> ax = sv.plot.curve([1, 10, 100], [1.0, 0.1, 0.01], color="W", label="$W$")
>>> sv.plot.power_guide(ax, -1)
>>> _ = ax.set(xscale="log", yscale="log", xlabel="iteration", ylabel="gap")
"""

from __future__ import annotations

from .cells import bars, matrix, shares
from .curves import band, curve, histogram, power_guide, scatter
from .heat import heat
from .margins import margin_picture, token_margins
from .plane import paths, planar_paths, rays, simplex, tokens
from .priority import priority_graph
from .style import COLORS, STYLES, Style, figure, legend, png

__all__ = [
    "COLORS",
    "STYLES",
    "Style",
    "band",
    "bars",
    "curve",
    "figure",
    "heat",
    "histogram",
    "legend",
    "margin_picture",
    "matrix",
    "paths",
    "planar_paths",
    "png",
    "power_guide",
    "priority_graph",
    "rays",
    "scatter",
    "shares",
    "simplex",
    "token_margins",
    "tokens",
]
