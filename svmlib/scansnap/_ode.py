"""What both flows share: the check of their arguments, and the adaptive solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from svmlib.arrays import FloatArray, as_float, check_positive
from svmlib.errors import DataError, SolverError

from .process import TokenProcess


def conditions(
    process: TokenProcess, times: ArrayLike, decoder_rate: float, attention_rate: float, z: ArrayLike | None
) -> tuple[FloatArray, float, float, FloatArray]:
    """Check what a flow starts from: times, both rates, the attention logits."""
    when = as_float(times, "times", ndim=1)
    if not when.size or (when < 0).any() or (np.diff(when) <= 0).any():
        raise DataError("times must be increasing and not negative.")
    rates = [
        float(as_float(a, name, ndim=0))
        for a, name in ((decoder_rate, "decoder_rate"), (attention_rate, "attention_rate"))
    ]
    if min(rates) < 0:
        raise DataError(f"Learning rates must not be negative, got {rates[0]:g} and {rates[1]:g}.")
    shape = (len(process.queries), process.M)
    start = (
        np.zeros(shape)
        if z is None
        else as_float(z, "z", ndim=2, last=shape, meaning="query tokens x tokens")
    )
    return when, rates[0], rates[1], start


def integrate(slope: Any, when: FloatArray, first: FloatArray, rtol: float) -> FloatArray:
    """(r, size) states at the times asked for."""
    tolerance = check_positive(rtol, "rtol")
    if when[-1] == 0.0:
        return first[None]
    span = (0.0, float(when[-1]))
    solved = solve_ivp(slope, span, first, "LSODA", when, rtol=tolerance, atol=1e-3 * tolerance)
    if not solved.success:
        raise SolverError(f"The flow could not be followed to time {when[-1]:g}: {solved.message}")
    return np.asarray(solved.y.T)
