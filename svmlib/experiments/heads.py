"""One head of a trained transformer against the SVM of the tokens that it selects."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmlib import attention, compare, selection, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import Architecture, Transformed, TransformerWeights
from svmlib.data import Problem
from svmlib.dynamics import LayersRun

__all__ = ["head_measures", "head_path", "suppression"]

SELECTED = 1e-3
"""Attention above which a token counts as selected."""
MASKED = 1e-6
"""Attention below which a token counts as masked out; between the two nothing is settled."""


def head_measures(
    problem: Problem,
    architecture: Architecture,
    weights: TransformerWeights,
    layer: int,
    head: int,
    *,
    start: TransformerWeights | None = None,
    seen: Transformed | None = None,
    tokens: str = "selected",
    seed: int = 0,
) -> dict[str, FloatArray]:
    """Compare the attention matrix of one head with the SVM of the tokens that it selects.

    Parameters
    ----------
    problem : Problem
        Data, with one batch axis.
    architecture : Architecture
        What the transformer is made of.
    weights : TransformerWeights
        Where it stands.
    layer, head : int
        Which head; both count from 0.
    start : TransformerWeights, optional
        Where training started, for the correlation of the change.
    seen : Transformed, optional
        What :func:`svmlib.attention.transformer` returns for these weights, if it is known already.
    tokens : str
        "selected", or "random" for tokens drawn at random, a control.
    seed : int
        Seed of that draw.

    Returns
    -------
    dict of str to ndarray
        Arrays of shape (batch,); see :func:`p1_hierarchy`.
    """
    seen = attention.transformer(problem, architecture, weights) if seen is None else seen
    own, rows, s = _own_problem(problem, architecture, weights, seen, layer, head)
    W, chosen = weights.W[:, layer, head], s.argmax(-1)
    if tokens == "random":
        chosen = _random_tokens(own, rows, seed)
    one = svm.attention_svm(own, chosen, errors="nan")
    out = {
        "corr": compare.correlation(W, one.W),
        "feasible": one.feasible.astype(float),
        "span": compare.correlation(_seen_part(own, rows, W), one.W),
    }
    if tokens == "random":
        return out
    several = (s > SELECTED) & own.visible
    unsettled = ((s > MASKED) & (s <= SELECTED) & own.visible).any(-1)
    share = rows.sum(-1)
    out["size"], out["rank"] = np.linalg.norm(W, axis=(-2, -1)), one.rank.astype(float)
    out["rows"] = share.astype(float)
    out["single"] = ((several.sum(-1) == 1) & rows).sum(-1) / share
    out["settled"] = (~unsettled & rows).sum(-1) / share
    out["entropy"] = (compare.entropy(s) * rows).sum(-1) / share
    with np.errstate(invalid="ignore"):
        least = np.where(rows[..., None] & own.visible, compare.margins(W, own.keys, own.z, chosen), np.inf)
        out["margin"] = least.min((-2, -1)) / out["size"] / one.margin
    out["optimal"] = ((chosen == own.optimal) & rows).sum(-1) / share
    out["local"] = selection.locally_optimal(own, one).astype(float)
    out["general"], out["equation"] = _generalized(own, W, s, several, rows)
    if start is not None:
        out["change"] = compare.correlation(W - start.W[:, layer, head], one.W)
    if layer < architecture.layers - 1:
        whole = attention.layer_problem(problem, architecture, weights, layer, head)
        out["all_rows"] = compare.correlation(W, svm.attention_svm(whole, chosen, errors="nan").W)
    return out


def _own_problem(
    problem: Problem,
    architecture: Architecture,
    weights: TransformerWeights,
    seen: Transformed,
    layer: int,
    head: int,
) -> tuple[Problem, BoolArray, FloatArray]:
    """One-layer problem of a head, which of its rows are read, and its attention (batch, rows, T)."""
    last = layer == architecture.layers - 1
    read = attention.positions_read(seen, architecture, SELECTED)[:, layer]
    own = attention.layer_problem(problem, architecture, weights, layer, head, matters=None if last else read)
    rows = np.ones((len(problem), own.n), dtype=bool) if last else read.reshape(len(problem), -1)
    s = seen.probabilities[:, layer, head, :, -1 if last else slice(None)]
    return own, rows, s.reshape(len(problem), own.n, own.T)


def _random_tokens(problem: Problem, rows: BoolArray, seed: int) -> Any:
    # rows that do not matter keep one visible token, which is the only one that can be named
    draws = np.random.default_rng(seed).random(problem.visible.shape)
    return np.where(problem.visible, draws, -1.0).argmax(-1)


def _seen_part(problem: Problem, rows: BoolArray, W: FloatArray) -> FloatArray:
    """Part of W in the span of the matrices (k_t - k_tau) z' of the rows: what the logits' margins see."""
    out = np.empty_like(W)
    delta = np.where(problem.visible[..., None], problem.keys - problem.keys[..., :1, :], 0.0)
    for b, (d, z, r) in enumerate(zip(delta, problem.z, rows, strict=True)):
        A = np.einsum("nte,nq->nteq", d[r][:, 1:], z[r]).reshape(-1, W[b].size)
        _, sigma, Vt = np.linalg.svd(A, full_matrices=False)
        basis = Vt[sigma > 1e-10 * sigma.max(initial=0.0)]
        out[b] = (basis.T @ (basis @ W[b].ravel())).reshape(W[b].shape)
    return out


def _generalized(
    problem: Problem, W: FloatArray, s: FloatArray, several: BoolArray, rows: BoolArray
) -> tuple[FloatArray, FloatArray]:
    # a row that does not matter has one visible token, selected whatever its probability
    only = (problem.visible.sum(-1) == 1)[..., None] & problem.visible
    chosen = np.where(rows[..., None], several, only) | only
    far = svm.generalized_svm(problem, chosen, errors="nan")
    near = svm.finite_part(problem, np.where(chosen, s, 0.0), chosen, errors="nan")
    size = (far.W**2).sum((-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        R = np.where(size > 0, (W * far.W).sum((-2, -1)) / size, 0.0)
    combined = near.W + R[:, None, None] * far.W
    moving = (far.W != 0).any(
        (-2, -1)
    ) & far.solved  # where no token is masked out there is nothing to predict
    usable = np.isfinite(combined).all((-2, -1)) & moving
    safe = np.where(usable[:, None, None], combined, 1.0)
    direction = np.where(moving[:, None, None], far.W, 1.0)
    return (
        np.where(moving, compare.correlation(W, direction), np.nan),
        np.where(usable, compare.correlation(W, safe), np.nan),
    )


def suppression(
    problem: Problem, architecture: Architecture, weights: TransformerWeights, layer: int, head: int
) -> tuple[FloatArray, FloatArray]:
    r"""Compare how far softmax suppresses each token with its margin in the SVM.

    Parameters
    ----------
    problem : Problem
        Data, with one batch axis.
    architecture : Architecture
        What the transformer is made of.
    weights : TransformerWeights
        Where it stands.
    layer, head : int
        Which head; both count from 0.

    Returns
    -------
    predicted : ndarray, shape (k,)
        :math:`\|W\|_F\,\Gamma\,m_{it}`, with the SVM's margins :math:`m_{it}\ge1`, for every token that a
        position does not select, over all positions that are read and all instances with an SVM.
    measured : ndarray, shape (k,)
        :math:`-\log s_{it}`.
    """
    seen = attention.transformer(problem, architecture, weights)
    own, rows, s = _own_problem(problem, architecture, weights, seen, layer, head)
    W, chosen = weights.W[:, layer, head], s.argmax(-1)
    one = svm.attention_svm(own, chosen, errors="nan")
    a = attention.logits(own, W)
    top = a.max(-1, keepdims=True)
    with np.errstate(under="ignore"):
        measured = top + np.log(np.exp(a - top).sum(-1, keepdims=True)) - a
    scale = np.linalg.norm(W, axis=(-2, -1)) * one.margin
    asked = compare.margins(np.where(one.solved[:, None, None], one.W, 0.0), own.keys, own.z, chosen)
    predicted = scale[:, None, None] * asked
    shown = rows[..., None] & own.visible & np.isfinite(asked) & one.solved[:, None, None]
    return predicted[shown], measured[shown]


def head_path(problem: Problem, architecture: Architecture, run: LayersRun, layer: int) -> FloatArray:
    """Correlate the recorded matrices of a layer with the SVMs of the tokens selected at the end.

    Parameters
    ----------
    problem : Problem
        Data, with one batch axis.
    architecture : Architecture
        What the transformer is made of.
    run : LayersRun
        Its training.
    layer : int
        Which layer, counted from 0.

    Returns
    -------
    ndarray, shape (r, batch times heads)
        Correlations; NaN where there is no SVM.
    """
    seen = attention.transformer(problem, architecture, run.weights)
    columns = []
    for head in range(architecture.heads):
        own, _, s = _own_problem(problem, architecture, run.weights, seen, layer, head)
        one = svm.attention_svm(own, s.argmax(-1), errors="nan")
        columns.append(compare.correlation(run.W[:, :, layer, head], one.W).T)
    return np.concatenate(columns, axis=1)
