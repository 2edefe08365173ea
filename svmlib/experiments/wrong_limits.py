"""How often the first step separates, and where gradient descent goes wrong although nothing stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, svm
from svmlib._pivoted import get_loss
from svmlib.arrays import FloatArray, as_float, to_tensor, torch_normals
from svmlib.attention import Direct, gradient
from svmlib.data import Problem, check_problem, prompt_problem, random_problem
from svmlib.dynamics import normalized, train
from svmlib.errors import DataError

from .framework import Task, experiment

__all__ = [
    "cheapest_mistake",
    "p1_first_step",
    "p2_equal_scores",
    "p2_wrong_limit",
    "separatrix",
    "small_problem",
    "two_sequences",
]

MAX_MARGIN = "Max-Margin Token Selection in Attention Mechanism (2023)"


def cheapest_mistake(problem: Problem, loss: str = "logistic") -> FloatArray:
    r"""Excess loss of the best selection with a wrong token in it.

    .. math:: \varepsilon_0=\frac1n\min_i\big[\ell(\gamma_i^{(2)})-\ell(\gamma_{i\,\mathrm{opt}_i})\big]

    with the second best score :math:`\gamma_i^{(2)}`.

    Parameters
    ----------
    problem : Problem
        With a linear head.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    ndarray, shape (...)
        To be compared with ``run.gap``; 0 in a tie, infinite where no sequence has two tokens.

    Examples
    --------
    >>> import svmlib as sv
    >>> float(cheapest_mistake(two_sequences(), "linear"))
    0.5
    """
    best = np.sort(check_problem(problem).scores, axis=-1)[..., -2:]
    if best.shape[-1] < 2:
        return np.full(problem.batch_shape, np.inf)
    alone = np.isneginf(best[..., 0])  # one visible token: no mistake to make
    missing = np.where(alone, 0.0, best[..., 1] - np.where(alone, 0.0, best[..., 0]))
    excess = get_loss(loss).excess(to_tensor(best[..., 1]), to_tensor(missing)).numpy()
    return np.asarray(np.where(alone, np.inf, excess).min(-1) / problem.n)


def two_sequences(first: ArrayLike = (-2.0, 1.0), second: ArrayLike = (1.0, 0.0)) -> Problem:
    r"""Two sequences of two tokens and one vector p: key differences ``first`` and ``second``, score gaps 1.

    Parameters
    ----------
    first, second : array_like, shape (..., e)
        Key of the good token of a sequence; its other token has the key 0. Good tokens score 1, the others 0.

    Returns
    -------
    Problem
        A prompt problem; good tokens come first.

    Raises
    ------
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import svmlib as sv
    >>> sv.svm.attention_svm(two_sequences()).W[:, 0].round(6)
    array([1., 3.])
    """
    one = as_float(first, "first", min_ndim=1)
    two = as_float(second, "second", last=(one.shape[-1],), meaning="the width of first")
    one, two = np.broadcast_arrays(one, two)
    keys = np.stack([np.stack([a, np.zeros_like(a)], axis=-2) for a in (one, two)], axis=-3)
    return prompt_problem(keys, np.broadcast_to([1.0, 0.0], keys.shape[:-1]))


def separatrix(
    first: ArrayLike = (-2.0, 1.0),
    second: ArrayLike = (1.0, 0.0),
    *,
    loss: str = "logistic",
    length: float = 80.0,
) -> FloatArray:
    r"""Border of the starts from which the flow of :func:`two_sequences` keeps the worse token of sequence 1.

    Followed backwards from far out, where the margins :math:`u_1=-x`, :math:`u_2=y` satisfy
    :math:`x-y=\log\frac{(a-c)\,|\ell'(0)|}{(c-b)\,|\ell'(1)|}` with
    :math:`a=\|\Delta_1\|^2,\ b=\|\Delta_2\|^2,\ c=-\langle\Delta_1,\Delta_2\rangle`.

    Parameters
    ----------
    first, second : array_like, shape (2,)
        :math:`\Delta_1,\Delta_2`, with c > b.
    loss : str
        "logistic", "exponential" or "linear".
    length : float
        Arc length to follow, in units of the margins.

    Returns
    -------
    ndarray, shape (r, 2)
        Points p of the border, from far out inwards.

    Raises
    ------
    DataError
        If the vectors are parallel or c is at most b: there is no such border then.
    """
    from scipy.integrate import solve_ivp

    rows = np.stack([as_float(first, "first", last=(2,)), as_float(second, "second", last=(2,))])
    a, b, c = float(rows[0] @ rows[0]), float(rows[1] @ rows[1]), -float(rows[0] @ rows[1])
    if not (b < c and c * c < a * b):
        raise DataError(
            f"There is a border only if |second|^2 = {b:g} < -<first, second> = {c:g} and the two are not "
            "parallel." + (" Exchange first and second: sequence 2 is the one that can fail." * (a < c < b))
        )
    log_slope = get_loss(loss).log_slope

    def speed(_: float, u: FloatArray) -> FloatArray:
        odds = np.exp(-np.abs(u))
        good = np.where(u > 0, 1.0, odds) / (1.0 + odds)  # probability of the better token: its mean score
        # the factor that both terms share is left out: it does not matter to the curve
        push = np.exp(log_slope(to_tensor(good)).numpy() + np.abs(u).min() - np.abs(u)) / (1.0 + odds) ** 2
        flow = np.array([a * push[0] - c * push[1], b * push[1] - c * push[0]])
        return np.asarray(-flow / np.linalg.norm(flow))

    ends = np.exp(log_slope(to_tensor(np.array([0.0, 1.0]))).numpy())
    far = 30.0
    start = [-(far + np.log((a - c) * ends[0] / ((c - b) * ends[1]))), far]
    path = solve_ivp(speed, (0.0, length), start, rtol=1e-8, atol=1e-9, max_step=0.2)
    return np.asarray(np.linalg.solve(rows, path.y).T)


def small_problem(problem: Problem) -> Problem:
    """Same logits and scores with keys and queries in orthonormal coordinates of what they span.

    Training W from zero gives the same run, at a cost that no longer grows with the dimension.

    Parameters
    ----------
    problem : Problem
        With a linear head.

    Returns
    -------
    Problem
        Keys of width at most n T, queries of width at most n.
    """
    p = check_problem(problem)
    keys = p.keys.reshape(*p.batch_shape, p.n * p.T, p.key_dim)
    new_keys = keys @ np.linalg.qr(np.swapaxes(keys, -1, -2))[0]
    new_keys = new_keys.reshape(*p.batch_shape, p.n, p.T, -1)
    queries = p.z @ np.linalg.qr(np.swapaxes(p.z, -1, -2))[0]
    values = p.y[..., None] * np.where(p.visible, p.scores, 0.0)  # masked scores are minus infinity
    return Problem(values[..., None], queries, p.y, np.ones(1), mask=p.mask, keys=new_keys)


@experiment(
    "p1_first_step",
    about="how often the first step separates the optimal tokens, beside how often training finds them",
    source="Transformers as Support Vector Machines (2023), condition of the global convergence theorem",
    trials=200,
    test_trials=40,
    cost="about 25 s on 1 core",
)
def p1_first_step(
    task: Task,
    *,
    sequences: tuple[int, ...] = (5, 1),
    widths: tuple[int, ...] = (5, 10, 20, 50, 100, 200, 400),
    T: int = 5,
    steps: int = 2000,
) -> dict[str, Any]:
    """Ask, in random instances of growing dimension, whether the first step separates and training is global.

    Parameters
    ----------
    task : Task
        Trials are instances for each width.
    sequences : tuple of int
        Numbers of sequences n.
    widths : tuple of int
        Dimensions d.
    T : int
        Tokens of a sequence.
    steps : int
        Normalised steps of 0.1 from zero, logistic loss.

    Returns
    -------
    sequences, widths : ndarray of int
        The options.
    separates : ndarray of bool, shape (sequences, widths, trials)
        Whether all margins of the optimal tokens along the negative gradient at zero are positive.
    smallest : ndarray, same shape
        The smallest of these margins, of the gradient normalised to norm 1.
    optimal : ndarray of bool, same shape
        Whether training ends with the optimal token in every sequence.
    """
    cells = [(n, d) for n in sequences for d in widths]
    rows = [
        task.part(f"n{n}_d{d}", _first_step, n, T, d, steps, task) for n, d in task.progress(cells, "widths")
    ]
    shape = (len(sequences), len(widths), task.trials)
    found = {key: np.stack([r[key] for r in rows]).reshape(shape) for key in rows[0]}
    return {"sequences": np.array(sequences), "widths": np.array(widths), **found}


def _first_step(n: int, T: int, d: int, steps: int, task: Task) -> dict[str, Any]:
    p = small_problem(random_problem(n, T, d, batch=task.trials, seed=task.seed))
    zero = Direct.zeros(p)
    G = -gradient(p, zero).matrix()
    margins = compare.margins(G, p.keys, p.z, p.optimal).min((-2, -1))
    run = train(p, zero, normalized(0.1), steps, record=[steps], device=task.device)
    return {
        "separates": margins > 0,
        "smallest": margins / np.linalg.norm(G, axis=(-2, -1)),
        "optimal": (run.selected == p.optimal).all(-1),
    }


@experiment(
    "p2_wrong_limit",
    about="a grid of starts for two sequences of two tokens: which go to infinity in the wrong direction",
    source=f"{MAX_MARGIN}, setting; the example is ours",
    trials=1,
    cost="about 1 s on 1 core",
)
def p2_wrong_limit(
    task: Task,
    *,
    half: float = 8.0,
    side: int = 17,
    steps: int = 4000,
    rate: float = 0.1,
    loss: str = "logistic",
) -> dict[str, Any]:
    """Train p from a square grid of starts on the instance with differences (-2, 1) and (1, 0), score gaps 1.

    Parameters
    ----------
    task : Task
        A single run.
    half : float
        The grid covers [-half, half] squared.
    side : int
        Number of starts along a side.
    steps : int
        Number of normalised steps.
    rate : float
        Their length.
    loss : str
        "logistic", "exponential" or "linear".

    Returns
    -------
    start : ndarray, shape (side * side, 2)
        Starts.
    wrong : ndarray of bool, shape (side * side,)
        Whether sequence 1 ends with its worse token.
    global_correlation, wrong_correlation : ndarray, shape (side * side,)
        Correlation at the end with the solution (1, 3) for the good tokens, and with (1, 0).
    below : ndarray of bool, shape (side * side,)
        Whether a recorded loss was below that of every wrong selection.
    border : ndarray, shape (r, 2)
        The predicted border between the two kinds of starts, ``separatrix`` in its module.
    """
    axis = np.linspace(-half, half, side)
    start = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    p = two_sequences().expand(len(start))
    when = np.unique(np.r_[np.arange(0, steps, 20), steps])
    run = train(
        p, Direct(start[..., None]), normalized(rate), steps, record=when, loss=loss, device=task.device
    )
    end = run.W[:, -1, :, :]
    return {
        "start": start,
        "wrong": run.selected[:, 0] != 0,
        "global_correlation": compare.correlation(end, np.array([[1.0], [3.0]])),
        "wrong_correlation": compare.correlation(end, np.array([[1.0], [0.0]])),
        "below": (run.gap < cheapest_mistake(p, loss)[:, None]).any(-1),
        "border": separatrix(loss=loss),
    }


@experiment(
    "p2_equal_scores",
    about="random prompts with equal non-optimal scores: how often a worse token is selected for ever",
    source=f"{MAX_MARGIN}, assumption of equal scores; the measurement is ours",
    trials=100,
    test_trials=30,
    cost="about 5 s on 1 core",
)
def p2_equal_scores(
    task: Task,
    *,
    norms: tuple[float, ...] = (0.0, 1.0, 5.0, 20.0),
    n: int = 3,
    T: int = 5,
    e: int = 6,
    steps: int = 4000,
    rate: float = 0.05,
) -> dict[str, Any]:
    """Gaussian keys, one token of score 1 and the others of score 0, starts of several norms.

    Parameters
    ----------
    task : Task
        Trials are instances.
    norms : tuple of float
        Norms of the starts; the direction is random, the same for all of them.
    n, T, e : int
        Sequences, tokens, width of a key.
    steps : int
        Number of normalised steps.
    rate : float
        Their length.

    Returns
    -------
    norms : ndarray
        The option.
    feasible : ndarray of bool, shape (trials,)
        Whether the optimal tokens can be separated; all else is about these instances.
    optimal : ndarray of bool, shape (norms, trials)
        Whether the run ends with the optimal token in every sequence.
    correlation : ndarray, shape (norms, trials)
        Correlation at the end with the SVM of the optimal tokens; NaN where there is none.
    below : ndarray of bool, shape (norms, trials)
        Whether a recorded loss was below that of every wrong selection.
    smallest_excess : ndarray, shape (norms, trials)
        Smallest recorded loss above the infimum, over the excess of the cheapest wrong selection.
    """
    drawn = [torch_normals(task.seed + b, (n, T, e), (e,)) for b in range(task.trials)]
    keys = np.stack([k for k, _ in drawn]).astype(float)
    toward = np.stack([s for _, s in drawn]).astype(float)
    toward /= np.linalg.norm(toward, axis=-1, keepdims=True)
    p = prompt_problem(keys, np.broadcast_to(np.eye(T)[0], (task.trials, n, T)))
    solution = svm.attention_svm(p, errors="nan")
    level = cheapest_mistake(p)[:, None]
    when = np.unique(np.r_[np.arange(0, steps, 20), steps])
    rows: dict[str, list[Any]] = {"optimal": [], "correlation": [], "below": [], "smallest_excess": []}
    for size in task.progress(norms, "norms"):
        start = Direct(size * toward[..., None])
        run = train(p, start, normalized(rate), steps, record=when, device=task.device)
        rows["optimal"].append((run.selected == 0).all(-1))
        rows["correlation"].append(compare.correlation(run.W[:, -1], solution.W))
        rows["below"].append((run.gap < level).any(-1))
        rows["smallest_excess"].append((run.gap / level).min(-1))
    return {
        "norms": np.array(norms),
        "feasible": solution.solved,
        **{k: np.stack(r) for k, r in rows.items()},
    }
