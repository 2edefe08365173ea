"""Conversions between numpy and torch, and the checks that every public function runs on its input."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import DataError, ShapeError

if TYPE_CHECKING:
    import torch

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "as_float",
    "check_integer",
    "check_positive",
    "frozen",
    "resolve_device",
    "to_tensor",
    "torch_normals",
]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def as_float(
    a: ArrayLike | torch.Tensor,
    name: str,
    *,
    ndim: int | None = None,
    min_ndim: int = 0,
    last: Sequence[int | None] = (),
    meaning: str = "",
    finite: bool = True,
) -> FloatArray:
    """Return ``a`` as a float64 numpy array after checking its axes and values.

    Parameters
    ----------
    a : array_like or torch.Tensor
        Numbers, of any shape.
    name : str
        What the caller calls this argument; error messages repeat it.
    ndim, min_ndim : int, optional
        Exact or smallest number of axes.
    last : sequence of int or None, optional
        Sizes of the last axes; None leaves a size free.
    meaning : str
        What these axes or sizes are, for the error message.
    finite : bool
        Whether NaN and infinities are refused.

    Returns
    -------
    ndarray of float64
        A view of ``a`` where possible.

    Raises
    ------
    ShapeError
        If the axes do not fit.
    DataError
        If ``a`` is not numeric, or not finite.

    Examples
    --------
    >>> as_float([[1, 2]], "X", min_ndim=2).dtype
    dtype('float64')
    """
    wanted = "a real number" if ndim == 0 else "an array of real numbers with rows of equal length"
    out = _real(a, name, wanted)
    tail_text = f", {meaning}" if meaning else ""
    if ndim is not None and out.ndim != ndim:
        want_text = f"have {ndim} axes" if ndim else "be a single number"
        raise ShapeError(f"{name} must {want_text}{tail_text}, got shape {out.shape}.")
    if out.ndim < max(min_ndim, len(last)):
        raise ShapeError(
            f"{name} must have at least {max(min_ndim, len(last))} axes{tail_text}, got shape {out.shape}."
        )
    tail = out.shape[out.ndim - len(last) :]
    if any(want is not None and want != got for want, got in zip(last, tail, strict=True)):
        sizes = ["any" if s is None else str(s) for s in last]
        want = f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
        raise ShapeError(f"{name} must end in axes of sizes {want}{tail_text}, got shape {out.shape}.")
    if finite and not out.ndim and not np.isfinite(out):
        raise DataError(f"{name} must be finite, got {float(out):g}.")
    if finite and not np.isfinite(out).all():
        bad = np.argwhere(~np.isfinite(out))
        at = tuple(int(i) for i in bad[0])
        raise DataError(
            f"{name} must be finite, but {len(bad)} of its {out.size} entries are NaN or infinite, "
            f"the first at index {at}. Remove or mask them."
        )
    return out


def _real(a: Any, name: str, wanted: str) -> FloatArray:
    torch = sys.modules.get("torch")  # a tensor can only exist if torch has been imported
    if torch is not None and isinstance(a, torch.Tensor) and not (a.is_sparse or a.is_complex()):
        return np.asarray(a.detach().cpu().to(torch.float64).numpy())
    if isinstance(a, np.ma.MaskedArray) and np.ma.getmaskarray(a).any():
        raise DataError(f"{name} is a masked array; give its data, and the mask as mask= where there is one.")
    try:
        out = np.asarray(a)
        if a is None or out.dtype.kind not in "biufO":
            raise TypeError
        return out.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as exc:
        what = (
            f"{type(a).__name__} of {getattr(a, 'dtype', 'mixed')} values"
            if hasattr(a, "dtype")
            else type(a).__name__
        )
        ragged = isinstance(a, (list, tuple)) or getattr(a, "dtype", None) == np.dtype(object)
        hint = " Pad sequences of unequal length and pass a mask." if ragged else ""
        raise DataError(f"{name} must be {wanted}, got {what}.{hint}") from exc


def check_integer(value: Any, name: str, minimum: int = 1) -> int:
    """Check a size, a count or a seed.

    Parameters
    ----------
    value : int
        The number.
    name : str
        What the caller calls it.
    minimum : int
        Smallest allowed value.

    Returns
    -------
    int
        The number.

    Raises
    ------
    ShapeError
        If it is not a whole number, too small, or beyond 64 bits.
    """
    kind = {0: "a whole number >= 0", 1: "a positive integer"}.get(minimum, f"an integer >= {minimum}")
    if isinstance(value, (bool, np.bool_)):
        raise ShapeError(f"{name} must be {kind}, got {value!r}.")
    try:
        number = operator.index(value)
    except TypeError:
        raise ShapeError(f"{name} must be {kind}, got {value!r}.") from None
    if not minimum <= number < 2**63:
        raise ShapeError(f"{name} must be {kind}, got {value!r}.")
    return number


def check_positive(value: Any, name: str) -> float:
    """Check a step size or another positive number.

    Parameters
    ----------
    value : float
        A Python, numpy or torch scalar.
    name : str
        What the caller calls it.

    Returns
    -------
    float
        The number.

    Raises
    ------
    DataError
        If it is not a finite number above 0.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = float("nan")
    if isinstance(value, (bool, np.bool_, str)) or not (np.isfinite(number) and number > 0):
        raise DataError(f"{name} must be a positive number, got {value!r}.")
    return number


def frozen(a: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only copy: records stay what they were when they were made.

    Parameters
    ----------
    a : ndarray
        Any array.

    Returns
    -------
    ndarray
        The copy.
    """
    out = np.array(a)
    out.setflags(write=False)
    return out


def resolve_device(device: str | None, instances: int = 1) -> str:
    """Choose where torch computes: None is the CPU or ``SVMLIB_DEVICE``, "auto" asks the machine.

    "auto" takes CUDA where it is present and at least 1,000 instances run side by side: below that,
    starting kernels costs more than they save.

    Parameters
    ----------
    device : str or None
        "cpu", "cuda", "cuda:1", "auto", or None.
    instances : int
        Number of problems that run side by side.

    Returns
    -------
    str
        A device name that torch understands.

    Raises
    ------
    DataError
        If the name is unknown, or CUDA is asked for and absent.
    """
    chosen = str(device if device is not None else os.environ.get("SVMLIB_DEVICE") or "cpu")
    if not re.fullmatch(r"cpu|auto|cuda(:\d+)?", chosen):
        raise DataError(f'device must be None, "cpu", "cuda", "cuda:N" or "auto", got {chosen!r}.')
    if chosen == "cpu":
        return chosen
    import torch

    if chosen == "auto":
        return "cuda" if torch.cuda.is_available() and instances >= 1000 else "cpu"
    if chosen.startswith("cuda") and not torch.cuda.is_available():
        raise DataError(
            f"device={chosen!r} was asked for, but torch {torch.__version__} sees no CUDA device. "
            'Install a CUDA build of torch, or pass device="cpu".'
        )
    return chosen


def to_tensor(a: NDArray[Any], device: str = "cpu") -> torch.Tensor:
    """Copy a numpy array into a tensor of its own type.

    Parameters
    ----------
    a : ndarray
        Any array.
    device : str
        Where the tensor lies.

    Returns
    -------
    torch.Tensor
        A copy: changing it leaves ``a`` alone.
    """
    import torch

    return torch.tensor(np.ascontiguousarray(a), device=device)


def torch_normals(seed: int, *shapes: tuple[int, ...]) -> list[FloatArray]:
    """Draw float32 standard normals with torch's generator, one array after the other.

    The papers' data come from ``torch.randn`` under a seed; drawing the same stream here makes their
    instances ours.

    Parameters
    ----------
    seed : int
        Seed of the generator.
    *shapes : tuple of int
        Shapes, in the order of drawing.

    Returns
    -------
    list of ndarray
        float32 arrays.
    """
    import torch

    generator = torch.Generator("cpu").manual_seed(seed)
    # neither the default type nor the default device may change the data
    return [
        torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu").numpy() for shape in shapes
    ]
