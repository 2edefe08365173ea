"""Panels that recompute while the reader changes them: they run where a Python kernel runs."""

from __future__ import annotations

from .trajectories import StaticPanel, trajectory_panel

__all__ = ["StaticPanel", "trajectory_panel"]
