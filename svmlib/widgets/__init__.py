"""Figures that recompute while the reader changes them.

Live figures run in the page itself and in JupyterLab; panels run where a Python kernel runs.
"""

from __future__ import annotations

from .composition import Composition
from .landscape import Landscape
from .live import LiveFigure
from .phase_diagram import PhaseDiagram
from .regularisation_path import RegularisationPath
from .scan_and_snap import ScanAndSnap
from .scanning import StaticScanningPanel, scanning_panel
from .selector import Selector
from .token_plane import TokenPlane

__all__ = [
    "Composition",
    "Landscape",
    "LiveFigure",
    "PhaseDiagram",
    "RegularisationPath",
    "ScanAndSnap",
    "Selector",
    "StaticScanningPanel",
    "TokenPlane",
    "scanning_panel",
]
