"""Claims of the chapter on one query: the prompt and the matrix, the token SVM, the infimum."""

from __future__ import annotations

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import nnls

from svmlib import attention, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.errors import InfeasibleError
from svmlib.experiments import one_query as pictures

from .registry import Measured, claim

PAGE = "foundations/one_query"
TOKEN_SELECTION = "Max-Margin Token Selection (2023)"
OWN = "Derived in the chapter"


def flow(problem: data.Problem, start: FloatArray, times: FloatArray, loss: str = "logistic") -> FloatArray:
    """(r, e) gradient flow of a prompt problem at the given times, by a method for stiff equations.

    The gradient is the textbook one, another code than the library's; it is right as long as margins stay
    below about 25.
    """
    keys, gamma = problem.keys, problem.scores

    def move(t: float, p: FloatArray) -> FloatArray:
        a = keys @ p
        s = np.exp(a - a.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        f = (s * gamma).sum(-1, keepdims=True)
        slope = 1.0 if loss == "linear" else 1 / (1 + np.exp(f))
        return np.asarray(np.einsum("nt,nte->e", slope * s * (gamma - f), keys) / len(keys))

    path = solve_ivp(move, (0.0, times[-1]), start, "LSODA", times, rtol=1e-8, atol=1e-10)
    return np.asarray(path.y.T)


def autograd(problem: data.Problem, weights: attention.Direct) -> FloatArray:
    """Gradient of the logistic loss in W by automatic differentiation of the plain forward pass."""
    keys, X, z, y, v = (torch.tensor(a) for a in (problem.keys, problem.X, problem.z, problem.y, problem.v))
    W = torch.tensor(np.asarray(weights.W), requires_grad=True)
    s = torch.softmax(torch.einsum("nte,eq,nq->nt", keys, W, z), -1)
    f = y * (torch.einsum("nt,ntd->nd", s, X) @ v)
    torch.nn.functional.softplus(-f).mean().backward()  # type: ignore[no-untyped-call]
    assert W.grad is not None
    return np.asarray(W.grad.numpy())


def unit(a: FloatArray) -> FloatArray:
    """Rows divided by their lengths."""
    return np.asarray(a / np.linalg.norm(a, axis=-1, keepdims=True))


@claim(
    "thm-prompt-matrix",
    title="A prompt and a matrix behind one query take the same path",
    source=f"{TOKEN_SELECTION}, relation of p and W",
    chapter=PAGE,
    scope="n = 4, T = 5, keys of width 6, values of width 4, a query of width 3 and length 1.7, "
    "random starts, 500 steps of 0.05",
    seeds="batch elements 0 to trials − 1 of seed 0",
    trials=(20, 5),
)
def prompt_matrix(trials: int) -> list[Measured]:
    """Train both from related starts; then with equal step sizes, and with two queries in place of one."""
    rng = np.random.default_rng(0)
    X, keys = rng.normal(size=(trials, 4, 5, 4)), rng.normal(size=(trials, 4, 5, 6))
    u = 1.7 * unit(rng.normal(size=(trials, 3)))
    y, v = rng.choice([-1.0, 1.0], (trials, 4)), rng.normal(size=(trials, 4))
    matrix = data.Problem(X, np.repeat(u[:, None], 4, axis=1), y, v, keys=keys)
    prompt = data.prompt_problem(keys, matrix.scores, y)
    W0 = rng.normal(size=(trials, 6, 3))
    starts = attention.Direct(W0), attention.Direct(W0 @ u[..., None])
    slope = attention.gradient(prompt, starts[1]).matrix() @ u[:, None]
    exact = np.stack([autograd(matrix[b], attention.Direct(W0[b])) for b in range(trials)])
    logits, shape = [], []
    for rule, power in ((dynamics.gradient_descent, 2), (dynamics.normalized, 1)):
        of_W = dynamics.train(matrix, starts[0], rule(0.05), 500, record=10).W
        of_p = dynamics.train(prompt, starts[1], rule(0.05 * 1.7**power), 500, record=10).W
        logits.append(np.abs(attention.logits(matrix, of_W) - attention.logits(prompt, of_p)).max())
        rebuilt = W0[:, None] + (of_p - starts[1].W[:, None]) @ u[:, None, None] / 1.7**2
        shape.append(np.abs(rebuilt - of_W).max())
    same, other = (
        dynamics.train(problem, start, dynamics.normalized(0.05), 500, record=1).W[:, -1]
        for problem, start in (
            (prompt, starts[1]),
            (data.Problem(X, np.stack([u, u, -u, -u], axis=1), y, v, keys=keys), starts[0]),
        )
    )
    target = attention.logits(matrix, of_W[:, -1])
    apart = [np.abs(attention.logits(prompt, W) - target).max((-1, -2)) for W in (same, other @ u[..., None])]
    return [
        Measured("gradient in $W$ by autograd minus its formula", np.abs(slope - exact).max(), "<=", 1e-13),
        Measured("largest difference of logits, plain steps", logits[0], "<=", 1e-10),
        Measured("largest difference of logits, normalised steps", logits[1], "<=", 1e-10),
        Measured("$W(k)$ minus its formula, both rules", max(shape), "<=", 1e-10),
        Measured(
            "normalised steps of one length for both: difference of logits",
            min(apart[0]),
            ">=",
            1.0,
            breaks=True,
        ),
        Measured(
            "two queries $z$, $-z$ in place of one: difference of logits",
            min(apart[1]),
            ">=",
            1.0,
            breaks=True,
        ),
    ]


@claim(
    "prop-token-hull",
    title="The token SVM as a distance between hulls",
    kind="proposition",
    source="Geometry of the hard margin, for keys",
    chapter=PAGE,
    scope="random keys of width 2 to 5, n = 1, T = 5; the published three keys",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def token_hull(trials: int) -> list[Measured]:
    """Nearest points by nonnegative least squares, which shares no code with the solver."""
    distance, direction, decided = [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        keys = rng.normal(size=(1, 5, 2 + seed % 4))
        for token in range(5):
            q = nearest(np.delete(keys[0], token, axis=0) - keys[0, token])
            inside = bool(np.linalg.norm(q) < 1e-7)
            solved = svm.token_svm(keys, [token], errors="nan")
            decided.append(inside == bool(np.isnan(solved.value)))
            if not inside:
                distance.append(abs(float(solved.margin) - np.linalg.norm(q)))
                direction.append(np.abs(solved.p + q / (q @ q)).max() * np.linalg.norm(q))
    keys = pictures.single_input().keys
    exact = [np.array([-0.1, 1.0]) / 1.01, np.array([1.0, 0.0])]
    off = max(np.abs(svm.token_svm(keys, [t]).p - exact[t]).max() for t in (0, 1))
    margins = svm.token_svm(keys, [0]).p @ (keys[0, 0] - keys[0, 1:]).T
    try:
        svm.token_svm([[[-1.0], [0.0], [1.0]]], [1])
        refused = False
    except InfeasibleError:
        refused = True
    return [
        Measured("margin minus distance to the hull of the other keys", max(distance), "<=", 1e-7),
        Measured("solution minus its formula, relative", max(direction), "<=", 1e-6),
        Measured("feasible exactly where the key is outside that hull", min(decided), "==", 1.0),
        Measured("published keys: largest error against the exact solutions", off, "<=", 1e-8),
        Measured("published keys: margin over the token at $(1,0)$", margins[0], "==", 1.11 / 1.01, tol=1e-8),
        Measured("a key halfway between two others is refused", refused, "==", 1.0, breaks=True),
    ]


def nearest(points: FloatArray) -> FloatArray:
    """Point nearest to the origin of the convex hull of the rows."""
    scale = 1e4  # the weight of "the coefficients add up to one"
    A = np.vstack([points.T, np.full(len(points), scale)])
    weights = nnls(A, np.r_[np.zeros(points.shape[1]), scale])[0]
    return np.asarray(weights / weights.sum() @ points)


@claim(
    "cor-prompt-infimum",
    title="The infimum is not attained by a prompt",
    kind="corollary",
    source=f"{TOKEN_SELECTION}, infimum of the risk; constants from the chapter on the selector",
    chapter=PAGE,
    scope="n = 3, T = 7, planar keys (clouds), logistic loss; scalar keys, n = 1, T = 2, 3 and 7",
    seeds="0 to trials − 1",
    trials=(20, 5),
)
def prompt_infimum(trials: int) -> list[Measured]:
    """The excess at random vectors and along the ray of the SVM; the key that lies between two others."""
    clouds = [pictures.multiple_inputs(seed) for seed in range(trials)]
    rng, R = np.random.default_rng(0), np.linspace(30, 60, 31)
    anywhere, slopes, above, below = [], [], [], []
    for problem in clouds:
        points = np.geomspace(0.1, 20, 50)[:, None, None] * rng.normal(size=(50, 2, 1))
        anywhere.append(dynamics.gap(problem, points).min())
        ray = dynamics.gap(problem, R[:, None, None] * svm.token_svm(problem.keys, problem.optimal).W)
        slopes.append(np.polyfit(R, np.log(ray), 1)[0])
        slow = 1 / (1 + np.exp(np.array([1.0, 0.5])))  # |l'| at the largest and at the smallest score
        above.append((ray / (slow[1] * 6 * 0.5 * np.exp(-R))).max())
        below.append((ray / (slow[0] / 6 * 0.5 * np.exp(-R))).min())
    # both bounds are attained: many tokens at one point, far out; one token, at R = 0
    many = data.prompt_problem([[[1.0], *[[0.0]] * 6]], [[1.0, *[0.5] * 6]])
    single = data.prompt_problem([[[1.0], [0.0]]], [[1.0, 0.5]])
    touch = [
        float(dynamics.gap(many, np.array([[30.0]]), "linear") / (6 * 0.5 * np.exp(-30.0))),
        float(dynamics.gap(single, np.array([[0.0]]), "linear") / (0.5 * 0.5)),
    ]
    between = data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[0.0, 1.0, 0.0]])
    grid = np.linspace(-20, 20, 4001)
    value = attention.loss(between, grid[:, None, None])
    return [
        Measured("smallest excess at random vectors", min(anywhere), ">", 0.0),
        Measured("slope of the log excess along the ray, steepest", min(slopes), "==", -1.0, tol=0.02),
        Measured("slope of the log excess along the ray, flattest", max(slopes), "==", -1.0, tol=0.02),
        Measured("largest excess over the upper bound", max(above), "<=", 1.0),
        Measured("smallest excess over the lower bound", min(below), ">=", 1.0),
        Measured(
            "linear loss, six tokens at one point, $R=30$: over the upper bound",
            touch[0],
            "==",
            1.0,
            tol=1e-6,
        ),
        Measured("linear loss, $T=2$, $R=0$: over the lower bound", touch[1], "==", 1.0, tol=1e-12),
        Measured(
            "a best key between two others: smallest loss, at $p=0$",
            value.min() if abs(grid[value.argmin()]) < 1e-3 else np.nan,
            "==",
            0.5403,
            "the unreachable target is 0.3133",
            tol=1e-4,
            breaks=True,
        ),
    ]
