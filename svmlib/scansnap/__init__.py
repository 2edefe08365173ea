r"""Scan and Snap: how a decoder and one attention layer learn to predict the next token.

Sequences carry no positions, so attention by *token type* is all there is to it; in the long-sequence limit
it is a function of the frequencies and of the query token's attention logits (*Scan and Snap* 2023).
"""

from __future__ import annotations

from .flow import ScanFlow, flow
from .layer import Gradients, attention, features, gradients, loss
from .predictions import accumulated_speed, log_growth, progress, progress_steps, speed, transition
from .process import TokenProcess, symmetric, syn_medium, syn_small
from .reduced import ReducedFlow, force, reduced_flow, velocity
from .simulate import ScanRun, simulate
from .statistics import common_mass, distinct_entropy, recall

__all__ = [
    "Gradients",
    "ReducedFlow",
    "ScanFlow",
    "ScanRun",
    "TokenProcess",
    "accumulated_speed",
    "attention",
    "common_mass",
    "distinct_entropy",
    "features",
    "flow",
    "force",
    "gradients",
    "log_growth",
    "loss",
    "progress",
    "progress_steps",
    "recall",
    "reduced_flow",
    "simulate",
    "speed",
    "symmetric",
    "syn_medium",
    "syn_small",
    "transition",
    "velocity",
]
