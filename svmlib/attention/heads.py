"""Prediction heads: callables from tensors (..., d) to (...). A ``torch.nn.Module`` is one too.

The heads made here know their slope in closed form, which saves training the detour through autograd, and
may hold parameters of their own for every instance of a batch: they are then picked, flattened and repeated
together with their :class:`~svmlib.data.Problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from svmlib.arrays import FloatArray, as_float, frozen, to_tensor
from svmlib.errors import DataError, ShapeError

__all__ = ["Linear", "Mlp", "Quadratic", "linear", "mlp", "quadratic"]

Local = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Outputs (d, n, B) to values (n, B) and slopes (d, n, B)."""


class _Head:
    # Parameters are arrays with the batch axes of the problem, or without any: then all instances share them.
    own: ClassVar[dict[str, int]]  # parameters and the numbers of their own axes

    __slots__ = ()

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the parameters, () when all instances share them."""
        name, own = next(iter(self.own.items()))
        shape: tuple[int, ...] = getattr(self, name).shape
        return shape[: len(shape) - own]

    @property
    def width(self) -> int:
        """Width d of the outputs that the head reads."""
        name, own = next(iter(self.own.items()))
        return int(getattr(self, name).shape[-own])

    def mapped(self, f: Callable[[FloatArray, int], FloatArray]) -> Any:
        """Head of the same kind whose parameters are ``f(array, number of its own axes)``."""
        return type(self)(*(f(getattr(self, name), own) for name, own in self.own.items()))

    def __repr__(self) -> str:
        batch = f", batch {self.batch_shape}" if self.batch_shape else ""
        return f"{type(self).__name__}(d={self.width}{batch})"

    def _aligned(self, u: Tensor) -> list[Tensor]:
        """Parameters with axes put in between, so that their batch axes meet the leading ones of u."""
        lead = self.batch_shape
        if not isinstance(u, Tensor) or not u.is_floating_point():
            got = f"tensor of {u.dtype}" if isinstance(u, Tensor) else type(u).__name__
            raise DataError(f"{self!r} maps tensors of real numbers, got {got}: use torch.as_tensor(u) * 1.0")
        fits = all(a == b or 1 in (a, b) for a, b in zip(u.shape, lead, strict=False))
        if u.ndim <= len(lead) or u.shape[-1] != self.width or not fits:
            wanted = ", ".join((*map(str, lead), "...", str(self.width)))
            raise ShapeError(f"{self!r} maps tensors of shape ({wanted}), got {tuple(u.shape)}.")
        between = (1,) * (u.ndim - 1 - len(lead)) if lead else ()
        out = []
        for name, own in self.own.items():
            a: FloatArray = getattr(self, name)
            full = to_tensor(a.reshape(lead + between + a.shape[a.ndim - own :]), str(u.device))
            out.append(full.to(u.dtype))
        return out

    def _columns(self, device: str) -> list[Tensor]:
        """Parameters of a flat batch with the instances on the last axis."""
        arrays = [getattr(self, name) for name in self.own]
        return [to_tensor(np.moveaxis(a, 0, -1) if self.batch_shape else a, device) for a in arrays]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Linear(_Head):
    r"""The head :math:`u\mapsto v^\top u`, with v of shape (..., d)."""

    v: FloatArray

    own: ClassVar[dict[str, int]] = {"v": 1}

    def __call__(self, u: Tensor) -> Tensor:
        """Values (...) of outputs (..., d)."""
        (v,) = self._aligned(u)
        return (u * v).sum(-1) if self.batch_shape else u @ v

    def local(self, device: str) -> Local:
        """Prepare value and slope on tensors with the instances on their last axis.

        Parameters
        ----------
        device : str
            Where the tensors lie.

        Returns
        -------
        callable
            Maps outputs (d, n, B) to values (n, B) and slopes (d, n, B).
        """
        (v,) = self._columns(device)
        column = v[:, None] if self.batch_shape else v[:, None, None]
        return lambda u: ((column * u).sum(0), column.expand_as(u))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quadratic(_Head):
    r"""The head :math:`u\mapsto v^\top u-\lambda\|u\|^2`, with v of shape (..., d) and lam of shape (...)."""

    v: FloatArray
    lam: FloatArray

    own: ClassVar[dict[str, int]] = {"v": 1, "lam": 0}

    def __call__(self, u: Tensor) -> Tensor:
        """Values (...) of outputs (..., d)."""
        v, lam = self._aligned(u)
        return (u * v).sum(-1) - lam * u.square().sum(-1)

    def local(self, device: str) -> Local:
        """Prepare value and slope on tensors with the instances on their last axis.

        Parameters
        ----------
        device : str
            Where the tensors lie.

        Returns
        -------
        callable
            Maps outputs (d, n, B) to values (n, B) and slopes (d, n, B).
        """
        v, lam = self._columns(device)
        column = v[:, None] if self.batch_shape else v[:, None, None]

        def both(u: Tensor) -> tuple[Tensor, Tensor]:
            curved = lam * u
            return (u * (column - curved)).sum(0), column - 2.0 * curved

        return both


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mlp(_Head):
    r"""The head :math:`u\mapsto\mathbf 1^\top\operatorname{relu}(V^\top u)`, with V of shape (..., d, h)."""

    V: FloatArray

    own: ClassVar[dict[str, int]] = {"V": 2}

    def __call__(self, u: Tensor) -> Tensor:
        """Values (...) of outputs (..., d)."""
        (V,) = self._aligned(u)
        hidden = (u[..., None, :] @ V)[..., 0, :] if self.batch_shape else u @ V
        return torch.relu(hidden).sum(-1)

    def local(self, device: str) -> Local:
        """Prepare value and slope on tensors with the instances on their last axis.

        Parameters
        ----------
        device : str
            Where the tensors lie.

        Returns
        -------
        callable
            Maps outputs (d, n, B) to values (n, B) and slopes (d, n, B).
        """
        (V,) = self._columns(device)
        if not self.batch_shape:
            return lambda u: _shared(V, u)
        units = V[:, :, None]  # (d, h, 1, B)

        def both(u: Tensor) -> tuple[Tensor, Tensor]:
            hidden = units[0] * u[0]  # one row of V after the other: no product of all sizes is stored
            for row, entry in zip(units[1:], u[1:], strict=True):
                hidden.addcmul_(row, entry)
            active = (hidden > 0).to(u.dtype)
            slope = torch.empty_like(u)
            for row, entry in zip(units, slope, strict=True):
                torch.sum(row * active, 0, out=entry)
            return (hidden * active).sum(0), slope

        return both


def _shared(V: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    hidden = V.T @ u.reshape(u.shape[0], -1)
    active = (hidden > 0).to(u.dtype)
    return (hidden * active).sum(0).reshape(u.shape[1:]), (V @ active).reshape(u.shape)


def linear(v: ArrayLike) -> Linear:
    r"""Make the head :math:`u\mapsto v^\top u`; ``Problem(v=v)`` is the same one with closed-form scores.

    Parameters
    ----------
    v : array_like, shape (..., d)
        Weights, with the batch axes of the problem if every instance has its own.

    Returns
    -------
    Linear
        Maps tensors (..., d) to (...).

    Raises
    ------
    ShapeError
        If there are no weights.
    """
    return Linear(frozen(_filled(as_float(v, "v", min_ndim=1, meaning="(..., d)"), "v")))


def quadratic(v: ArrayLike, lam: ArrayLike) -> Quadratic:
    r"""Make the head :math:`u\mapsto v^\top u-\lambda\|u\|^2`, concave for positive lambda.

    Parameters
    ----------
    v : array_like, shape (..., d)
        Weights.
    lam : array_like, shape (...)
        Curvature. Batch axes of both are broadcast to each other.

    Returns
    -------
    Quadratic
        Maps tensors (..., d) to (...).

    Raises
    ------
    ShapeError
        If the batch axes do not fit, or v is empty.
    """
    weight, curvature = _filled(as_float(v, "v", min_ndim=1, meaning="(..., d)"), "v"), as_float(lam, "lam")
    try:
        lead = np.broadcast_shapes(weight.shape[:-1], curvature.shape)
    except ValueError:
        raise ShapeError(
            f"v and lam must have shapes (..., d) and (...) with batch axes that fit, got {weight.shape} and "
            f"{curvature.shape}."
        ) from None
    full = np.broadcast_to(weight, lead + weight.shape[-1:]), np.broadcast_to(curvature, lead)
    return Quadratic(*map(frozen, full))


def mlp(V: ArrayLike) -> Mlp:
    r"""Make the head :math:`u\mapsto\mathbf 1^\top\operatorname{relu}(V^\top u)`, which is convex.

    Parameters
    ----------
    V : array_like, shape (..., d, h)
        Weights of the hidden units, with the batch axes of the problem if every instance has its own.

    Returns
    -------
    Mlp
        Maps tensors (..., d) to (...).

    Raises
    ------
    ShapeError
        If there are no weights, or V has a single axis.
    """
    return Mlp(frozen(_filled(as_float(V, "V", min_ndim=2, meaning="(..., d, h)"), "V")))


def _filled(a: FloatArray, name: str) -> FloatArray:
    if a.size == 0:
        raise ShapeError(f"{name} must have at least one entry, got shape {a.shape}.")
    return a
