"""Training dynamics of one attention layer, as support vector machines.

The subpackages load on first use, so ``import svmlib`` costs almost nothing:

>>> import svmlib as sv
>>> sv.data.planar(1).X.shape
(2, 3, 2)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_SUBPACKAGES = (
    "arrays",
    "attention",
    "checks",
    "compare",
    "data",
    "dynamics",
    "errors",
    "experiments",
    "graphs",
    "joma",
    "language",
    "linear",
    "norms",
    "plot",
    "scansnap",
    "selection",
    "svm",
    "text",
    "widgets",
)

__all__ = ["__version__", *_SUBPACKAGES]

if TYPE_CHECKING:
    from . import arrays as arrays
    from . import attention as attention
    from . import checks as checks
    from . import compare as compare
    from . import data as data
    from . import dynamics as dynamics
    from . import errors as errors
    from . import experiments as experiments
    from . import graphs as graphs
    from . import joma as joma
    from . import language as language
    from . import linear as linear
    from . import norms as norms
    from . import plot as plot
    from . import scansnap as scansnap
    from . import selection as selection
    from . import svm as svm
    from . import text as text
    from . import widgets as widgets


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
