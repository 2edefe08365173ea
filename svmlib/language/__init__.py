"""Language models whose attention can be read, their training, and what is read off it."""

from __future__ import annotations

from .evaluation import evaluate
from .models import Reading, ScanLayer, Transformer
from .training import LanguageRun, Training, train_language

__all__ = ["LanguageRun", "Reading", "ScanLayer", "Training", "Transformer", "evaluate", "train_language"]
