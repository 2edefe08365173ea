"""The one-layer problem that one head of a transformer faces while everything else stands still."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from svmlib._pivoted import get_loss
from svmlib.arrays import BoolArray, as_float, check_integer, frozen, to_tensor
from svmlib.data import Problem
from svmlib.errors import DataError, ShapeError

from .architecture import Architecture, TransformerWeights
from .transformer import Transformed, transformer

__all__ = ["layer_problem", "positions_read"]

LEAST = 1e-50  # local scores whose largest is below this, or above its inverse, are rescaled


def positions_read(
    transformed: Transformed, architecture: Architecture, threshold: float = 1e-3
) -> BoolArray:
    r"""Find the positions of each layer whose output the read-out can still see.

    In the last layer that is the read-out stream alone. Going down, a position is seen where a position that
    matters above attends to it with more than the threshold, or is that position itself, kept by the residual
    connection.

    Parameters
    ----------
    transformed : Transformed
        From :func:`transformer`.
    architecture : Architecture
        The same as there.
    threshold : float
        Smallest attention that counts.

    Returns
    -------
    ndarray of bool, shape (..., L, n, T + 1)
        True where changing what the heads of this layer add to the position changes the prediction.

    Raises
    ------
    ShapeError
        If the architecture has another number of layers or heads.
    DataError
        If ``transformed`` is something else, or the threshold no number from 0 to 1.
    """
    if not isinstance(transformed, Transformed):
        raise DataError(
            f"transformed must come from svmlib.attention.transformer, got {type(transformed).__name__}."
        )
    if not isinstance(architecture, Architecture):
        raise DataError(f"architecture must be an attention.Architecture, got {type(architecture).__name__}.")
    least = float(as_float(threshold, "threshold", ndim=0))
    if not 0 <= least < 1:
        raise DataError(f"threshold must lie in [0, 1), got {threshold!r}.")
    s = transformed.probabilities
    L, H, n, P, T = s.shape[-5:]
    if (architecture.layers, architecture.heads) != (L, H):
        raise ShapeError(
            f"transformed has {L} layers of {H} heads, but architecture {architecture.layers} of "
            f"{architecture.heads}: pass the one it was computed with."
        )
    read = np.zeros((*s.shape[:-5], L, n, P), dtype=bool)
    read[..., L - 1, :, T] = True
    for layer in range(L - 1, 0, -1):
        above = read[..., layer, :, :]
        attended = (s[..., layer, :, :, :, :] > least) & above[..., None, :, :, None]
        read[..., layer - 1, :, :T] = attended.any((-4, -2))
        if architecture.residual:
            read[..., layer - 1, :, :] |= above
    return frozen(read)


def layer_problem(
    problem: Problem,
    architecture: Architecture,
    weights: TransformerWeights,
    layer: int,
    head: int,
    *,
    matters: ArrayLike | None = None,
    loss: str = "logistic",
) -> Problem:
    r"""Make the problem of one attention layer that head ``head`` of layer ``layer`` faces at these weights.

    Each position whose output may matter is a sequence of its own: its keys are the inputs of the layer, its
    query the input at that position. In the last layer that is the read-out stream, n sequences; below it,
    all T + 1 streams, n (T + 1) sequences, ordered by sequence and then position. Values are numbers: the
    *local scores*

    .. math::
        \gamma_{ikt}=\frac Nn\,|\ell_i'|\;
        \Big\langle\frac{\partial\,y_if_i}{\partial u_{hik}},x_{it}\Big\rangle

    with N sequences in the result. So the gradient of the network's loss in the head's W is
    ``gradient(layer_problem(...), Direct(W), loss="linear")``, exactly, and the programs of
    :mod:`svmlib.svm` can be solved for the result. Where the scores of an instance all lie below 1e-50
    (late in a run, when the layers above have saturated) they are multiplied by a power of two, and the
    gradient with them.

    Parameters
    ----------
    problem : Problem
        Data.
    architecture : Architecture
        What the transformer is made of.
    weights : TransformerWeights
        Where everything else stands.
    layer, head : int
        Which head; both count from 0.
    matters : array_like of bool, shape (..., n, T + 1), optional
        Positions that count, see :func:`positions_read`; all by default. Of the others only the token with
        the largest probability stays visible, so that they carry no constraint. Not for the last layer.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    Problem
        With keys of width d, queries of width d, scores as above, and the batch axes of ``problem``.

    Raises
    ------
    ShapeError
        If there is no such layer or head, or an argument does not fit.
    DataError
        If an argument is of another type.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.random_problem(4, 5, 6)
    >>> a = Architecture(layers=2, mlp=False)
    >>> w = TransformerWeights.random(p, a)
    >>> layer_problem(p, a, w, layer=0, head=0)
    Problem(n=24, T=5, d=1, linear head, keys of width 6)
    """
    chosen = get_loss(loss)
    seen = transformer(problem, architecture, weights)
    L, H, n, P, T = seen.probabilities.shape[-5:]
    for name, value, size in (("layer", layer, L), ("head", head, H)):
        if check_integer(value, name, 0) >= size:
            raise ShapeError(f"{name} must lie in 0..{size - 1}, got {value}.")
    last = layer == L - 1
    at = slice(T, P) if last else slice(0, P)
    x = seen.inputs[..., layer, :, :, :]
    s = seen.probabilities[..., layer, head, :, at, :]
    rows = s.shape[-2]
    margin = problem.y * seen.predictions
    slope = np.exp(chosen.log_slope(to_tensor(margin)).numpy())
    direction = seen.slopes[..., layer, head, :, at, :] * (rows * slope[..., None, None])
    score = np.einsum("...ipd,...itd->...ipt", direction, x[..., :T, :])
    # where later layers have saturated, all scores of an instance may be tiny: only their ratios matter then
    top_score = np.abs(score).max((-3, -2, -1), keepdims=True)
    lost = (top_score > 0) & ~((top_score > LEAST) & (top_score < 1 / LEAST))
    score = np.where(lost, np.ldexp(score, -np.frexp(top_score)[1]), score)
    visible = _visible(problem, architecture, rows)
    if matters is not None:
        if last:
            raise DataError("In the last layer the read-out stream alone matters: leave matters out.")
        flags = as_float(matters, "matters", last=(n, P))
        if not np.isin(flags, (0.0, 1.0)).all():
            raise DataError("matters must be boolean: True where the output of a position counts.")
        try:
            np.broadcast_to(flags, (*problem.batch_shape, n, P))
        except ValueError:
            raise ShapeError(
                f"matters has shape {flags.shape}, but must broadcast to {(*problem.batch_shape, n, P)}: the "
                "flags of one layer, positions_read(...)[..., layer, :, :]."
            ) from None
        top = np.arange(T) == s.argmax(-1)[..., None]
        visible = visible & ((flags == 1.0)[..., None] | top)
    batch, N = problem.batch_shape, n * rows

    def flat(a: np.ndarray, *own: int) -> np.ndarray:
        return np.broadcast_to(a, (*batch, n, rows, *own)).reshape(*batch, N, *own)

    y = np.repeat(problem.y, rows, axis=-1)
    return Problem(
        X=(y[..., None] * flat(score, T))[..., None],
        z=flat(x[..., at, :], problem.d),
        y=y,
        v=np.ones(1),
        mask=None if visible.all() else flat(visible, T),
        keys=flat(x[..., :, None, :T, :], T, problem.d),
    )


def _visible(problem: Problem, architecture: Architecture, rows: int) -> BoolArray:
    T = problem.T
    seen = np.broadcast_to(problem.visible[..., None, :], (*problem.visible.shape[:-1], rows, T)).copy()
    if rows > 1:
        if architecture.causal:
            seen[..., :T, :] &= np.tri(T, dtype=bool)
        seen[..., :T, :] |= ~problem.visible[..., None] & np.eye(T, dtype=bool)
    return seen
