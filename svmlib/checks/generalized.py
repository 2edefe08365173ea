"""Claims of the chapter on the generalised SVM: the two programs and their geometry."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from svmlib import compare, data, svm
from svmlib.arrays import BoolArray, FloatArray
from svmlib.attention import probabilities
from svmlib.data import Problem

from .registry import Measured, claim

PAGE = "nonlinear/generalized_svm"
PAPER = "Transformers as Support Vector Machines (2023)"


def features(problem: Problem, selected: BoolArray, inside: bool) -> FloatArray:
    r"""Features :math:`(k_{io_i}-k_{it})z_i^\top` of one problem as rows, o_i the first selected token.

    Parameters
    ----------
    problem : Problem
        Without batch axes.
    selected : ndarray of bool, shape (n, T)
        Selected tokens.
    inside : bool
        Whether those of the selected tokens t are asked for, or those of the masked ones.

    Returns
    -------
    ndarray, shape (N, e q)
        One row for each pair.
    """
    first = selected.argmax(-1)
    others = np.arange(problem.T) != first[:, None]
    i, t = np.nonzero(problem.visible & others & (selected == inside))
    delta = problem.differences(first)[i, t]
    return np.asarray((delta[:, :, None] * problem.z[i][:, None, :]).reshape(len(i), -1))


def projector(rows: FloatArray) -> FloatArray:
    """Orthogonal projector on the span of some rows.

    Parameters
    ----------
    rows : ndarray, shape (N, D)
        Rows.

    Returns
    -------
    ndarray, shape (D, D)
        Symmetric.
    """
    if not len(rows):
        return np.zeros((rows.shape[1], rows.shape[1]))
    _, s, V = np.linalg.svd(rows, full_matrices=False)
    V = V[s > 1e-10 * s[0]]
    return np.asarray(V.T @ V)


def draw_selection(rng: np.random.Generator, n: int, T: int) -> BoolArray:
    """Random selected sets with at least one token selected in each sequence and one masked in all.

    Parameters
    ----------
    rng : Generator
        Randomness.
    n, T : int
        Sizes.

    Returns
    -------
    ndarray of bool, shape (n, T)
        Selected tokens.
    """
    flags = rng.random((n, T)) < 0.45
    flags[np.arange(n), rng.integers(T, size=n)] = True
    if flags.all():
        flags[0, 1] = not flags[0, 0]
    return flags


def apart(points: FloatArray, selected: BoolArray) -> float:
    """Distance of the affine hull of the selected points from the convex hull of the others.

    Parameters
    ----------
    points : ndarray, shape (T, d)
        Points.
    selected : ndarray of bool, shape (T,)
        Which span the affine hull.

    Returns
    -------
    float
        Distance, up to about 1e-6 where it is 0; infinite where all are selected.
    """
    if selected.all():
        return np.inf
    base, *rest = points[selected]
    out = np.eye(points.shape[1]) - projector(np.array(rest).reshape(-1, points.shape[1]) - base)
    others = (points[~selected] - base) @ out
    heavy = 1e4  # weight of the condition that the coefficients sum to one
    rows = np.vstack([others.T, heavy * np.ones(len(others))])
    weights = nnls(rows, np.r_[np.zeros(points.shape[1]), heavy])[0]
    return float(np.linalg.norm(others.T @ weights))


@claim(
    "prop-gen-feasible",
    title="When the two programs have solutions",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 2, T = 4, d = 2: some instances of either kind; n = 3, T = 4, d = 3",
    seeds="0 to trials − 1",
    trials=(150, 40),
)
def gen_feasible(trials: int) -> list[Measured]:
    """Compare the solver's verdict with distances of hulls, and its success at the width of the last item."""
    rng = np.random.default_rng(0)
    agree, verdict, finite = [], [], []
    for b in range(trials):
        p, chosen = data.random_problem(2, 4, 2, seed=b), draw_selection(rng, 2, 4)
        hulls = min(apart(p.X[i], chosen[i]) for i in range(2)) > 1e-5
        found = bool(svm.generalized_svm(p, chosen, errors="nan").feasible)
        agree.append(hulls == found)
        verdict.append(found)
        s = rng.dirichlet(np.ones(4), size=2)
        independent = chosen.sum(-1).max() <= 3  # any three of the tokens, none on a line with two others
        finite.append(bool(svm.finite_part(p, s, chosen, errors="nan").solved) == independent)
    wide = data.random_problem(3, 4, 3, batch=trials)
    sets = np.stack([draw_selection(rng, 3, 4) for _ in range(trials)])
    every = svm.generalized_svm(wide, sets, errors="nan").solved
    s = rng.dirichlet(np.ones(4), size=(trials, 3))
    both = every & svm.finite_part(wide, s, sets, errors="nan").solved
    # two sequences with one query and the same two tokens, in opposite roles
    X = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2)
    clash = Problem(X, np.ones((2, 2)), np.ones(2))
    flags = np.array([[True, False], [False, True]])
    return [
        Measured("share where hulls and solver agree, Gen-SVM", np.mean(agree), "==", 1.0),
        Measured("share feasible", np.mean(verdict), "in", (0.1, 0.9)),
        Measured("share where independence and solver agree, finite part", np.mean(finite), "==", 1.0),
        Measured("share with both solutions at $d=\\max(T-1,n)$", np.mean(both), "==", 1.0),
        Measured(
            "dependent queries: feasible, though the hulls are apart",
            bool(svm.generalized_svm(clash, flags, errors="nan").feasible),
            "==",
            False,
            breaks=True,
        ),
    ]


def random_instances(trials: int, n: int = 3, T: int = 4, d: int = 6) -> list[tuple[Problem, BoolArray]]:
    """Random problems with random selected sets.

    Parameters
    ----------
    trials : int
        Number of instances.
    n, T, d : int
        Sizes.

    Returns
    -------
    list of pairs
        Problem and selected tokens.
    """
    rng = np.random.default_rng(1)
    return [(data.random_problem(n, T, d, seed=b), draw_selection(rng, n, T)) for b in range(trials)]


@claim(
    "lem-gen-projected",
    title="The generalised SVM is a hard-margin program of projected features",
    kind="lemma",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, random selected sets",
    seeds="0 to trials − 1",
    trials=(40, 12),
)
def gen_projected(trials: int) -> list[Measured]:
    """Solve with the classical solver on projected features, and take other reference tokens."""
    error, raw, sums, slack, other, single = [], [], [], [], [], []
    rng = np.random.default_rng(2)
    for p, chosen in random_instances(trials):
        s = svm.generalized_svm(p, chosen)
        w = s.W.ravel()
        A, out = features(p, chosen, False), np.eye(w.size) - projector(features(p, chosen, True))
        B = A @ out
        error.append(np.linalg.norm(svm.hard_margin(B, np.ones(len(B))).w - w) / np.linalg.norm(w))
        if (chosen.sum(-1) > 1).any():
            plain = svm.hard_margin(A, np.ones(len(A))).w
            raw.append(1 - plain @ w / np.linalg.norm(plain) / np.linalg.norm(w))
        sums.append(abs(s.multipliers.sum() / s.value**2 - 1))
        turned = Problem(p.X[:, ::-1], p.z, p.y)  # the last selected tokens become the references
        other.append(np.abs(svm.generalized_svm(turned, chosen[:, ::-1]).W - s.W).max())
        V = rng.normal(size=w.size)
        rest = out @ (w + 0.5 * np.linalg.norm(w) / np.linalg.norm(V) * V)
        corr = rest @ w / np.linalg.norm(rest) / np.linalg.norm(w)
        slack.append(corr - (B @ rest).min() * s.value / np.linalg.norm(rest))
        alone = np.arange(p.T) == chosen.argmax(-1)[:, None]
        direct = svm.attention_svm(p, chosen.argmax(-1)).W
        single.append(np.abs(svm.generalized_svm(p, alone).W - direct).max())
    return [
        Measured("distance from the classical solver's point, relative", max(error), "<=", 1e-7),
        Measured("change with other reference tokens", max(other), "<=", 1e-8),
        Measured("error of $\\sum\\lambda=\\|W^{mm}\\|^2$, relative", max(sums), "<=", 1e-8),
        Measured("least slack of the bound on the correlation", min(slack), ">=", -1e-12),
        Measured("one token each: distance from the attention SVM", max(single), "<=", 1e-8),
        Measured("features not projected: mean of 1 − correlation", np.mean(raw), ">", 0.01, breaks=True),
    ]


@claim(
    "prop-fin-projection",
    title="The finite part is a projection, orthogonal to the direction",
    kind="proposition",
    source=f"{PAPER}, section on the generalised SVM; items 1 and 4 derived in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 6, random selected sets and weights; last row: nuclear programs",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def fin_projection(trials: int) -> list[Measured]:
    """Compare the finite part with a projection by singular vectors, and R with least squares."""
    rng = np.random.default_rng(3)
    apart_, cosine, scale, gain = [], [], [], []
    nuclear: list[float] = []
    for p, chosen in random_instances(trials):
        if not (chosen.sum(-1) > 1).any():
            continue
        W = rng.normal(size=(p.d, p.d))
        s = probabilities(p, W)
        fin, mm = svm.finite_part(p, s, chosen).W, svm.generalized_svm(p, chosen).W
        apart_.append(np.abs(projector(features(p, chosen, True)) @ W.ravel() - fin.ravel()).max())
        cosine.append(abs(compare.correlation(fin, mm)))
        R = float((W * mm).sum() / (mm * mm).sum())
        scale.append(abs(np.linalg.lstsq(mm.reshape(-1, 1), (W - fin).ravel(), rcond=None)[0][0] - R))
        gain.append(compare.correlation(W, fin + R * mm) - abs(compare.correlation(W, mm)))
        if len(nuclear) < trials // 2:
            n_fin, n_mm = svm.finite_part(p, s, chosen, "nuc").W, svm.generalized_svm(p, chosen, "nuc").W
            nuclear.append(float(abs(compare.correlation(n_fin, n_mm))))
    return [
        Measured("distance of $W^{fin}$ from the projection of W", max(apart_), "<=", 1e-9),
        Measured("largest |cosine| between $W^{fin}$ and $W^{mm}$", max(cosine), "<=", 1e-8),
        Measured("distance of R from least squares", max(scale), "<=", 1e-8),
        Measured("least gain of the sum over $W^{mm}$ alone, correlations", min(gain), ">=", -1e-12),
        Measured("nuclear: mean |cosine|", np.mean(nuclear), ">", 1e-3, breaks=True),
    ]
