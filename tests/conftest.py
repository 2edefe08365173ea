"""Shared set-up: tests run at reduced numbers of trials, on one thread, and can import the oracle."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("SVMLIB_SCALE", "test")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
