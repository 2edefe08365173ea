"""What a transformer is made of: its architecture, its weights, and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from svmlib.arrays import FloatArray, as_float, check_integer, check_positive
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError

from .weights import Direct, Factored

__all__ = ["ACTIVATIONS", "Architecture", "TransformerWeights", "check_transformer"]

ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a transformer is made of."""

    layers: int = 2
    """Number L of layers."""
    heads: int = 1
    """Number H of attention heads of a layer."""
    residual: bool = True
    """Whether a stream keeps what it held: x + update, and not the update alone."""
    mlp: bool = True
    """Whether an MLP follows the heads in each layer."""
    layer_norm: bool = False
    """Whether heads, MLP and read-out see streams centred and scaled to unit variance (no gain, no bias)."""
    activation: str = "relu"
    """Of the MLP: "relu", or "gelu" where its kinks are not wanted."""
    causal: bool = False
    """Whether token k sees tokens 1 to k only; the read-out stream sees all."""

    def __post_init__(self) -> None:
        check_integer(self.layers, "layers")
        check_integer(self.heads, "heads")
        for name in ("residual", "mlp", "layer_norm", "causal"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise DataError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise DataError(f"activation must be one of {sorted(ACTIVATIONS)}, got {self.activation!r}.")


class TransformerWeights(NamedTuple):
    r"""All parameters of a transformer; leading axes are those of the problem, or none."""

    attention: Direct | Factored
    """W of shape (..., L, H, d, d), or K and Q of shape (..., L, H, d, m): logits are x_t' W x_k."""
    V: Any
    """(..., L, H, d, d) value maps; a head adds V u, with u its attention output."""
    E: Any
    """(..., L, h, d) first layer of each MLP; None without MLP."""
    F: Any
    """(..., L, d, h) second layer of each MLP; None without MLP."""
    v: Any
    """(..., d) read-out."""

    @property
    def W(self) -> FloatArray:
        """(..., L, H, d, d) attention matrices."""
        return self.attention.matrix()

    @classmethod
    def random(
        cls,
        problem: Problem,
        architecture: Architecture,
        seed: int = 0,
        *,
        scale: float | None = None,
        hidden: int | None = None,
        factored: bool = False,
    ) -> TransformerWeights:
        r"""Draw weights; instance b of the batch uses seed + b, whatever the size of the batch.

        Entries of W are uniform on (-scale, scale). Value maps and MLPs are Gaussian, of a size that keeps
        the lengths of streams comparable: variances 1/(dH) for V, 2/d for E and 1/(2h) for F. The read-out
        is the problem's linear head, or a random unit vector where it has none.

        Parameters
        ----------
        problem : Problem
            Gives batch and dimension.
        architecture : Architecture
            Gives the blocks.
        seed : int
            Seed of the first instance.
        scale : float, optional
            Bound of the entries of W, :math:`d^{-1/2}` by default.
        hidden : int, optional
            Width h of the MLPs, 2d by default.
        factored : bool
            Whether to draw K and Q, of shape (d, d) and variance scale / d, in place of W.

        Returns
        -------
        TransformerWeights
            One draw for every instance.
        """
        _check_plain(problem, architecture)
        L, H, d = architecture.layers, architecture.heads, problem.d
        bound = d**-0.5 if scale is None else check_positive(scale, "scale")
        h = 2 * d if hidden is None else check_integer(hidden, "hidden")
        first = check_integer(seed, "seed", 0)
        shapes = [(L, H, d, d), (L, h, d), (L, d, h), (d,), (L, H, d, d), (L, H, d, d)]
        sizes = [
            (d * H) ** -0.5,
            (2 / d) ** 0.5,
            (0.5 / h) ** 0.5,
            1.0,
            (bound / d) ** 0.5,
            (bound / d) ** 0.5,
        ]
        count = int(np.prod(problem.batch_shape, dtype=int))
        drawn: list[list[FloatArray]] = []
        for b in range(count):
            rng = np.random.default_rng(first + b)
            W = rng.uniform(-bound, bound, size=(L, H, d, d))
            gaussian = [s * rng.normal(size=shape) for s, shape in zip(sizes, shapes, strict=True)]
            drawn.append([W, *gaussian])
        blocks = [np.stack(column) for column in zip(*drawn, strict=True)] if drawn else []
        W, V, E, F, v, K, Q = (a.reshape(problem.batch_shape + a.shape[1:]) for a in blocks)
        v = v / np.linalg.norm(v, axis=-1, keepdims=True) if problem.v is None else problem.v
        attention: Direct | Factored = Factored(K, Q) if factored else Direct(W)
        return cls(attention, V, E if architecture.mlp else None, F if architecture.mlp else None, v)


def _check_plain(problem: Problem, architecture: Architecture) -> None:
    check_problem(problem)
    if not isinstance(architecture, Architecture):
        raise DataError(f"architecture must be an attention.Architecture, got {type(architecture).__name__}.")
    if problem.keys is not problem.X:
        raise DataError(
            "A transformer reads its tokens, but this problem has keys of its own: those are for "
            "dynamics.train. Leave them out."
        )
    if problem.query_dim != problem.d:
        raise ShapeError(
            f"The query is a stream like the tokens and needs their width d = {problem.d}, got queries of "
            f"width {problem.query_dim}."
        )


def check_transformer(
    problem: Problem, architecture: Architecture, weights: TransformerWeights
) -> TransformerWeights:
    """Check weights against a problem and an architecture, and broadcast them to the batch.

    Parameters
    ----------
    problem : Problem
        Data.
    architecture : Architecture
        Gives the blocks.
    weights : TransformerWeights
        With the problem's batch axes or none, block by block.

    Returns
    -------
    TransformerWeights
        float64 blocks with the problem's batch axes.

    Raises
    ------
    ShapeError
        If sizes do not fit, or an MLP is missing or not asked for.
    DataError
        If entries are not finite or an argument is of another type.
    """
    _check_plain(problem, architecture)
    if not isinstance(weights, TransformerWeights):
        raise DataError(f"weights must be attention.TransformerWeights, got {type(weights).__name__}.")
    if not isinstance(weights.attention, (Direct, Factored)):
        raise DataError(
            f"attention must be Direct(W) or Factored(K, Q), got {type(weights.attention).__name__}."
        )
    L, H, d = architecture.layers, architecture.heads, problem.d
    meaning = f"as {L} layers with {H} heads and d = {d} need"

    def block(value: Any, name: str, *last: int | None) -> FloatArray:
        a = as_float(value, name, last=last, meaning=meaning)
        try:
            return np.broadcast_to(a, problem.batch_shape + a.shape[a.ndim - len(last) :])
        except ValueError:
            raise ShapeError(
                f"{name} must have the batch axes of the problem, {problem.batch_shape}, or none; got shape "
                f"{a.shape}."
            ) from None

    square: tuple[int | None, ...] = (L, H, d, d)
    last = square if isinstance(weights.attention, Direct) else (L, H, d, None)
    parts = [
        block(a, name, *last) for name, a in zip(weights.attention._fields, weights.attention, strict=True)
    ]
    if len(parts) == 2 and parts[0].shape[-1] != parts[1].shape[-1]:
        raise ShapeError(f"K and Q must have one width m, got shapes {parts[0].shape} and {parts[1].shape}.")
    E = F = None
    if architecture.mlp:
        if weights.E is None or weights.F is None:
            raise ShapeError("The architecture has MLPs, but E or F is None: give both, or mlp=False.")
        E, F = block(weights.E, "E", L, None, d), block(weights.F, "F", L, d, None)
        if E.shape[-2] != F.shape[-1]:
            raise ShapeError(f"E and F must have one width h, got shapes {E.shape} and {F.shape}.")
    elif weights.E is not None or weights.F is not None:
        raise ShapeError(
            "The weights have an MLP, but the architecture has none: set E and F to None, or mlp=True."
        )
    attention: Direct | Factored = Direct(*parts) if len(parts) == 1 else Factored(*parts)
    return TransformerWeights(attention, block(weights.V, "V", *square), E, F, block(weights.v, "v", d))
