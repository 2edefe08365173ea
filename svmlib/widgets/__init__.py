"""Panels that recompute while the reader changes them: they run where a Python kernel runs."""

from __future__ import annotations

from .scanning import StaticScanningPanel, scanning_panel
from .trajectories import StaticPanel, trajectory_panel

__all__ = ["StaticPanel", "StaticScanningPanel", "scanning_panel", "trajectory_panel"]
