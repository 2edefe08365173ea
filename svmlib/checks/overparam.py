"""Claims of the chapter on over-parameterisation."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from svmlib import compare, data, selection, svm
from svmlib.arrays import FloatArray
from svmlib.data import Problem
from svmlib.experiments._wide import compressed, slope_along

from .overparam_orthogonal import orthogonal_problem
from .registry import Measured, claim

PAGE = "convergence/overparameterization"
PAPER = "Transformers as Support Vector Machines (2023)"


def gram(problem: Problem, tokens: ArrayLike | None = None) -> FloatArray:
    """Inner products of the constraint matrices of one problem.

    Parameters
    ----------
    problem : Problem
        One problem, without a batch axis and without a mask.
    tokens : array_like of int, shape (n,), optional
        Selected tokens; the optimal ones by default.

    Returns
    -------
    ndarray, shape (N, N)
        For the N = n (T - 1) constraints, sequence by sequence.
    """
    index = problem.checked_tokens(tokens)
    i, t = np.nonzero(np.arange(problem.T) != index[:, None])
    delta = problem.differences(index)[i, t]
    return np.asarray((delta @ delta.T) * (problem.z[i] @ problem.z[i].T))


def deviation(problem: Problem, tokens: ArrayLike | None = None) -> float:
    """Largest row sum of the Gram matrix's distance from its value for orthonormal tokens and queries.

    Parameters
    ----------
    problem : Problem
        One problem.
    tokens : array_like of int, shape (n,), optional
        Selected tokens; the optimal ones by default.

    Returns
    -------
    float
        Below 1/4 all multipliers are positive.
    """
    ideal = np.kron(np.eye(problem.n), np.eye(problem.T - 1) + 1.0)
    return float(np.abs(gram(problem, tokens) - ideal).sum(1).max())


def condition(problem: Problem) -> float:
    """Left side of the theorem's condition, for the smallest bound on the inner products that holds.

    Parameters
    ----------
    problem : Problem
        One problem whose tokens and queries have length one.

    Returns
    -------
    float
        Below 1/4 all tokens are support tokens of every selection.
    """
    n, T = problem.n, problem.T
    rows = (problem.X.reshape(n * T, -1), problem.z)
    bound = max(float(np.abs(np.triu(x @ x.T, 1)).max()) for x in rows)
    return (T - 1) * (3.0 * bound + 4.0 * (n - 1) * bound**2)


def selections(n: int, T: int) -> FloatArray:
    """(T^n, n) all selections of one token in each of n sequences of T tokens."""
    return np.array(list(product(range(T), repeat=n)))


@claim(
    "lem-all-support",
    title=r"All tokens are support tokens if and only if $H^{-1}\mathbf 1\ge0$",
    kind="lemma",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = T = 4, d = 16, 32 and 64: some instances of either kind",
    seeds="0 to trials − 1",
    trials=(60, 20),
)
def all_support(trials: int) -> list[Measured]:
    """Compare the sign of the equality system's multipliers with the support tokens of the solver."""
    agree, kinds, error, slack = [], [], [], []
    for d in (16, 32, 64):
        p = data.random_problem(4, 4, d, batch=trials)
        s = svm.attention_svm(p)
        margins = compare.margins(s.W, p.keys, p.z, s.tokens)
        everywhere = np.where(np.isfinite(margins), margins, 1.0).max((-2, -1)) < 1.0 + 1e-9
        for b in range(trials):
            free = np.linalg.solve(gram(p[b]), np.ones(12))
            positive = free.min() >= 0
            agree.append(positive == everywhere[b])
            kinds.append(positive)
            others = np.arange(4) != s.tokens[b][:, None]
            if positive:
                error.append(np.abs(free - s.multipliers[b][others]).max() / free.max())
                error.append(abs(free.sum() / s.value[b] ** 2 - 1.0))
            else:  # the shortest W that meets all constraints with equality is longer than the solution
                slack.append(free.sum() / s.value[b] ** 2 - 1.0)
    return [
        Measured("share of instances where the two tests agree", np.mean(agree), "==", 1.0),
        Measured("share with positive multipliers", np.mean(kinds), "in", (0.05, 0.95)),
        Measured("multipliers and norm against the solver, relative error", max(error), "<=", 1e-8),
        Measured(
            "a negative entry: mean excess of the equality solution's squared norm",
            np.mean(slack),
            ">",
            1e-3,
            breaks=True,
        ),
    ]


def _everywhere(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """(B,) whether all tokens are support tokens of every selection; (B,) number of locally optimal ones."""
    chosen = selections(problem.n, problem.T)
    many = problem.expand(len(chosen))
    s = svm.attention_svm(
        many, np.broadcast_to(chosen[:, None], (len(chosen), len(problem), problem.n)), errors="nan"
    )
    full = s.support.sum((-2, -1)) == problem.n * (problem.T - 1)
    return full.all(0), selection.locally_optimal(many, s).sum(0)


def width_needed(n: int, T: int, failure: float) -> int:
    """Width from which the theorem promises support tokens everywhere, up to the given probability."""
    return int(np.ceil(64 * T * max(18 * T, n) * np.log((n * (T + 1)) ** 2 / failure)))


@claim(
    "thm-large-width",
    title="Wide enough, all tokens are support tokens of every selection",
    kind="theorem",
    source=f"{PAPER}, section on over-parameterisation (argued there); statement and proof in the chapter",
    chapter=PAGE,
    scope="n = T = 2 at the width of the theorem for failure probability 0.1; n = T = 3 at d = 16000",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def large_width(trials: int) -> list[Measured]:
    """Enumerate all selections at the theorem's width, and where its condition on row sums holds."""
    d = width_needed(2, 2, 0.1)
    promised = compressed(data.random_problem(2, 2, d, batch=trials))
    wide = compressed(data.random_problem(3, 3, 16000, batch=trials))
    sums, off = [], []
    for b, tokens in product(range(trials), selections(3, 3)):
        sums.append(deviation(wide[b], tokens) / condition(wide[b]))
        off.append(np.abs(3.0 * np.linalg.solve(gram(wide[b], tokens), np.ones(6)) - 1.0).max())
    full, local = _everywhere(wide)
    own = compressed(data.random_problem(3, 3, 16000, batch=trials, self_attention=True))
    flat = data.random_problem(3, 3, 4, batch=trials)
    lifted = np.linalg.qr(np.random.default_rng(0).normal(size=(500, 4)))[0].T
    assert flat.v is not None
    hidden = Problem(flat.X @ lifted, flat.z @ lifted, flat.y, flat.v @ lifted)
    seen, spurious = _everywhere(compressed(hidden))
    return [
        Measured(
            f"n = T = 2, d = {d}: share with all tokens on the margin of all 4 selections",
            _everywhere(promised)[0].mean(),
            ">=",
            0.9,
        ),
        Measured(
            "the same: share where the condition of part 1 holds",
            np.mean([condition(promised[b]) < 0.25 for b in range(trials)]),
            ">=",
            0.9,
        ),
        Measured(
            "n = T = 3, d = 16000: largest left side of the condition",
            max(condition(wide[b]) for b in range(trials)),
            "<",
            0.25,
        ),
        Measured("the same, all 27 selections: largest row sum over the left side", max(sums), "<=", 1.0),
        Measured(r"the same: largest $|T\lambda-1|$", max(off), "<", 1.0),
        Measured("the same: share with all tokens on the margin of all selections", full.mean(), "==", 1.0),
        Measured("the same: largest number of locally optimal selections", local.max(), "==", 1),
        Measured(
            "self-attention: share with all tokens on the margin of all selections",
            _everywhere(own)[0].mean(),
            "==",
            1.0,
        ),
        Measured(
            "d = 500, but tokens and queries in 4 dimensions: the same share",
            seen.mean(),
            "<",
            0.5,
            breaks=True,
        ),
        Measured(
            "the same: mean number of locally optimal selections", spurious.mean(), ">", 1.05, breaks=True
        ),
    ]


@claim(
    "cor-one-direction",
    title="Then the optimal tokens are the only locally optimal ones, and the loss falls along their SVM",
    kind="corollary",
    source=f"{PAPER}, section on over-parameterisation; proof in the chapter",
    chapter=PAGE,
    scope="orthogonal tokens, n = 3, T = 4; every selection, and 500 random logits an instance",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def one_direction(trials: int) -> list[Measured]:
    """Count locally optimal selections and look for uphill points; then take few dimensions."""
    count, steepest = [], []
    for seed in range(trials):
        p = orthogonal_problem(3, 4, 6, seed)
        one = p.expand(1)
        count.append(int(_everywhere(one)[1][0]))
        steepest.append(_slopes(one, 500, seed).max())
    few = data.random_problem(3, 4, 3, batch=5 * trials)
    solved = svm.feasible(few)
    return [
        Measured("largest number of locally optimal selections", max(count), "==", 1),
        Measured("smallest number of locally optimal selections", min(count), "==", 1),
        Measured(
            r"largest slope $\langle\nabla\mathcal L,W^{\mathrm{mm}}\rangle$ found", max(steepest), "<", 0.0
        ),
        Measured(
            "d = 3, random tokens: mean number of locally optimal selections",
            _everywhere(few)[1].mean(),
            ">",
            1.05,
            breaks=True,
        ),
        Measured("d = 3: largest slope found", _slopes(few[solved], 500, 0).max(), ">", 0.0, breaks=True),
    ]


def _slopes(problem: Problem, points: int, seed: int) -> FloatArray:
    """(points, B) slope of the logistic loss along the SVM solution where the logits are random."""
    return slope_along(problem, svm.attention_svm(problem).W, points, seed)
