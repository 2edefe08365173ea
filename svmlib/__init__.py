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
    "linear",
    "norms",
    "plot",
    "selection",
    "svm",
    "widgets",
)

__all__ = ["__version__", *_SUBPACKAGES]

if TYPE_CHECKING:
    from . import (
        arrays,
        attention,
        checks,
        compare,
        data,
        dynamics,
        errors,
        experiments,
        linear,
        norms,
        plot,
        selection,
        svm,
        widgets,
    )


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
