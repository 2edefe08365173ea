r"""The engine of Scan and Snap's dynamics: many runs at once, sampled or in the long-sequence limit.

Attention has no positions, so a sequence is the vector of its token counts; in the long-sequence limit the
counts are the frequencies themselves. With :math:`\tilde s=\text{counts}\odot e^{z}` for the query's row z,

.. math:: f=\tilde s/\|\tilde s\|,\quad r=e_{\text{label}}-\mathbb S(D^\top f),\quad g=Dr,\qquad
   \Delta D\propto fr^\top,\quad\Delta z\propto f\odot(g-f\,f^\top g)

(*Scan and Snap* 2023, Lemma 1, where D is called Y).

Shapes: R runs, B sequences, L contextual tokens, M tokens, Q query tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Sequences of every run."""

    counts: Tensor  # (R, B, L)
    row: Tensor  # (R, B) row of the query token in Z
    label: Tensor  # (R, B) next token
    weight: Tensor  # (B,) share of each in the loss


class Step(NamedTuple):
    """Loss, ascent directions, and what was computed on the way."""

    loss: Tensor  # (R,)
    D: Tensor  # (R, L, M)
    Z: Tensor  # (R, Q, L)
    logits: Tensor  # (R, B, M)
    sent: Tensor  # (R, B, L) gradient sent down, times the weight


def attention(counts: Tensor, Z: Tensor, row: Tensor) -> Tensor:
    """(R, B, L) attention by token type, up to a factor for each sequence: counts times exp of the logits."""
    index = row[..., None].expand(-1, -1, Z.shape[-1])
    mass = counts * (Z - Z.amax(-1, keepdim=True)).exp().gather(1, index)
    if not mass.amax(-1).all():  # the token with the largest logit may be absent, and drown all others
        logits = Z.gather(1, index).masked_fill(counts == 0, -torch.inf)
        mass = counts * (logits - logits.amax(-1, keepdim=True)).exp()
    return mass


def ascent(D: Tensor, Z: Tensor, batch: Batch) -> Step:
    """Loss, and the directions in which it falls: minus its gradients."""
    mass = attention(batch.counts, Z, batch.row)
    f = mass / mass.norm(dim=-1, keepdim=True)
    logits = torch.bmm(f, D)
    log_p = torch.log_softmax(logits, -1)
    label = batch.label[..., None]
    loss = -(log_p.gather(-1, label)[..., 0] * batch.weight).sum(-1)
    wrong = log_p.exp_().scatter_(-1, label, 0.0)
    # the residual of the label is the sum of the other probabilities: 1 minus its own would cancel
    residual = wrong.neg().scatter_(-1, label, wrong.sum(-1, keepdim=True)).mul_(batch.weight[:, None])
    g = torch.bmm(residual, D.transpose(1, 2))
    z = f * (g - f * (f * g).sum(-1, keepdim=True))
    into = torch.zeros_like(Z).scatter_add_(1, batch.row[..., None].expand_as(z), z)
    return Step(loss, torch.bmm(f.transpose(1, 2), residual), into, logits, g)
