"""Language models whose attention can be read, their training, and what is read off it."""

from __future__ import annotations

from .bias import Kinds, attended, discrimination, kinds, mass
from .early import expected_velocity, initial_velocity, measured_process
from .evaluation import evaluate
from .models import Reading, ScanLayer, Transformer
from .order import drop_times, pair_logits, rank_correlation
from .statistics import Onset, attention_change, attention_entropy, change_speed, freeze_onset
from .training import LanguageRun, Training, train_language

__all__ = [
    "Kinds",
    "LanguageRun",
    "Onset",
    "Reading",
    "ScanLayer",
    "Training",
    "Transformer",
    "attended",
    "attention_change",
    "attention_entropy",
    "change_speed",
    "discrimination",
    "drop_times",
    "evaluate",
    "expected_velocity",
    "freeze_onset",
    "initial_velocity",
    "kinds",
    "mass",
    "measured_process",
    "pair_logits",
    "rank_correlation",
    "train_language",
]
