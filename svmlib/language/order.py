r"""The order in which attention drops token types, and the logits that show it."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import spearmanr
from torch import nn

from svmlib.arrays import FloatArray, IntArray, as_float, check_integer
from svmlib.errors import DataError, ShapeError
from svmlib.text.cooccurrence import as_tokens

from .models import ScanLayer, Transformer, _Block

__all__ = ["drop_times", "pair_logits", "rank_correlation"]


def drop_times(
    steps: ArrayLike, logits: ArrayLike, *, lead: int | None = None, loss: float = 0.02
) -> FloatArray:
    r"""Find when each token type has lost attention relative to the leading one.

    A type is dropped at the first step at which :math:`e^{z_l-z_{\text{lead}}}` is below
    :math:`1-\text{loss}` times what it was at the first snapshot.

    Parameters
    ----------
    steps : array_like, shape (r,)
        Steps of the snapshots, rising.
    logits : array_like, shape (r, L)
        Attention logits of one query for token types.
    lead : int, optional
        Place of the leading type among the L; by default the one with the largest logit in the end.
    loss : float
        Share that has to be lost, between 0 and 1.

    Returns
    -------
    ndarray, shape (L,)
        Steps; infinite for types that were not dropped, among them the leading one.

    Raises
    ------
    ShapeError
        If steps and logits do not fit, or there is no such lead.
    DataError
        If steps do not rise, or loss lies outside (0, 1).

    Notes
    -----
    *Scan and Snap* (2023), after Theorem 3: rare distinct tokens are dropped first. A small loss shows the
    order early; most ratios never fall to a half.
    """
    z = as_float(logits, "logits", ndim=2)
    if not z.size:
        raise ShapeError(f"logits must hold snapshots and token types, got shape {z.shape}.")
    at = as_float(steps, "steps", ndim=1, last=(len(z),), meaning="one for each row of logits")
    if (np.diff(at) <= 0).any():
        raise DataError("steps must rise.")
    if not 0 < loss < 1:
        raise DataError(f"loss must lie between 0 and 1, got {loss!r}.")
    first = int(z[-1].argmax()) if lead is None else check_integer(lead, "lead", 0)
    if first >= z.shape[1]:
        raise ShapeError(
            f"lead must be a place among {z.shape[1]} token types, 0..{z.shape[1] - 1}, got {lead}."
        )
    behind = z - z[:, [first]]
    below = behind - behind[0] < math.log1p(-loss)
    return np.asarray(np.where(below.any(0), at[below.argmax(0)], np.inf))


def rank_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Compute Spearman's rank correlation of two lists that may hold infinities and gaps.

    Parameters
    ----------
    a, b : array_like, shape (k,)
        Numbers. Infinite ones come last, all alike; pairs with NaN are left out; equal ones share their mean
        rank.

    Returns
    -------
    float
        Between -1 and 1; NaN if fewer than three pairs are left, or all of a list are alike.

    Raises
    ------
    ShapeError
        If the lists have different lengths.
    """
    x = as_float(a, "a", ndim=1, finite=False)
    y = as_float(b, "b", ndim=1, last=(len(x),), meaning="as many as a", finite=False)
    whole = ~(np.isnan(x) | np.isnan(y))
    x, y = x[whole], y[whole]
    if len(x) < 3 or (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    return float(spearmanr(x, y).statistic)


def pair_logits(model: nn.Module, queries: ArrayLike) -> FloatArray:
    """Compute the attention logits of the lowest layer from query types to all token types.

    Parameters
    ----------
    model : nn.Module
        A :class:`ScanLayer`, or a :class:`Transformer` without positions.
    queries : array_like of int, shape (Q,)
        Query tokens.

    Returns
    -------
    ndarray, shape (H, Q, V)
        Logits by head, as softmax gets them: a number added to a row changes nothing.

    Raises
    ------
    ShapeError
        If queries is no list of whole numbers.
    DataError
        If the model adds positions, is another one, or a query lies outside the vocabulary.
    """
    plain = getattr(model, "module", model)
    if not isinstance(plain, (ScanLayer, Transformer)):
        raise DataError(
            f"Logits of pairs are known for ScanLayer and Transformer, not for {type(plain).__name__}."
        )
    if isinstance(plain, Transformer) and plain.positions:
        raise DataError(
            "This model adds positions to its embeddings, so that its attention logits are no function of "
            "two token types. Build it with positions=False, or look at attention maps."
        )
    asked = as_tokens(queries, "queries", plain.V)
    with torch.no_grad():
        out = _scan(plain, asked) if isinstance(plain, ScanLayer) else _lowest(plain, asked)
    return np.asarray(out.cpu().double().numpy())


def _scan(model: ScanLayer, asked: IntArray) -> torch.Tensor:
    at = torch.as_tensor(asked)
    if model.width is None:
        return model.Z[at.to(model.Z.device)][None]
    U = model.U
    return ((U[at.to(U.device)] @ model.Q) @ (U @ model.K).T / math.sqrt(model.width))[None]


def _lowest(model: Transformer, asked: IntArray) -> torch.Tensor:
    # the stream of the lowest block is the scaled embedding; its norms come after attention
    x = model.embedding.weight * math.sqrt(model.width)
    block = model.blocks[0]
    assert isinstance(block, _Block)
    H = block.heads
    q, k, _ = block.qkv(x).view(model.V, 3, H, -1).permute(1, 2, 0, 3).unbind()
    at = torch.as_tensor(asked, device=x.device)
    out: torch.Tensor = q[:, at] @ k.transpose(1, 2) / math.sqrt(model.width // H)
    return out
