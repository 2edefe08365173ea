"""Figures that recompute while the reader changes them.

Live figures run in the page itself and in JupyterLab; panels run where a Python kernel runs.
"""

from __future__ import annotations

from .live import LiveFigure
from .scanning import StaticScanningPanel, scanning_panel
from .token_plane import TokenPlane

__all__ = [
    "LiveFigure",
    "StaticScanningPanel",
    "TokenPlane",
    "scanning_panel",
]
