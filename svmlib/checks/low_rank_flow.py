"""Claims of the chapter on low rank: power iteration, and an instance where all is exact."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from svmlib import compare, data, dynamics, norms, svm
from svmlib.arrays import FloatArray, as_float
from svmlib.attention import Direct, Factored, gradient
from svmlib.errors import DataError

from .descent_factored import joint
from .low_rank import OWN, PAGE, both_random
from .registry import Measured, claim


def mirror_problem(a: ArrayLike, c: ArrayLike) -> data.Problem:
    r"""All mirror images of one sequence with good token a, bad token 0 and query c.

    Token and query of an image are :math:`\varepsilon\circ a` and :math:`\varepsilon\circ c`, with the same
    signs :math:`\varepsilon\in\{1\}\times\{-1,1\}^{r-1}`. If one product :math:`a_jc_j>0` is the largest, the
    nuclear solution has rank 1; the Frobenius solution has rank r.

    Parameters
    ----------
    a, c : array_like, shape (r,)
        Coordinates, nonzero.

    Returns
    -------
    Problem
        With n = 2^(r-1), T = 2, d = r; scores 1 and 0.

    Raises
    ------
    DataError
        If a coordinate is 0.
    ShapeError
        If the lengths differ.
    """
    token = as_float(a, "a", ndim=1)
    query = as_float(c, "c", ndim=1, last=token.shape)
    if not (token * query).all():
        raise DataError(f"a and c must not have zeros, got a = {token} and c = {query}; leave the axes out.")
    signs = np.array([(1.0, *s) for s in itertools.product((1.0, -1.0), repeat=len(token) - 1)])
    X = np.stack([signs * token, np.zeros_like(signs)], axis=1)
    head = np.zeros(len(token))
    head[0] = 1.0 / token[0]
    return data.Problem(X, signs * query, np.ones(len(signs)), head)


@claim(
    "prop-power-iteration",
    title="Under a constant force (K, Q) does power iteration, and W copies the force",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="random forces, d = 6, r = 3, m = 2 and 8; the start of training on n = 10, T = 5, d = 10",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def power_iteration(trials: int) -> list[Measured]:
    """Compare the closed form with fine Euler steps, then the first steps of real training with it."""
    errors, tails, shapes, ranks = [], [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        u, v = (np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(2))
        s = np.array([1.0, 1.0, 1.0, 0.8, 0.4, 0.0])
        K, Q = rng.normal(size=(2, 6, (2, 8)[seed % 2]))
        stacked = _block_exponential((u * s) @ v.T, 0.7) @ np.r_[K, Q]
        W = stacked[:6] @ stacked[6:].T
        errors.append(norms.FRO(u.T @ W @ v - _constant_force(u, s, v, K, Q, 0.7)) / norms.FRO(W))
        late = _constant_force(u, s, v, K, Q, 80.0)
        late /= norms.FRO(late)
        tails.append(norms.FRO(late[3:]) + norms.FRO(late[:3, 3:]))
        block = late[:3, :3]
        shapes.append(norms.FRO(block - block.T) + max(0.0, -np.linalg.eigvalsh((block + block.T) / 2).min()))
        ranks.append(int(compare.rank(block)) - min(3, K.shape[1]))
    p = data.random_problem(10, 5, 10, batch=max(5, trials // 2))
    force = -gradient(p, Direct.zeros(p)).matrix()
    left, _, right = np.linalg.svd(force)
    top = left[:, :, :1] * right[:, :1]
    seen = {}
    for scale in (1e-3, 1.0):
        run = dynamics.train(p, both_random(p, scale), joint(0.02), 60, record=[60])
        seen[scale] = np.median(compare.correlation(run.W[:, 0], top))
    own = dynamics.train(p, Direct.zeros(p), dynamics.normalized(0.02), 60, record=[60])
    return [
        Measured(
            "closed form against the matrix exponential, largest relative error", max(errors), "<=", 1e-12
        ),
        Measured("part outside the top pairs at time 80, relative, largest", max(tails), "<=", 1e-6),
        Measured("inside: distance from symmetric positive semidefinite, largest", max(shapes), "<=", 1e-6),
        Measured(r"inside: distance of the rank from $\min(r,m)$, largest", max(map(abs, ranks)), "==", 0),
        Measured(
            "factors of size 0.001, 60 steps: median correlation with the first force's top pair",
            seen[1e-3],
            ">=",
            0.97,
        ),
        Measured(
            "$W$ from 0, the same steps: median correlation with the first force",
            np.median(compare.correlation(own.W[:, 0], force)),
            ">=",
            0.97,
        ),
        Measured(
            "factors of size 1: the force changes first; median correlation with the top pair",
            seen[1.0],
            "<=",
            0.3,
            breaks=True,
        ),
    ]


def _block_exponential(G: FloatArray, time: float) -> FloatArray:
    """Exponential of time [[0, G], [G', 0]]."""
    d = len(G)
    return np.asarray(expm(time * np.block([[np.zeros((d, d)), G], [G.T, np.zeros((d, d))]])))


def _constant_force(
    u: FloatArray, s: FloatArray, v: FloatArray, K: FloatArray, Q: FloatArray, time: float
) -> FloatArray:
    """The statement's matrix of the numbers u_k' W v_l."""
    a, b = (u.T @ K + v.T @ Q) / 2, (u.T @ K - v.T @ Q) / 2
    grow, fall = np.exp(s * time)[:, None], np.exp(-s * time)[:, None]
    return np.asarray((grow * a + fall * b) @ (grow * a - fall * b).T)


@claim(
    "thm-mirror",
    title=r"Mirror images: $W$ keeps all of its rank, $(K,Q)$ loses it like $\sigma_1^{-(1-b_j/b_1)}$",
    kind="theorem",
    source=OWN,
    chapter=PAGE,
    scope="a = (1, 0.8, 0.6), c = (1, 0.9, 0.9), so n = 4, d = 3; starts of size 0.001, 0.1 and 1",
)
def mirror(trials: int) -> list[Measured]:
    """Compare the solver and short plain steps with the closed forms; then leave the aligned start."""
    a, c = np.array([1.0, 0.8, 0.6]), np.array([1.0, 0.9, 0.9])
    b, p = a * c, mirror_problem(a, c)
    fro, nuc = svm.attention_svm(p, norm="fro"), svm.attention_svm(p, norm="nuc")
    corner = np.zeros((3, 3))
    corner[0, 0] = 1.0 / b[0]
    steps = dynamics.gradient_descent(0.05)
    own = dynamics.train(p, Direct.zeros(p), steps, 2000, record=[10, 200, 2000])
    sizes = np.array([1e-3, 0.1, 1.0])
    root = np.sqrt(sizes)[:, None, None] * np.eye(3)
    run = dynamics.train(p.expand(3), Factored(root, root), steps, 5000, record=[200, 1000, 5000])
    sigma = np.einsum("brjj->brj", run.W)
    off = np.abs(run.W - sigma[..., None] * np.eye(3)).max()
    grown = np.log(sigma / sizes[:, None, None])
    slope = np.abs(grown[..., 1:] / grown[..., :1] - b[1:] / b[0]).max()
    ratio = sigma[:, -1, 1] / sigma[:, -1, 0]
    turns = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 3, 3)))[0]
    start = Factored(0.1 * np.broadcast_to(np.eye(3), (9, 3, 3)), 0.1 * turns)
    tilted = dynamics.train(p.expand(9), start, steps, 5000, record=[5000])
    s = np.log(np.linalg.svd(tilted.W[:, 0], compute_uv=False) / 0.01)
    wrong = np.median(np.abs(s[:, 1] / s[:, 0] - b[1] / b[0]))
    return [
        Measured(
            "Frobenius solution against its formula", norms.FRO(fro.W - np.diag(b) / (b @ b)), "<=", 1e-8
        ),
        Measured("nuclear solution against its formula", norms.FRO(nuc.W - corner), "<=", 1e-8),
        Measured(
            r"$W$ from 0: 1 − corr with $\mathrm{diag}(b)$, any step",
            (1 - compare.correlation(own.W, np.diag(b))).max(),
            "<=",
            1e-12,
        ),
        Measured("$(K,Q)$: entries off the diagonal, largest", off, "<=", 1e-12),
        Measured(r"$(K,Q)$: error of the exponent $b_j/b_1$, largest", slope, "<=", 1e-3, r"$\eta=0.05$"),
        Measured(
            r"$\sigma_2/\sigma_1$ after 5,000 steps, start 0.001 over start 1",
            ratio[0] / ratio[2],
            "<=",
            0.2,
        ),
        Measured(
            "start not aligned with the data: median error of the exponent",
            wrong,
            ">=",
            0.05,
            breaks=True,
        ),
    ]
