r"""The generalised SVM and the finite part: what attention to several tokens of a sequence asks of W.

.. math::
   W^{mm}=\arg\min_W\|W\|\quad\text{s.t.}\quad
   (k_{it}-k_{i\tau})^\top Wz_i\;\begin{cases}=0,&t,\tau\in\mathcal O_i\\
   \ge1,&t\in\mathcal O_i,\ \tau\notin\mathcal O_i\end{cases}
   \qquad
   W^{fin}=\arg\min_W\|W\|\quad\text{s.t.}\quad
   (k_{it}-k_{i\tau})^\top Wz_i=\log\frac{s_{it}}{s_{i\tau}},\ t,\tau\in\mathcal O_i .

With equal logits in :math:`\mathcal O_i` it is enough to compare everything with its first token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from svmlib.arrays import BoolArray, FloatArray, frozen
from svmlib.data import Problem
from svmlib.errors import DataError

from .arguments import checked_errors, checked_norm, checked_selection, named, per_token
from .features import Features
from .general import Rows, Solution, raise_failure, solve
from .general_records import FinitePart, GeneralizedSVM
from .reasons import contradiction
from .records import SUPPORT_TOLERANCE, Certificate

__all__ = ["finite_part", "generalized_svm"]

THRESHOLD = 1e-3
"""Probability above which a token counts as selected, unless the caller says which ones are."""


def generalized_svm(
    problem: Problem, selected: ArrayLike, norm: str = "fro", errors: str = "raise"
) -> GeneralizedSVM:
    r"""Solve the generalised SVM of each problem of a batch, with a certificate.

    The Frobenius solution is unique; a nuclear one need not be, while ``value`` is. Where each sequence has
    a single selected token this is :func:`attention_svm`; where all visible tokens are selected, W = 0.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes; its head is not used.
    selected : array_like of bool, shape (..., n, T)
        Selected tokens, at least one visible token in each sequence; broadcast to the batch. Masked tokens
        count as not selected.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).
    errors : str
        "raise" raises at a problem that has no solution or cannot be solved; "nan" gives it NaN in ``W``,
        ``value``, ``multipliers`` and the certificate, rank -1 and ``solved`` False. Its ``feasible`` is
        False where infeasibility is proved, True where the solver gave up.

    Returns
    -------
    GeneralizedSVM
        Read-only arrays with the batch axes of the problem.

    Raises
    ------
    InfeasibleError
        If the constraints contradict each other, and ``errors="raise"``.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, or the problem can be neither
        solved nor proved infeasible, and ``errors="raise"``.
    DataError
        If ``problem`` is none, ``selected`` is not boolean or leaves a sequence without a selected token, or
        ``norm`` or ``errors`` is unknown.
    ShapeError
        If ``selected`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), (Gen-SVM). The equalities reach beyond the differences
    that they name: all combinations of the products :math:`(k_{it}-k_{i\tau})z_i^\top` within the selected
    sets are orthogonal to W, so that the Frobenius solution is orthogonal to every finite part.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.random_problem(2, 3, 4)
    >>> svm = generalized_svm(p, [[True, True, False], [False, True, False]])
    >>> a = p.keys @ (svm.W @ p.z[..., None])
    >>> (a[..., 0] - a.max((-2, -1))[:, None]).round(6) + 0.0
    array([[ 0.,  0., -1.],
           [-1.,  0., -1.]])
    """
    checked_norm(norm)
    stop = checked_errors(errors)
    flags = checked_selection(selected, problem)
    zeros = np.zeros(flags.shape)
    rows = _rows(problem, flags, zeros, with_margins=True)
    found = solve(rows, norm, stop)
    if stop:
        raise_failure(found, norm, _namer("generalised SVM", problem), _reason(problem, flags, zeros, found))
    shaped = _shaper(problem)
    pairs = (problem.n, problem.T)
    return GeneralizedSVM(
        W=shaped(found.W, *found.W.shape[1:]),
        value=shaped(found.value),
        rank=shaped(found.rank),
        selected=frozen(flags),
        constrained=shaped(rows.constrained, *pairs),
        support=shaped(found.slack < SUPPORT_TOLERANCE, *pairs),
        multipliers=shaped(_kept(found.multipliers, rows.constrained), *pairs),
        equalities=shaped(_kept(found.multipliers, rows.equal), *pairs),
        norm=norm,
        feasible=shaped(found.possible),
        certificate=_certificate(found, problem),
    )


def finite_part(
    problem: Problem,
    probabilities: ArrayLike,
    selected: ArrayLike | None = None,
    norm: str = "fro",
    errors: str = "raise",
) -> FinitePart:
    r"""Find the weights of least norm that give the selected tokens the ratios of their probabilities.

    Parameters
    ----------
    problem : Problem
        Data, with any batch axes; its head is not used.
    probabilities : array_like, shape (..., n, T)
        Attention, positive at selected tokens; only ratios count. Broadcast to the batch.
    selected : array_like of bool, shape (..., n, T), optional
        Selected tokens, at least one visible token in each sequence; by default those with probability above
        1e-3.
    norm : str
        "fro" (Frobenius) or "nuc" (nuclear).
    errors : str
        "raise" or "nan", as in :func:`generalized_svm`.

    Returns
    -------
    FinitePart
        Read-only arrays with the batch axes of the problem.

    Raises
    ------
    InfeasibleError
        If the equations contradict each other (log-ratios that miss each other by more than 1e-9), and
        ``errors="raise"``.
    SolverError
        If the solution cannot be certified to 1e-9 in double precision, and ``errors="raise"``.
    DataError
        If ``problem`` is none, a probability is negative, or not positive at a selected token, ``selected``
        is not boolean or leaves a sequence without a selected token, or ``norm`` or ``errors`` is unknown.
    ShapeError
        If ``probabilities`` or ``selected`` does not fit.

    Notes
    -----
    *Transformers as Support Vector Machines* (2023), the finite component of the attention weights. The
    Frobenius solution is a combination of the products :math:`(k_{it}-k_{i\tau})z_i^\top` within the selected
    sets.

    Examples
    --------
    >>> import svmlib as sv
    >>> p = sv.data.random_problem(2, 3, 4)
    >>> s = np.array([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]])
    >>> a = p.keys @ (finite_part(p, s).W @ p.z[..., None])
    >>> float(np.exp(a[0, 0, 0] - a[0, 1, 0]).round(6))
    3.0
    """
    checked_norm(norm)
    stop = checked_errors(errors)
    s = per_token(probabilities, "probabilities", problem)
    if (s < 0).any():
        raise DataError(f"probabilities must be >= 0, but the smallest is {s.min():g}.")
    empty = f"no probability exceeds {THRESHOLD:g}; pass selected=" if selected is None else "select one"
    flags = checked_selection(s > THRESHOLD if selected is None else selected, problem, empty)
    if not (s[flags] > 0).all():
        raise DataError(
            f"probabilities must be positive at selected tokens, but {int((s[flags] <= 0).sum())} of them "
            f"are 0: their log-ratios are infinite. Leave them out of selected."
        )
    logs = np.log(np.where(flags, s, 1.0))
    top = np.take_along_axis(logs, flags.argmax(-1)[..., None], -1)
    ratios = np.where(flags, top - logs, 0.0)
    rows = _rows(problem, flags, ratios, with_margins=False)
    found = solve(rows, norm, stop)
    if stop:
        raise_failure(found, norm, _namer("finite part", problem), _reason(problem, flags, ratios, found))
    shaped = _shaper(problem)
    pairs = (problem.n, problem.T)
    return FinitePart(
        W=shaped(found.W, *found.W.shape[1:]),
        value=shaped(found.value),
        rank=shaped(found.rank),
        selected=frozen(flags),
        log_ratios=frozen(ratios),
        multipliers=shaped(found.multipliers, *pairs),
        norm=norm,
        feasible=shaped(found.possible),
        certificate=_certificate(found, problem),
    )


def _rows(problem: Problem, flags: BoolArray, sides: FloatArray, with_margins: bool) -> Rows:
    """All constraints, relative to the first selected tokens."""
    first = flags.argmax(-1)
    others = np.arange(problem.T) != first[..., None]
    margins = problem.visible & ~flags & with_margins
    n, T = problem.n, problem.T
    return Rows(
        problem.differences(first).reshape(-1, n, T, problem.key_dim),
        problem.z.reshape(-1, n, problem.query_dim),
        margins.reshape(-1, n, T),
        (flags & others).reshape(-1, n, T),
        sides.reshape(-1, n, T),
    )


def _kept(a: FloatArray, where: BoolArray) -> FloatArray:
    """Entries of one kind of constraint; 0 elsewhere, NaN where a problem has no solution."""
    return np.where(where | np.isnan(a), a, 0.0)


def _namer(what: str, problem: Problem) -> Callable[[int], str]:
    return lambda b: f"The {what}{named(problem, b, problem.key_dim)}"


def _reason(
    problem: Problem, flags: BoolArray, sides: FloatArray, found: Solution
) -> Callable[[Features, FloatArray], str]:
    """Explain the first failure, if it is a contradiction."""
    if found.failure is None:
        return lambda features, weights: ""
    b = found.failure.position
    keys = np.broadcast_to(problem.keys, (*flags.shape, problem.key_dim))
    parts = (a.reshape(-1, *a.shape[len(problem.batch_shape) :])[b] for a in (keys, flags, sides))
    return partial(contradiction, *parts)


def _shaper(problem: Problem) -> Any:
    lead = problem.batch_shape

    def shaped(a: NDArray[Any], *own: int) -> NDArray[Any]:
        return frozen(a.reshape(lead + own))

    return shaped


def _certificate(found: Solution, problem: Problem) -> Certificate:
    shaped = _shaper(problem)
    return Certificate(*(shaped(getattr(found.certificate, name)) for name in ("primal", "dual", "gap")))
