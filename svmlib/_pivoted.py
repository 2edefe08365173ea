r"""The engine of training: one attention layer whose gradient stays right after softmax saturates.

The textbook gradient :math:`s_t(\gamma_t-s^\top\gamma)` of the top token is a difference of equal numbers
once its probability rounds to 1, and a normalised step then follows rounding noise. Here everything is
measured from the top token p (the pivot): keys :math:`k_t-k_p`, scores :math:`\gamma_t-\gamma_p` and
logits. The pivot's own term disappears, and no cancellation is left. The remaining weights are kept as
logarithms and the largest is subtracted before they are exponentiated, so that margins far beyond 745,
where :math:`e^{-\text{margin}}` underflows, still give the right direction.

Arrays have the instances on their last axis: every reduction then runs along contiguous memory, which on
a CPU is about three times as fast as batched matrix products of this size.

Shapes: T tokens with values of width d and keys of width e, n sequences with queries of width q, B
instances; m = n B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from .arrays import to_tensor
from .data import Problem
from .errors import DataError, ShapeError

NEVER = -1e300  # stands for log 0 where an infinity would turn into NaN


class Loss(NamedTuple):
    """A loss as a function of the margin f = y times prediction, strictly decreasing."""

    name: str
    value: Callable[[Tensor], Tensor]
    log_slope: Callable[[Tensor], Tensor]  # log |l'(f)|
    excess: Callable[[Tensor, Tensor], Tensor]  # l(f - e) - l(f) for e >= 0, without cancellation


LOSSES = {
    loss.name: loss
    for loss in (
        Loss(
            "logistic",
            lambda f: softplus(-f),
            lambda f: -softplus(f),
            # where e is large nothing cancels, and expm1 would overflow
            lambda f, e: torch.where(
                e < 30.0,
                torch.log1p(torch.sigmoid(-f) * torch.expm1(e.clamp_max(30.0))),
                softplus(e - f) - softplus(-f),
            ),
        ),
        Loss(
            "exponential",
            lambda f: torch.exp(-f),
            lambda f: -f,
            lambda f, e: torch.where(
                e < 30.0, torch.exp(-f) * torch.expm1(e.clamp_max(30.0)), torch.exp(e - f) - torch.exp(-f)
            ),
        ),
        Loss("linear", lambda f: -f, torch.zeros_like, lambda f, e: e),
        # cross-entropy of next-token prediction, where the margin is a probability
        Loss("log", lambda f: -f.log(), lambda f: -f.log(), lambda f, e: -torch.log1p(-e / f)),
    )
}


def get_loss(loss: str, problem: Problem | None = None) -> Loss:
    """Return the loss called ``loss``, and check that it is defined on the margins of a problem.

    Raises
    ------
    DataError
        If there is no loss of that name, or it is "log" and a linear head can give a margin that is not
        positive (without a problem, any can).
    """
    if not isinstance(loss, str) or loss not in LOSSES:
        raise DataError(f"loss must be one of {sorted(LOSSES)}, got {loss!r}.")
    if loss == "log" and problem is None:
        raise DataError('The loss "log" is defined for positive margins only, which nothing ensures here.')
    if loss == "log" and problem is not None and problem.v is not None:
        gamma = problem.scores
        low = np.where(problem.visible, gamma, np.inf).min()
        if low < 0 or gamma.max(-1).min() <= 0:
            raise DataError(
                'The loss "log" needs positive margins: token scores y v\'x of at least 0, one of them '
                f"positive in each sequence. Here the smallest score is {low:.3g}, and the smallest best "
                f"score of a sequence {gamma.max(-1).min():.3g}."
            )
    return LOSSES[loss]


def excess(loss: Loss, best: Tensor, missing: Tensor, margin: Tensor) -> Tensor:
    """Loss above that of the best margin, where ``missing = best - margin`` is known without cancellation.

    The logarithm of a small probability needs the margin itself: ``best - missing`` has lost it.
    """
    near = loss.excess(best, missing)
    if loss.name != "log":
        return near
    return torch.where(missing < 0.5 * best, near, loss.value(margin) - loss.value(best))


def apply_head(head: Callable[[Any], Any], u: Tensor) -> Tensor:
    """Call a head on outputs (..., d) and check that it returns predictions (...).

    Raises
    ------
    DataError
        If the head itself fails.
    ShapeError
        If its result has another shape.
    """
    try:
        value = head(u)
    except (RuntimeError, TypeError, ValueError) as exc:
        raise DataError(
            f"head failed on a float64 tensor of shape {tuple(u.shape)}: {exc}. It must map (..., d) to "
            "(...) in float64; call .double() on a module."
        ) from exc
    if not isinstance(value, Tensor) or value.shape != u.shape[:-1]:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ShapeError(
            f"head must map a tensor of shape (..., d) to one of shape (...): for an input of shape "
            f"{tuple(u.shape)} it returned {got}, expected shape {tuple(u.shape[:-1])}."
        )
    return value


class View(NamedTuple):
    """What the layer computes at one set of logits; the pivot is the token with the largest one."""

    logits: Tensor  # (T, m) relative to the pivot's: 0 there, negative elsewhere
    weight: Tensor  # (T, m) exp of the above
    total: Tensor  # (1, m) their sum: 1 / total is the pivot's probability
    score: Tensor  # (T, m) scores relative to the pivot's
    mean: Tensor  # (1, m) expectation of ``score`` under softmax
    margin: Tensor  # (1, m) f = y * prediction


def _relative(a: Tensor, pivot: Tensor) -> Tensor:
    """(T, d, m) rows of ``a`` minus the pivot's row."""
    return a - a.gather(0, pivot[:, None].expand(1, a.shape[1], -1))


class Layer:
    """Tensors of a flat batch of problems, and the pivoted forward and backward pass through attention."""

    def __init__(self, problem: Problem, device: str) -> None:
        flat = problem.flat()
        self.B, self.n, self.T, self.d = flat.X.shape
        if self.B == 0:
            raise ShapeError("The batch of this problem is empty: nothing to differentiate.")
        m, self.e = self.n * self.B, problem.key_dim
        self.keys = to_tensor(flat.keys.transpose(2, 3, 1, 0).reshape(self.T, self.e, m), device)
        self.X = self.keys
        if flat.keys is not flat.X:
            self.X = to_tensor(flat.X.transpose(2, 3, 1, 0).reshape(self.T, self.d, m), device)
        self.z = to_tensor(flat.z.transpose(2, 1, 0), device)  # (q, n, B)
        # Queries in coordinates of an orthonormal basis of a space of min(n, q) dimensions that holds them: a
        # gradient summed in these shows what cancels between sequences, which a sum of outer products hides.
        if self.n < problem.query_dim:
            basis, coordinates = np.linalg.qr(np.swapaxes(flat.z, -1, -2))
        else:
            basis, coordinates = np.eye(problem.query_dim)[None], np.swapaxes(flat.z, -1, -2)
        self.basis = to_tensor(basis.transpose(1, 2, 0), device)  # (q, r, B) or (q, r, 1)
        self.coordinates = to_tensor(coordinates.transpose(1, 2, 0), device)  # (r, n, B)
        self.y = to_tensor(flat.y.T.reshape(1, m), device)
        self.head = problem.head
        # heads that know their slope in closed form, with parameters for every instance
        local = getattr(flat.head, "local", None)
        self.local = None if local is None else local(device)
        self.hidden: Tensor | None = None
        if problem.mask is not None:
            seen = problem.mask.reshape(-1, self.n, self.T).transpose(2, 1, 0).reshape(self.T, m)
            self.hidden = to_tensor(np.where(seen, 0.0, -np.inf), device)
        self.scores: Tensor | None = None
        if problem.v is not None:
            gamma = np.where(problem.visible, problem.scores, 0.0)
            self.scores = to_tensor(
                gamma.reshape(-1, self.n, self.T).transpose(2, 1, 0).reshape(self.T, m), device
            )
        elif problem.head is None:
            raise DataError("Training and losses need a head: pass v= (linear) or head= to Problem.")
        self.pivot = torch.zeros((1, m), dtype=torch.int64, device=device)
        if self.hidden is not None:
            self.pivot = self.hidden.argmax(0, keepdim=True)
        self._turn()

    def _turn(self) -> None:
        self.delta = _relative(self.keys, self.pivot)  # (T, e, m), exactly 0 at the pivot
        self.value_delta = self.delta if self.X is self.keys else _relative(self.X, self.pivot)
        self.top_value = self.X.gather(0, self.pivot[:, None].expand(1, self.d, -1))[0]  # (d, m)
        if self.scores is not None:
            self.pivot_score = self.scores.gather(0, self.pivot)
            self.relative = self.scores - self.pivot_score

    def view(self, P: Tensor) -> View:
        """Evaluate the layer where query i is mapped to ``P[:, i]`` = W z_i; P has shape (e, n, B)."""
        flat = P.reshape(self.e, -1)
        logits = (self.delta * flat).sum(1)
        if self.hidden is not None:
            logits += self.hidden
        if not logits.amax() <= 0:  # a token has overtaken its pivot (rare late in a run), or is NaN
            self.pivot = logits.max(0, keepdim=True).indices
            self._turn()
            logits = (self.delta * flat).sum(1)
            if self.hidden is not None:
                logits += self.hidden
        weight = logits.exp()
        total = weight.sum(0, keepdim=True)
        if self.scores is not None:
            score = self.relative
            mean = (weight * score).sum(0, keepdim=True) / total
            margin = self.pivot_score + mean
        else:
            score, margin = self._local_scores(weight / total)
            mean = (weight * score).sum(0, keepdim=True) / total
        return View(logits, weight, total, score, mean, margin)

    def output(self, probability: Tensor) -> Tensor:
        """(d, n, B) attention outputs u for probabilities (T, m)."""
        u = self.top_value + (self.value_delta * probability[:, None]).sum(0)
        return u.reshape(self.d, self.n, self.B)

    def _local_scores(self, probability: Tensor) -> tuple[Tensor, Tensor]:
        # A nonlinear head gives token t the local score y x_t' grad(head)(u).
        u = self.output(probability)
        value, slope = self._differentiated(u) if self.local is None else self.local(u)
        score = self.y * (self.value_delta * slope.reshape(self.d, -1)).sum(1)
        return score, self.y * value.reshape(1, -1)

    def _differentiated(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Value (n, B) and slope (d, n, B) of any head: only here autograd is needed."""
        assert self.head is not None
        with torch.inference_mode(False), torch.enable_grad():
            at = u.permute(2, 1, 0).clone().requires_grad_(True)
            value = apply_head(self.head, at)
            if not value.requires_grad:
                raise DataError(
                    "head gives a result that does not depend on its input for autograd: it is constant, or "
                    "something in it was detached."
                )
            (slope,) = torch.autograd.grad(value.sum(), at)
        return value.detach().T, slope.permute(2, 1, 0)

    def ascent(self, view: View, loss: Loss) -> tuple[Tensor, Tensor]:
        r"""Negative gradient in the queries' frame: :math:`-n\nabla_W\mathcal L=e^{c}\sum_i r_iz_i^\top`.

        Returns
        -------
        r : Tensor, shape (e, n, B)
            Rows, scaled so that the largest weight in them is of order 1.
        c : Tensor, shape (B,)
            Logarithm of the scale.
        """
        slope = view.score - view.mean
        exponent = view.logits + slope.abs().log() + (loss.log_slope(view.margin) - view.total.log())
        exponent.scatter_(0, self.pivot, -torch.inf)
        top = exponent.amax(0).reshape(self.n, self.B).amax(0).clamp_min(NEVER)
        shifted = exponent.reshape(self.T, self.n, self.B) - top
        weight = shifted.reshape(self.T, -1).exp().copysign(slope)
        rows = (self.delta * weight[:, None]).sum(0).reshape(self.e, self.n, self.B)
        return rows, top

    def losses(self, view: View, loss: Loss) -> tuple[Tensor, Tensor]:
        """(B,) loss, and (B,) loss above its infimum: exact however small, NaN for a nonlinear head."""
        value = loss.value(view.margin).reshape(self.n, self.B).mean(0)
        if self.scores is None:
            return value, torch.full_like(value, torch.nan)
        shown = self.scores if self.hidden is None else self.scores + self.hidden
        best = shown.amax(0, keepdim=True)
        # a sum of non-negative terms: the missing score, with nothing cancelled
        missing = (view.weight * (best - self.scores)).sum(0, keepdim=True) / view.total
        gap = excess(loss, best, missing, view.margin)
        return value, gap.reshape(self.n, self.B).mean(0)

    def per_sequence(self, a: Tensor) -> np.ndarray[Any, Any]:
        """(B, n) numpy array of a (1, m) tensor."""
        return a.reshape(self.n, self.B).T.cpu().numpy()
