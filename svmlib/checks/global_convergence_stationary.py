"""Claims of the chapter on global convergence: stationary points of the loss at finite p."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from svmlib import data, dynamics, svm
from svmlib.arrays import BoolArray, FloatArray, as_float
from svmlib.attention import Direct, gradient, loss, probabilities, smoothness

from .global_convergence import OWN, PAGE
from .registry import Measured, claim

SADDLE = (
    [[0.126, -0.132], [0.640, 0.105], [-0.536, 0.362], [1.304, 0.947]],
    [0.544, 0.935, 0.816, 0.003],
)
"""Keys and scores of one sequence of four tokens whose loss has a saddle point."""

TRAP = (
    [[1.69, 0.49], [2.98, 0.71], [0.05, -2.27], [1.19, 0.37], [-0.42, -0.12], [-0.58, 0.99]],
    [0.57, 0.38, 0.23, 0.54, 0.63, 0.04],
)
"""Keys and scores of one sequence of six tokens whose loss has a strict local minimum and a saddle point."""

LINE = ([[-1.0], [0.0], [2.0], [3.0]], [0.8, 0.9, 0.0, 1.0])
"""Keys and scores of the sequence of the proposition on a finite minimum."""


def one_sequence(keys: ArrayLike, scores: ArrayLike) -> data.Problem:
    """Prompt problem of a single sequence with keys (..., T, e) and scores (..., T)."""
    return data.prompt_problem(np.asarray(keys)[..., None, :, :], np.asarray(scores)[..., None, :])


class Shape(NamedTuple):
    """Mean score of one sequence at points p, with its derivatives."""

    value: FloatArray
    """(...,) mean score."""
    slope: FloatArray
    """(..., e) gradient."""
    curvature: FloatArray
    """(..., e, e) Hessian."""
    scale: FloatArray
    """(...,) sum of the absolute values of the terms that the gradient adds up."""


def mean_score(keys: ArrayLike, scores: ArrayLike, points: ArrayLike) -> Shape:
    """Mean score of sequences with keys (..., T, e) and scores (..., T) at points (..., r, e)."""
    k, g, p = (as_float(a, name) for a, name in ((keys, "keys"), (scores, "scores"), (points, "points")))
    logits = np.einsum("...ri,...ti->...rt", p, k)
    s = np.exp(logits - logits.max(-1, keepdims=True))
    s /= s.sum(-1, keepdims=True)
    value = np.einsum("...rt,...t->...r", s, g)
    weight = s * (g[..., None, :] - value[..., None])
    apart = k[..., None, :, :] - np.einsum("...rt,...ti->...ri", s, k)[..., None, :]
    slope = np.einsum("...rt,...rti->...ri", weight, apart)
    curvature = np.einsum("...rt,...rti,...rtj->...rij", weight, apart, apart)
    scale = (np.abs(weight) * np.linalg.norm(apart, axis=-1)).sum(-1)
    return Shape(value, slope, curvature, scale)


def _newton(keys: FloatArray, scores: FloatArray, points: FloatArray, steps: int) -> FloatArray:
    """Newton steps of length at most 1 towards zeros of the slope, in the plane."""
    p = points
    for _ in range(steps):
        shape = mean_score(keys, scores, p)
        G, H = shape.slope, shape.curvature
        det = H[..., 0, 0] * H[..., 1, 1] - H[..., 0, 1] ** 2
        across = H[..., ::-1, ::-1] * np.array([[1.0, -1.0], [-1.0, 1.0]])  # the inverse is this over det
        with np.errstate(all="ignore"):  # far out everything underflows; such points go nowhere
            step = np.einsum("...ij,...j->...i", across, G) / det[..., None]
            step /= np.maximum(np.linalg.norm(step, axis=-1, keepdims=True), 1.0)
        p = np.clip(p - np.nan_to_num(step, nan=0.0, posinf=0.0, neginf=0.0), -60.0, 60.0)
    return p


def _search(keys: FloatArray, scores: FloatArray, angles: int = 16) -> tuple[FloatArray, BoolArray]:
    """Points (..., r, 2) that Newton's method reaches from a polar grid, and which of them are zeros."""
    turn = np.linspace(0.0, 2.0 * np.pi, angles, endpoint=False)
    radii = np.array([0.01, 0.6, 1.2, 2.0, 3.2, 5.0, 8.0, 12.0])
    grid = (radii[:, None, None] * np.stack([np.cos(turn), np.sin(turn)], axis=-1)).reshape(-1, 2)
    points = _newton(keys, scores, np.broadcast_to(grid, (*scores.shape[:-1], *grid.shape)), 45)
    shape = mean_score(keys, scores, points)
    small = np.linalg.norm(shape.slope, axis=-1) < 1e-9 * shape.scale
    return points, small & (np.linalg.norm(points, axis=-1) < 25.0)


def stationary_points(keys: ArrayLike, scores: ArrayLike) -> FloatArray:
    """Stationary points (r, 2) of one sequence with keys in the plane, those that Newton's method finds."""
    k, g = np.asarray(keys, dtype=float), np.asarray(scores, dtype=float)
    points, zero = _search(k, g, 36)
    found: list[FloatArray] = []
    for p in points[zero]:
        if all(np.linalg.norm(p - q) > 1e-6 for q in found):
            found.append(p)
    return np.array(found).reshape(-1, 2)


class Frequency(NamedTuple):
    """How many random sequences have stationary points."""

    instances: int
    """Feasible instances."""
    stationary: int
    """Of these, with a stationary point."""
    minimum: int
    """Of these, with a strict local minimum."""


def frequency(trials: int, T: int) -> Frequency:
    """Search random sequences in the plane, Gaussian keys and uniform scores, for stationary points."""
    drawn = [(r.normal(size=(T, 2)), r.uniform(size=T)) for r in map(np.random.default_rng, range(trials))]
    keys, scores = (np.stack(a) for a in zip(*drawn, strict=True))
    some = svm.feasible(one_sequence(keys, scores))
    points, zero = _search(keys[some], scores[some])
    curvature = mean_score(keys[some], scores[some], points).curvature
    # the loss decreases in the mean score, so that it has a minimum where the mean score has a maximum
    low = zero & (np.linalg.eigvalsh(curvature).max(-1) < 0)
    return Frequency(int(some.sum()), int(zero.any(-1).sum()), int(low.any(-1).sum()))


def enclosure(keys: ArrayLike, scores: ArrayLike, point: FloatArray) -> tuple[float, float, FloatArray]:
    """Certificate of the proposition at a point: 4 beta M eta, the radius 2 eta, safe eigenvalue bounds."""
    k, g = np.asarray(keys, dtype=float), np.asarray(scores, dtype=float)
    shape = mean_score(k, g, point[None])
    G, H = shape.slope[0], shape.curvature[0]
    reach = max(float(np.linalg.norm(a - b)) for a in k for b in k)
    third = 19.0 / 16.0 * float(np.ptp(g)) * reach**3
    eta, beta = float(np.linalg.norm(np.linalg.solve(H, G))), float(np.linalg.norm(np.linalg.inv(H), 2))
    values = np.linalg.eigvalsh(H)
    return 4.0 * beta * third * eta, 2.0 * eta, np.sign(values) * (np.abs(values) - third * 2.0 * eta)


@claim(
    "prop-hull",
    title="A best key among the others: the weights stay finite",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="one sequence, T = 5, width 3, best key a convex combination of the others; the keys −1, 0, 1",
    seeds="0 to trials − 1",
    trials=(200, 40),
)
def hull(trials: int) -> list[Measured]:
    """Hold the probability of the best token against its bound, and find the minimum of the example."""
    rng = np.random.default_rng(0)
    lam = rng.dirichlet(np.ones(4), size=trials)
    others = rng.normal(size=(trials, 4, 3))
    keys = np.concatenate([(lam[:, :, None] * others).sum(1, keepdims=True), others], axis=1)
    scores = np.broadcast_to([1.0, 0.0, 0.0, 0.0, 0.0], (trials, 5))
    p = one_sequence(keys, scores)
    W = rng.normal(size=(trials, 3, 1)) * np.resize([0.1, 1.0, 10.0], trials)[:, None, None]
    bound = 1.0 / (1.0 + np.exp(-(lam * np.log(lam)).sum(-1)))
    top = probabilities(p, W)[:, 0, 0]
    size = [_least(keys[b]) for b in range(10)]
    line = one_sequence([[-1.0], [0.0], [1.0]], [0.0, 1.0, 0.0])
    axis = np.linspace(-3.0, 3.0, 6001)
    value = loss(line, axis[:, None, None])
    free = one_sequence(keys + np.array([0.0, 0.0, 8.0]) * (np.arange(5) == 0)[:, None], scores)
    return [
        Measured("largest excess of the probability over its bound", (top - bound).max(), "<=", 1e-12),
        Measured("share of feasible instances", svm.feasible(p).mean(), "==", 0.0),
        Measured(
            "largest gradient at the minimum of the convex function of the proof", max(size), "<=", 1e-7
        ),
        Measured(
            "keys −1, 0, 1: distance of the smallest loss from p = 0", abs(axis[value.argmin()]), "<=", 1e-3
        ),
        Measured("the smallest loss", value.min(), "==", 0.5403, tol=1e-4),
        Measured("the loss of the best selection", dynamics.infimum(line), "==", 0.3133, tol=1e-4),
        Measured(
            "best key moved out of the hull: largest probability over its former bound",
            (probabilities(free, 5.0 * np.array([[0.0], [0.0], [1.0]]))[:, 0, 0] - bound).max(),
            ">",
            0.1,
            breaks=True,
        ),
    ]


def _least(keys: FloatArray) -> float:
    """Gradient of the loss where the sum of the odds against token 0 is smallest."""
    from scipy.optimize import minimize

    delta = keys[0] - keys[1:]

    def odds(q: FloatArray) -> tuple[float, FloatArray]:
        terms = np.exp(-delta @ q)
        return float(terms.sum()), -terms @ delta

    q = minimize(odds, np.zeros(keys.shape[-1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    G = gradient(one_sequence(keys, np.eye(len(keys))[0]), Direct(q[:, None])).matrix()
    return float(np.linalg.norm(G))


@claim(
    "prop-finite-minimum",
    title="A finite strict minimum although the best token can be separated",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="keys −1, 0, 2, 3 with scores 0.8, 0.9, 0, 1; 6000 plain steps of 1/L, 21 starts from −2.5 to 2.5",
)
def finite_minimum(trials: int) -> list[Measured]:
    """Find the roots, and run from both sides of the larger one."""
    roots = np.roots([1.0, 0.0, 0.3, -1.0, -2.4, 0.0, 0.1])
    real = np.sort(roots[(np.abs(roots.imag) < 1e-9) & (roots.real > 0)].real)
    trap, top = np.log(real)
    p = one_sequence(*LINE)
    start = np.linspace(-2.5, 2.5, 21)  # zero is one of them
    rule = dynamics.gradient_descent(float(1.0 / smoothness(p)))
    many = p.expand(len(start))
    run = dynamics.train(many, Direct(start[:, None, None]), rule, 6000, record=[6000])
    end, right = run.W[:, -1, 0, 0], start > top
    shape = mean_score(*LINE, np.array([[trap]]))
    return [
        Measured("number of positive roots of the polynomial", len(real), "==", 2),
        Measured("the optimal token can be separated", bool(svm.feasible(p)), "==", True),
        Measured(
            "second derivative of the mean score at the smaller one", shape.curvature[0, 0, 0], "<", -1e-3
        ),
        Measured(
            "from zero: distance from the finite minimum at the end",
            abs(end[10] - trap),
            "<=",
            1e-5,
        ),
        Measured(
            "starts left of the larger root: the same, largest", np.abs(end[~right] - trap).max(), "<=", 1e-3
        ),
        Measured(
            "starts right of it: share that selects the optimal token",
            (run.selected[right, 0] == 3).mean(),
            "==",
            1.0,
        ),
        Measured(
            "loss at the finite minimum, over the infimum", loss(p, [[trap]]) / dynamics.infimum(p), ">", 1.05
        ),
    ]


@claim(
    "prop-planar-stationary",
    title="Stationary points in the plane, enclosed",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="two instances with T = 4 and T = 6 tokens; random instances with Gaussian keys and uniform scores",
    seeds="0 to trials − 1",
    trials=(200, 60),
)
def planar_stationary(trials: int) -> list[Measured]:
    """Find the points by Newton's method, certify them, and count them in random instances."""
    saddle, trap = stationary_points(*SADDLE), stationary_points(*TRAP)
    low = trap[np.linalg.norm(trap - [0.65, 0.19], axis=1).argmin()]
    first, second = enclosure(*SADDLE, saddle[0]), enclosure(*TRAP, low)
    both = [one_sequence(*SADDLE), one_sequence(*TRAP)]
    size = [
        float(np.linalg.norm(gradient(p, Direct(q[:, None])).matrix()))
        for p, q in zip(both, (saddle[0], low), strict=True)
    ]
    count = frequency(trials, 4)
    share = count.stationary / count.instances
    equal = equal_share(60)
    return [
        Measured(
            "optimal tokens of both instances can be separated",
            all(svm.feasible(p) for p in both),
            "==",
            True,
        ),
        Measured("largest gradient at the refined points", max(size), "<=", 1e-10),
        Measured(r"largest $4\beta M\eta$ of the two certificates", max(first[0], second[0]), "<=", 1e-9),
        Measured("largest radius of the two enclosures", max(first[1], second[1]), "<=", 1e-9),
        Measured(
            "saddle: product of the eigenvalue bounds of the mean score's Hessian", first[2].prod(), "<", 0.0
        ),
        Measured("minimum: largest eigenvalue bound of the mean score's Hessian", second[2].max(), "<", 0.0),
        Measured(
            "random instances, T = 4: share with a stationary point",
            share,
            "in",
            (0.2, 0.52),
            f"{count.instances} feasible",
        ),
        Measured("random instances with equal non-optimal scores: the same", equal, "==", 0.0),
    ]


def equal_share(trials: int) -> float:
    """Share of random feasible sequences with equal non-optimal scores that have a stationary point."""
    keys = np.stack([np.random.default_rng(b).normal(size=(4, 2)) for b in range(trials)])
    scores = np.broadcast_to([1.0, 0.0, 0.0, 0.0], keys.shape[:-1])
    some = svm.feasible(one_sequence(keys, scores))
    return float(_search(keys[some], scores[some])[1].any(-1).mean())
