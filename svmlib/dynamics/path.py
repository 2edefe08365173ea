r"""Regularisation paths of attention: the loss minimised over balls of growing radius.

For W the ball is that of the Frobenius norm. For factors it is
:math:`\frac12(\|K\|_F^2+\|Q\|_F^2)\le R`, whose products :math:`KQ^\top` are the nuclear ball.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib import norms, svm
from svmlib._pivoted import get_loss
from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, check_integer, frozen, to_tensor
from svmlib.data import Problem, check_problem
from svmlib.errors import DataError, ShapeError

from ._path_chain import CERTIFIED, Chain, Point, stages
from ._path_objective import Objective
from .objective import infimum

__all__ = ["CERTIFIED", "Path", "regularization_path"]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    r"""Points of a regularisation path. All arrays are read-only; r is the number of radii.

    Every point is *stationary* on its ball, and the best that was found from several starts. That it is
    the global minimiser is certified by ``log_floor`` only as far as ``log_gap`` is near it.
    """

    radii: FloatArray
    """(r,) bounds on the norm."""
    W: FloatArray
    """(..., r, e, q) minimisers; K Q^T for the nuclear norm."""
    K: FloatArray | None
    """(..., r, e, m) and (..., r, q, m) factors for the nuclear norm, m = min(e, q) or less; else None."""
    Q: FloatArray | None
    """See ``K``."""
    log_gap: FloatArray
    """(..., r) logarithm of the loss minus that of the selected tokens; NaN where it is not above it."""
    excess: FloatArray
    """(..., r) the same as a number: 0 where it underflows, negative where composing tokens pays."""
    log_floor: FloatArray
    """(..., r) no weights of the ball have a smaller ``log_gap``; -inf where no bound is known."""
    stationarity: FloatArray
    r"""(..., r) relative Frank-Wolfe gap :math:`1-\langle-G,W\rangle/(R\|G\|_*)`, dual norm; inside the ball
    :math:`\|G\|_*\|W\|` over what it would be if no terms of G cancelled (terms that are small alone
    do not count; if every start ended on such a plateau, :math:`R\|G\|_*` over the excess);
    on a cone's edge half the squared sine to its normals."""
    interior: BoolArray
    """(..., r) whether the point is inside the ball; with a cone, whether the loss falls inwards from it."""
    edge: BoolArray
    """(..., r) whether it lies on the edge of the cone that it was confined to."""
    attempts: FloatArray
    """(..., r, s) ``log_gap`` reached from each start, NaN where it ended uncertified."""
    start: IntArray
    """(..., r) which start won: 0 the point at the smaller radius, 1 the SVM, 2 and more random ones."""
    tokens: IntArray
    """(..., n) selected tokens."""
    feasible: BoolArray
    """(...) whether the selected tokens can be separated; if not, the path need not go to infinity."""
    norm: str
    """ "fro" or "nuc"."""

    @property
    def p(self) -> FloatArray:
        """(..., r, e) the path as vectors, where queries have width 1."""
        if self.W.shape[-1] != 1:
            raise ShapeError(f"p needs queries of width 1; W has shape {self.W.shape}. Use W.")
        return np.asarray(self.W[..., 0])

    def __repr__(self) -> str:
        return (
            f'Path("{self.norm}", {len(self.radii)} radii {self.radii[0]:g} to {self.radii[-1]:g}, '
            f"W {self.W.shape}, stationary to {self.stationarity.max():.1e})"
        )


def regularization_path(
    problem: Problem,
    radii: ArrayLike,
    norm: str = "fro",
    *,
    loss: str = "logistic",
    tokens: ArrayLike | None = None,
    cone: float | None = None,
    starts: int = 2,
    seed: int = 0,
    progress: bool = False,
) -> Path:
    r"""Minimise the training loss over balls of growing radius, for all instances of a batch at once.

    .. math:: \bar W_R\in\arg\min_{\|W\|\le R}\mathcal L(W),

    in the Frobenius norm, or in the nuclear norm through factors,
    :math:`\frac12(\|K\|_F^2+\|Q\|_F^2)\le R` with :math:`W=KQ^\top`.

    Parameters
    ----------
    problem : Problem
        Data and head; a nonlinear head should be twice differentiable.
    radii : array_like, shape (r,)
        Positive and increasing.
    norm : str
        "fro" for W, "nuc" for (K, Q).
    loss : str
        "logistic", "exponential", "linear" or "log".
    tokens : array_like of int, shape (..., n), optional
        Selected tokens. With a linear head they are the optimal ones, unless a cone is given. A nonlinear
        head needs them: the tokens whose loss the path is to approach.
    cone : float, optional
        The local path: confine W to the part of the *sphere* of norm R in the cone
        :math:`\operatorname{corr}(W,W_\alpha)\ge1-\mu` of this aperture :math:`\mu\in(0,1)` around the SVM
        solution of ``tokens``. "fro" only.
    starts : int
        Random starts, followed from the smallest radius on, besides the point found at the smaller radius
        and the SVM's direction.
    seed : int
        Seed of the random starts.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    Path
        The best point of each radius, with certificates.

    Raises
    ------
    DataError
        If radii are not positive and increasing, an argument is out of range, or the problem has no head.
    ShapeError
        If shapes do not fit.
    InfeasibleError
        If there is no SVM for a cone to be around.
    SolverError
        If no start reached a stationary point.

    Notes
    -----
    Newton's method on a sphere, with the logarithm of the excess loss as its objective; between two radii
    it passes through points at most a factor 2 apart. The problem is not convex.

    Source: *Transformers as Support Vector Machines* (2023), regularisation path of W and of (K, Q).

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.planar(1)
    >>> path = sv.dynamics.regularization_path(p, [10.0, 1000.0])
    >>> sv.compare.correlation(path.W, sv.svm.attention_svm(p).W).round(4)
    array([0.8542, 1.    ])
    """
    from tqdm import tqdm

    check_problem(problem)
    get_loss(loss, problem)
    R = _checked_radii(radii)
    if not isinstance(norm, str) or norm not in ("fro", "nuc"):
        raise DataError(f'norm must be "fro" (for W) or "nuc" (for K and Q), got {norm!r}.')
    count, seed = check_integer(starts, "starts", 0), check_integer(seed, "seed", 0)
    mu = _checked_cone(cone, norm, tokens)
    index = _tokens(problem, tokens, mu)
    flat, alpha = problem.flat(), index.reshape(-1, problem.n)
    if not len(alpha):
        raise ShapeError("The batch of this problem is empty: it has no path.")
    objective = Objective(flat, alpha, loss)
    if not objective.lengths.any(axis=(-2, -1)).all():
        raise DataError("In an instance no logit depends on W: its keys are all equal, or its queries are 0.")
    if problem.v is not None and mu is None and not objective.score_gap.any(axis=(-2, -1)).all():
        raise DataError("In an instance all tokens of each sequence share one score: its loss is constant.")
    solution = _solution(flat, alpha, norm, must="raise" if mu is not None else "nan")
    chain = Chain(objective, solution, norm, mu, count, seed)
    if mu is not None and problem.v is not None:
        chain.lowest = Objective(flat, alpha, loss, flat.optimal)
        chain.above = infimum(flat, loss) - _loss_of(flat, alpha, loss)
    todo = stages(R, objective.unit)
    found: list[Point] = []
    with np.errstate(under="ignore"), tqdm(total=len(todo), disable=not progress, unit="radius") as bar:
        for radius, asked in todo:
            point = chain.advance(radius, asked)
            if asked:
                found.append(point)
            bar.update(1)

    def column(name: str) -> NDArray[Any]:
        a = np.stack([getattr(point, name) for point in found], axis=1)
        return frozen(a.reshape(problem.batch_shape + a.shape[1:]))

    floor = _log_floor(flat, objective, solution, R, mu)
    return Path(
        radii=frozen(R),
        W=column("W"),
        K=column("K") if norm == "nuc" else None,
        Q=column("Q") if norm == "nuc" else None,
        log_gap=column("log_gap"),
        excess=column("excess"),
        log_floor=frozen(floor.reshape(problem.batch_shape + floor.shape[1:])),
        stationarity=column("stationarity"),
        interior=column("interior"),
        edge=column("edge"),
        attempts=column("attempts"),
        start=column("start"),
        tokens=frozen(index),
        feasible=frozen(solution.feasible.reshape(problem.batch_shape)),
        norm=norm,
    )


def _checked_radii(radii: ArrayLike) -> FloatArray:
    R = as_float(radii, "radii", ndim=1)
    if not R.size or not (R > 0).all() or not (np.diff(R) > 0).all():
        raise DataError(f"radii must be positive and increasing, got {R.size} values {R[:5].tolist()}.")
    if R[0] < 1e-100 or R[-1] > 1e100:
        raise DataError(f"radii must lie between 1e-100 and 1e100, got {R[0]:g} to {R[-1]:g}.")
    return R


def _checked_cone(cone: float | None, norm: str, tokens: ArrayLike | None) -> float | None:
    if cone is None:
        return None
    mu = float(as_float(cone, "cone", ndim=0))
    if not 0 < mu < 1:
        raise DataError(f"cone must be an aperture between 0 and 1, got {cone!r}.")
    if norm != "fro":
        raise DataError('cone confines a path in the Frobenius norm only; pass norm="fro".')
    if tokens is None:
        raise DataError("cone needs tokens=: the selection whose SVM direction it is around.")
    return mu


def _tokens(problem: Problem, tokens: ArrayLike | None, cone: float | None) -> IntArray:
    if problem.v is None and problem.head is None:
        raise DataError("A path needs a head: pass v= (linear) or head= to Problem.")
    if problem.v is None and tokens is None:
        raise DataError(
            "A nonlinear head has no scores: name the tokens that the path is to select, tokens=."
        )
    if problem.v is not None and tokens is not None and cone is None:
        raise DataError(
            "With a linear head the path over a whole ball selects the optimal tokens: leave out tokens=, or "
            "confine the path to a cone (cone=)."
        )
    return problem.checked_tokens(tokens)


def _solution(p: Problem, alpha: IntArray, norm: str, must: str) -> svm.AttentionSVM:
    if p.v is not None and p.tied.any():
        # tokens that share the best score are not constrained against each other: hide all but the selected
        gamma = p.scores
        best = np.take_along_axis(gamma, alpha[..., None], -1)
        scale = np.abs(np.where(np.isfinite(gamma), gamma, 0.0)).max(-1, keepdims=True)
        apart = np.abs(gamma - best) > 1e-14 * scale
        apart |= np.arange(p.T) == alpha[..., None]
        p = Problem(p.X, p.z, p.y, p.v, mask=apart & p.visible, keys=p.keys)
    return svm.attention_svm(p, alpha, norm=norm, errors=must)


def _loss_of(p: Problem, alpha: IntArray, loss: str) -> FloatArray:
    score = np.take_along_axis(p.scores, alpha[..., None], -1)[..., 0]
    return np.asarray(get_loss(loss, p).value(to_tensor(score)).numpy().mean(-1))


def _log_floor(
    p: Problem, objective: Objective, solution: svm.AttentionSVM, R: FloatArray, cone: float | None
) -> FloatArray:
    r"""Lower bound of the log excess on every ball, by weighted means of exponentials.

    With normalised multipliers :math:`\bar\lambda` of the SVM and the weights
    :math:`w_{it}=|\ell'(\gamma_{i\,opt})|(\gamma_{i\,opt}-\gamma_{it})`,
    :math:`\sum w e^{-\delta}\ge\exp\sum\bar\lambda(\log(w/\bar\lambda)-\delta)` and
    :math:`\sum\bar\lambda\delta\le R\|\sum\bar\lambda A\|_*`.
    """
    out = np.full((len(p.X), len(R)), -np.inf)
    if p.v is None or cone is not None:
        return out
    usable = solution.solved & ~p.tied.any(-1) & (solution.multipliers.sum((-2, -1)) > 0)
    for b in np.flatnonzero(usable):
        lam = np.maximum(solution.multipliers[b], 0.0)
        lam = lam / lam.sum()
        on = lam > 0
        slope = objective.loss.slope(objective.best[b])
        weight = slope[:, None] * objective.score_gap[b]
        if not (weight[on] > 0).all():
            continue
        A = np.einsum("nt,ntd,ne->de", lam, p[int(b)].differences(solution.tokens[b]), p.z[b])
        reach = float(norms.get(solution.norm).dual(A))
        steep = (lam[on] * (np.log(weight[on]) - np.log(lam[on]))).sum() - R * reach
        least = np.where(solution.constrained[b], weight, np.inf).min(-1)
        flat = np.log(least[np.isfinite(least)].min())
        out[b] = -np.logaddexp(-steep, -flat) - np.log(p.n)
    return out
