r"""Scan and Snap: how a decoder and one attention layer learn to predict the next token.

Sequences carry no positions, so attention by *token type* is all there is to it; in the long-sequence limit
it is a function of the frequencies and of the query token's attention logits (*Scan and Snap* 2023).
"""

from __future__ import annotations

from .decoder import SymmetricDecoder, decompose, peak, residual_time, symmetric_decoder
from .flow import ScanFlow, flow
from .layer import Gradients, attention, features, gradients, loss
from .predictions import (
    accumulated_speed,
    best_rate,
    log_growth,
    progress,
    progress_steps,
    speed,
    suppression,
    transition,
)
from .process import TokenProcess, symmetric, syn_medium, syn_small
from .reduced import ReducedFlow, force, reduced_flow, velocity
from .scanning import SymmetricPath, growth_constant, growth_curve, log_steps, symmetric_path
from .simulate import ScanRun, simulate
from .snapping import Snapping, symmetric_flow, symmetric_growth
from .statistics import common_mass, distinct_entropy, recall

__all__ = [
    "Gradients",
    "ReducedFlow",
    "ScanFlow",
    "ScanRun",
    "Snapping",
    "SymmetricDecoder",
    "SymmetricPath",
    "TokenProcess",
    "accumulated_speed",
    "attention",
    "best_rate",
    "common_mass",
    "decompose",
    "distinct_entropy",
    "features",
    "flow",
    "force",
    "gradients",
    "growth_constant",
    "growth_curve",
    "log_growth",
    "log_steps",
    "loss",
    "peak",
    "progress",
    "progress_steps",
    "recall",
    "reduced_flow",
    "residual_time",
    "simulate",
    "speed",
    "suppression",
    "symmetric",
    "symmetric_decoder",
    "symmetric_flow",
    "symmetric_growth",
    "symmetric_path",
    "syn_medium",
    "syn_small",
    "transition",
    "velocity",
]
