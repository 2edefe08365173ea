"""Claims of the chapter on the generalised SVM: where it stops, the nuclear norm and silent heads."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize

from svmlib import compare, norms, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, probabilities
from svmlib.data import Problem
from svmlib.dynamics import normalized, train
from svmlib.experiments import composition_problem
from svmlib.experiments._mixtures import SELECTED, classify, silent
from svmlib.experiments.composition import awake

from .generalized import PAGE, features, projector
from .generalized_path import Composed
from .registry import Measured, claim


def nuclear_point(c: float, R: float) -> FloatArray:
    r"""Shortest matrix in the nuclear norm with :math:`W_{11}+W_{21}=c` and :math:`W_{12}\ge R`.

    Parameters
    ----------
    c, R : float
        Right-hand sides.

    Returns
    -------
    ndarray, shape (2, 2)
        Found by descent from both candidates, with the closed form of the norm of a 2 by 2 matrix.
    """

    def matrix(x: FloatArray) -> FloatArray:
        return np.array([[c - x[0], R + abs(x[2])], [x[0], x[1]]])

    def value(x: FloatArray) -> float:
        return float(norms.NUC(matrix(x)) - R)

    starts = (np.array([c / 2, 0.1, 0.0]), np.array([1e-3, 0.0, 0.0]), np.array([c**3 / R**2, c**2 / R, 0.0]))
    options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000}
    found = min(
        (minimize(value, x, method="Nelder-Mead", options=options) for x in starts), key=lambda f: f.fun
    )
    return matrix(found.x)


def factored_path(c: float, radius: float) -> FloatArray:
    """Minimise a loss with prices of composition over factors, in the example.

    Parameters
    ----------
    c : float
        Log-ratio of the optimal attention of the first sequence.
    radius : float
        Bound on half the sum of the squared norms of K and Q.

    Returns
    -------
    ndarray, shape (2, 2)
        The product found by BFGS from two starts.
    """
    p, star = nuclear_example(c)
    loss = Composed(p, star, np.array([[0.0, 0.0], [0.0, 1.0]]), np.ones(2))

    def factors(x: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        size = float(np.linalg.norm(x))
        K, Q = np.sqrt(2 * radius) / size * x.reshape(2, 2, 2)
        return K, Q, size

    def of(x: FloatArray) -> tuple[float, FloatArray]:
        K, Q, size = factors(x)
        value, G = loss.log_excess(K @ Q.T)
        g = np.concatenate([(G @ Q).ravel(), (G.T @ K).ravel()]) * np.sqrt(2 * radius) / size
        return value, g - (g @ x) * x / size**2

    found = []
    for t in (c / 2, 0.1):
        U, s, Vt = np.linalg.svd(np.array([[c - t, radius], [t, 0.05]]))
        x = np.concatenate([(U * np.sqrt(s)).ravel(), (Vt.T * np.sqrt(s)).ravel()])
        for _ in range(2):  # a fresh start forgets bad curvature
            x = minimize(of, x, jac=True, method="BFGS", options={"gtol": 1e-11, "maxiter": 2000}).x
        found.append(x)
    K, Q, _ = factors(min(found, key=lambda x: of(x)[0]))
    return np.asarray(K @ Q.T)


@claim(
    "prop-gen-nuclear",
    title="The nuclear path: direction and ratios survive, the sum of two parts does not",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="the example, log-ratio c = 2; shortest matrices for R = 10, 40, 160, factors for R = 8, 24",
)
def gen_nuclear(trials: int) -> list[Measured]:
    """Solve the programs of the example in both norms, and the shortest nuclear matrices beside them."""
    c = 2.0
    p, s = nuclear_example(c)
    chosen = s > 0
    fin = {norm: svm.finite_part(p, s, chosen, norm).W for norm in ("fro", "nuc")}
    mm = {norm: svm.generalized_svm(p, chosen, norm).W for norm in ("fro", "nuc")}
    radii = np.array([10.0, 40.0, 160.0])
    points = np.stack([nuclear_point(c, R) for R in radii])
    rest = points - radii[:, None, None] * mm["nuc"]
    target = np.array([[c, 0.0], [0.0, 0.0]])
    off = np.linalg.norm(rest - target, axis=(-2, -1))
    missed = np.linalg.norm(rest - fin["nuc"], axis=(-2, -1))
    same = max(np.abs(fin["fro"] - fin["nuc"]).max(), np.abs(mm["fro"] - mm["nuc"]).max())
    far = 1 - compare.correlation(points[-1], mm["nuc"])
    path = [factored_path(c, R) for R in (8.0, 24.0)]
    apart = [np.linalg.norm(W - W[0, 1] * mm["nuc"] - target) for W in path]
    ratio = abs(path[-1][0, 0] + path[-1][1, 0] - c)
    return [
        Measured("difference of the two norms' solutions", same, "<=", 1e-7),
        Measured(
            "distance of the nuclear path less $R\\,W^{mm}$ from $c\\,e_1e_1^\\top$, at R = 160",
            off[-1],
            "<=",
            0.06,
        ),
        Measured("that distance, at R = 160 over R = 10", off[-1] / off[0], "<=", 0.1),
        Measured("1 − correlation of that path with $W^{mm}$ at R = 160", far, "<=", 2e-4),
        Measured("factors minimised over a ball: error of the log-ratio at R = 24", ratio, "<=", 1e-6),
        Measured("their distance from $r\\,e_1e_2^\\top+c\\,e_1e_1^\\top$, R = 24", apart[-1], "<=", 0.3),
        Measured("that distance, at R = 24 over R = 8", apart[-1] / apart[0], "<=", 0.6),
        Measured(
            "its distance from $W^{fin}$ over $c/\\sqrt2$, at R = 160",
            missed[-1] / (c / np.sqrt(2)),
            ">",
            0.95,
            breaks=True,
        ),
    ]


def nuclear_example(c: float) -> tuple[Problem, FloatArray]:
    """Return the example of the chapter: one sequence composed with log-ratio c, one with a masked token.

    Parameters
    ----------
    c : float
        Log-ratio.

    Returns
    -------
    problem : Problem
        Without a head.
    s : ndarray, shape (2, 2)
        Attention.
    """
    X = np.array([[[1.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]])
    first = 1 / (1 + np.exp(-c))
    return Problem(X, np.eye(2), np.ones(2)), np.array([[first, 1 - first], [1.0, 0.0]])


@cache
def silent_runs(trials: int) -> dict[str, FloatArray]:
    """Train instances with ReLU heads, and pick accepted ones in which one sequence stays silent at the end.

    Parameters
    ----------
    trials : int
        Instances trained.

    Returns
    -------
    dict
        One entry for each picked run.
    """
    p = composition_problem(3, 4, 4, batch=trials)
    p = p[(p.y < 0).any(-1)]  # the filter rejects the others
    rule = normalized(0.1)
    run = train(p, Direct.zeros(p), rule, 2000, record=range(1800, 2001))
    off = silent(p, run.W)
    s = probabilities(p, run.W[:, -1])
    fine = classify(p, s) == 0
    never, always = ~off.any((1, 2)), np.asarray(off.all(1))
    picked = np.flatnonzero(fine & (always.sum(-1) == 1) & (off.any(1).sum(-1) == 1))
    found: dict[str, list[float]] = {"outside": [], "corr": [], "bound": []}
    for b in picked:
        q, chosen, j = p[b], s[b] > SELECTED, int(np.flatnonzero(always[b])[0])
        mm = svm.generalized_svm(q, chosen).W.ravel()
        rows = [i for i in range(3) if i != j]
        part = Problem(q.X[rows], q.z[rows], q.y[rows])
        everything = np.zeros((2, 4), dtype=bool)
        everything[:, 0] = True
        awake_span = projector(features(part, everything, False))
        moved = (run.W[b, -1] - run.W[b, 0]).ravel()
        found["outside"].append(float(np.linalg.norm(moved - awake_span @ moved) / np.linalg.norm(moved)))
        found["bound"].append(float(np.linalg.norm(awake_span @ mm) / np.linalg.norm(mm)))
        found["corr"].append(float(compare.correlation(run.W[b, -1], mm.reshape(4, 4))))
    asleep = awake(p[picked], run.W[picked, -1], s[picked], off[picked, -1], "fro")
    quiet = np.flatnonzero(fine & never)
    nothing = np.zeros((len(quiet), 3), dtype=bool)
    loud = awake(p[quiet], run.W[quiet, -1], s[quiet], nothing, "fro")
    return {"asleep": asleep, "loud": loud, **{key: np.array(a) for key, a in found.items()}}


@claim(
    "prop-gen-silent",
    title="Silent sequences stop voting",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 3, T = 4, d = 4, ReLU heads, steps 1,800 to 2,000; accepted runs with one silent sequence",
    seeds="0 to trials − 1",
    trials=(500, 350),
)
def gen_silent(trials: int) -> list[Measured]:
    """Project the movement of W, and compare with the program of all and of the awake sequences."""
    r = silent_runs(trials)
    return [
        Measured("number of runs with a silent sequence", len(r["corr"]), ">=", 4),
        Measured("share of the movement outside the awake features, largest", r["outside"].max(), "<=", 1e-9),
        Measured(
            "correlation with $W^{mm}$ less its bound, largest", (r["corr"] - r["bound"]).max(), "<=", 0.05
        ),
        Measured(
            "program of the awake sequences: median of 1 − correlation", np.median(r["asleep"]), "<=", 5e-3
        ),
        Measured(
            "no silent sequence: median of 1 − correlation with $W^{mm}$", np.median(r["loud"]), "<=", 5e-3
        ),
        Measured(
            "a silent sequence: median of 1 − correlation with $W^{mm}$",
            np.median(1 - r["corr"]),
            ">",
            0.01,
            breaks=True,
        ),
    ]
