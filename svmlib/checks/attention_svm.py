"""Claims of the chapter on the attention SVM: the program, its duals, certificates and feasibility."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import nnls

from svmlib import compare, data, norms, svm
from svmlib.arrays import FloatArray, IntArray

from .registry import Measured, claim

PAGE = "implicit_bias/attention_svm"
PAPER = "Transformers as Support Vector Machines (2023)"


def combine(p: data.Problem, weights: FloatArray, tokens: IntArray | None = None) -> FloatArray:
    r"""Sum :math:`\sum_{i,t}\lambda_{it}A_{it}` of the features, weights (..., n, T) -> (..., d, d)."""
    return np.asarray(np.einsum("...nt,...ntd,...ne->...de", weights, p.differences(tokens), p.z))


def relative(a: FloatArray, b: FloatArray | float) -> float:
    """Largest relative difference |a - b| / |b|."""
    return float(np.max(np.abs(a - b) / np.abs(b)))


@cache
def solved(n: int, T: int, d: int, trials: int, norm: str) -> tuple[data.Problem, svm.AttentionSVM]:
    """Random instances 0 to trials - 1 with the SVM of their optimal tokens, solved once a process."""
    p = data.random_problem(n, T, d, batch=trials)
    return p, svm.attention_svm(p, norm=norm)


def hull_point(p: data.Problem, tokens: IntArray | None = None) -> tuple[FloatArray, float]:
    r"""Weights of a point of the features' convex hull next to 0, and its Frobenius norm.

    Non-negative least squares on :math:`\|\sum u_{it}A_{it}\|_F^2+(\sum u_{it}-1)^2` has its minimum
    :math:`\Gamma^2/(1+\Gamma^2)` on the ray of the hull's point nearest to 0, at distance :math:`\Gamma`.
    Written here for one problem and without the library's solvers, as a second opinion on them.
    """
    index = p.checked_tokens(tokens)
    A = np.einsum("ntd,ne->ntde", p.differences(index), p.z).reshape(p.n * p.T, -1)
    free = (np.arange(p.T) != index[:, None]).ravel()
    system = np.vstack([A[free].T, np.ones(free.sum())])
    found, _ = nnls(system, np.append(np.zeros(p.d**2), 1.0), maxiter=50 * free.sum())
    weights = np.zeros(p.n * p.T)
    weights[free] = found / found.sum()
    return weights.reshape(p.n, p.T), float(np.linalg.norm(weights @ A))


@claim(
    "lem-nuclear-factors",
    title=r"$\|W\|_\star=\min\frac12(\|K\|_F^2+\|Q\|_F^2)$ over $KQ^\top=W$",
    kind="lemma",
    source="Recht, Fazel and Parrilo (2010), section 5",
    chapter=PAGE,
    scope="matrices of rank 3 in d = 6, balanced and random factors of width 3",
    seeds="0 to trials − 1",
    trials=(200, 50),
)
def nuclear_factors(trials: int) -> list[Measured]:
    """Price the factors of the singular value decomposition, then factors bent at random."""
    balanced, bent, short = [], [], []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        W = rng.normal(size=(6, 3)) @ rng.normal(size=(3, 6))
        u, s, vt = np.linalg.svd(W)
        K, Q = u[:, :3] * np.sqrt(s[:3]), vt[:3].T * np.sqrt(s[:3])
        M = np.eye(3) + 0.3 * rng.normal(size=(3, 3))
        price = norms.NUC(W)
        balanced.append(abs((norms.FRO(K) ** 2 + norms.FRO(Q) ** 2) / 2 / price - 1))
        bent.append((norms.FRO(K @ M) ** 2 + norms.FRO(Q @ np.linalg.inv(M).T) ** 2) / 2 / price)
        short.append(s[2] / norms.FRO(W))  # what the best product of width 2 leaves over
    return [
        Measured("price of the balanced factors, relative error", max(balanced), "<=", 1e-12),
        Measured(r"smallest price of bent factors of $W$, over $\|W\|_\star$", min(bent), ">=", 1.0 - 1e-12),
        Measured(
            "least error of factors narrower than the rank, relative", min(short), ">", 1e-6, breaks=True
        ),
    ]


@claim(
    "prop-att-margin",
    title=r"Smallest norm = largest margin, $\Gamma=1/\|W\|$",
    kind="proposition",
    source=f"{PAPER}, (Att-SVM)",
    chapter=PAGE,
    scope="n = T = 5, d = 10, both norms; 60 disturbed solutions an instance",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def largest_margin(trials: int) -> list[Measured]:
    """Disturb solutions and compare margins at norm one; solve again with an unrelated solver."""
    rows = []
    for name in ("fro", "nuc"):
        p, s = solved(5, 5, 10, trials, name)
        lowest = compare.margins(s.W, p.X, p.z, s.tokens).min((-2, -1))
        rng = np.random.default_rng(0)
        best = 0.0
        for size in np.geomspace(1e-6, 1.0, 60):
            W = s.W + size * s.value[:, None, None] * rng.normal(size=s.W.shape) / p.d
            reached = compare.margins(W, p.X, p.z, s.tokens).min((-2, -1)) / norms.get(name)(W)
            best = max(best, float((reached / s.margin).max()))
        second = svm.attention_svm_conic(p[0], norm=name)  # shares no code with the first solver
        rows += [
            Measured(
                f"margin at norm one, relative to $1/\\|W\\|$ ({name}), error",
                relative(lowest, 1.0),
                "<=",
                1e-8,
            ),
            Measured(f"best disturbed margin, relative to it ({name})", best, "<=", 1.0 + 1e-9),
            Measured(
                f"norm against that of another solver ({name}), relative error",
                relative(second.value, s.value[0]),
                "<=",
                1e-6,
            ),
        ]
    p, s = solved(5, 5, 10, trials, "fro")
    angle = compare.angle(svm.attention_svm_conic(p[0], norm="fro").W, s.W[0])
    rows.append(Measured("uniqueness: angle to that solver's solution (fro), radians", angle, "<=", 1e-4))
    scalars = np.array([[[-1.0], [0.0], [1.0]]])
    line = data.Problem(scalars, np.ones((1, 1)), np.ones(1))  # token 1 lies between the others
    reached = max(compare.margins([[w]], line.X, line.z, [1]).min() for w in np.linspace(-1, 1, 201))
    rows.append(Measured("infeasible selection: largest margin at norm one", reached, "<=", 0.0, breaks=True))
    return rows


@claim(
    "prop-kkt-fro",
    title=r"$W=\sum\lambda_{it}A_{it}$ with $\lambda\ge0$, and 0 on slack constraints",
    kind="proposition",
    source=f"{PAPER}, (Att-SVM); derived in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def kkt_frobenius(trials: int) -> list[Measured]:
    """Put solution and multipliers into the conditions; try to write the nuclear solution so as well."""
    p, s = solved(6, 8, 10, trials, "fro")
    gap = norms.FRO(s.W - combine(p, s.multipliers, s.tokens)) / s.value
    m = compare.margins(s.W, p.X, p.z, s.tokens)
    slack = np.where(np.isfinite(m), m - 1.0, 0.0)
    total = s.multipliers.sum((-2, -1))
    _, other = solved(6, 8, 10, trials, "nuc")
    rest = []
    for b in range(min(trials, 10)):
        A = np.einsum("ntd,ne->ntde", p[b].differences(), p[b].z).reshape(-1, p.d**2)
        rest.append(nnls(A.T, other.W[b].ravel(), maxiter=5000)[1] / norms.FRO(other.W[b]))
    return [
        Measured(r"$\|W-\sum\lambda A\|_F/\|W\|_F$, largest", gap.max(), "<=", 1e-8),
        Measured(
            r"complementary slackness $\sum\lambda(\langle A,W\rangle-1)/\sum\lambda$, largest",
            ((s.multipliers * np.abs(slack)).sum((-2, -1)) / total).max(),
            "<=",
            1e-8,
        ),
        Measured(
            r"$\sum\lambda$ against $\|W\|_F^2$, relative error", relative(total, s.value**2), "<=", 1e-8
        ),
        Measured(
            r"nuclear solution: distance to all $\sum\lambda A$, $\lambda\ge0$, relative, smallest",
            min(rest),
            ">",
            1e-3,
            breaks=True,
        ),
    ]


@claim(
    "prop-kkt-nuc",
    title=r"The dual matrix of a nuclear solution touches the unit ball of the spectral norm",
    kind="proposition",
    source=f"{PAPER}, (Att-SVM⋆); derived in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def kkt_nuclear(trials: int) -> list[Measured]:
    """Put solution and multipliers into the conditions, and compare singular vectors."""
    p, s = solved(6, 8, 10, trials, "nuc")
    G = combine(p, s.multipliers, s.tokens)
    sigma = np.linalg.svd(G, compute_uv=False)
    total = s.multipliers.sum((-2, -1))
    apart, low = 0.0, np.inf
    for b in range(trials):
        u, _, vt = np.linalg.svd(s.W[b])
        r = int(s.rank[b])
        apart = max(apart, float(np.linalg.norm(G[b] @ vt[:r].T - u[:, :r], axis=0).max()))
        low = min(low, float((sigma[b] > 1 - 1e-5).sum() - r))
    _, f = solved(6, 8, 10, trials, "fro")
    scaled = f.multipliers / norms.SPEC(f.W)[:, None, None]  # the Frobenius multipliers, made feasible here
    loss = 1 - scaled.sum((-2, -1)) / s.value
    return [
        Measured(r"spectral norm of $G=\sum\lambda A$, largest", sigma[:, 0].max(), "<=", 1 + 1e-8),
        Measured(
            r"$\sum\lambda$ against $\|W\|_\star$, relative error", relative(total, s.value), "<=", 1e-8
        ),
        Measured("$\\|Gv_k-u_k\\|$ for singular vectors of $W$, largest", apart, "<=", 1e-4),
        Measured("singular values 1 of $G$ beyond the rank of $W$, fewest", low, ">=", 0),
        Measured(
            "Frobenius multipliers as nuclear dual point: relative gap, smallest",
            loss.min(),
            ">",
            1e-3,
            breaks=True,
        ),
    ]


def _between(p: data.Problem, s: svm.AttentionSVM) -> float:
    """Largest relative gap between the upper and the lower bound of a certificate, without the library's."""
    norm = norms.get(s.norm)
    lower = s.multipliers.sum((-2, -1)) / norm.dual(combine(p, s.multipliers, s.tokens))
    upper = norm(s.W) / compare.margins(s.W, p.X, p.z, s.tokens).min((-2, -1))
    return relative(upper, lower)


@claim(
    "prop-certificate",
    title="Two matrix products bound the distance to the optimum",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 6, T = 8, d = 10; solutions disturbed by 1e-6 to 1; two solutions with orthogonal data",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def certificates(trials: int) -> list[Measured]:
    """Certify solutions, bound disturbed ones, show what a nuclear certificate leaves open."""
    p, s = solved(6, 8, 10, trials, "fro")
    _, t = solved(6, 8, 10, trials, "nuc")
    rng = np.random.default_rng(0)
    ratio = 0.0
    for size in np.geomspace(1e-6, 1.0, 30):
        W = s.W + size * rng.normal(size=s.W.shape)
        lowest = compare.margins(W, p.X, p.z, s.tokens).min((-2, -1))
        keep = lowest > 0
        W = W[keep] / lowest[keep, None, None]  # feasible again: all margins at least 1
        bound = norms.FRO(W) ** 2 - s.value[keep] ** 2
        ratio = max(ratio, float((norms.FRO(W - s.W[keep]) ** 2 / bound).max(initial=0.0)))
    flat, steep = np.ones((2, 2)), np.eye(2)  # both solve the instance of prop-nuc-nonunique
    return [
        Measured("relative gap between the two bounds (fro)", _between(p, s), "<=", 1e-8),
        Measured("relative gap between the two bounds (nuc)", _between(p, t), "<=", 1e-8),
        Measured(r"$\|W'-W\|_F^2$ over its bound $\|W'\|_F^2-\|W\|_F^2$, largest", ratio, "<=", 1 + 1e-6),
        Measured(
            "nuclear: distance of two solutions of one norm, relative",
            norms.FRO(flat - steep) / norms.FRO(steep) if norms.NUC(flat) == norms.NUC(steep) else np.nan,
            ">=",
            1.0 - 1e-12,
            breaks=True,
        ),
    ]


@claim(
    "prop-planted",
    title="Orthogonal constraints: the solution in closed form",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 4, T = 5, d = 8; then the same with queries turned towards each other",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def planted(trials: int) -> list[Measured]:
    """Compare solver and formula; turn the queries and use the formula all the same."""
    p, W = data.planted_problem(4, 5, 8, batch=trials)
    s = svm.attention_svm(p, norm="fro")
    size = (p.differences() ** 2).sum(-1) * (p.z**2).sum(-1)[..., None]
    weight = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    tilted = data.Problem(p.X, p.z + 0.5 * p.z[..., :1, :], p.y, p.v)
    scale = (p.differences() ** 2).sum(-1) * (tilted.z**2).sum(-1)[..., None]
    formula = combine(tilted, np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0))
    lowest = compare.margins(formula, tilted.X, tilted.z, p.optimal).min((-2, -1))
    reached = lowest / norms.FRO(formula) / svm.attention_svm(tilted, norm="fro").margin
    return [
        Measured("angle between solver and formula, largest", compare.angle(s.W, W).max(), "<=", 1e-7),
        Measured(
            r"$\|W\|_F^2$ against the sum of multipliers, relative error",
            relative(s.value**2, weight.sum((-2, -1))),
            "<=",
            1e-10,
        ),
        Measured(
            "share of support tokens among all but the selected",
            s.support.sum() / (p.n * (p.T - 1) * trials),
            "==",
            1.0,
        ),
        Measured(
            "queries not orthogonal: margin of the formula at norm one over the largest margin, greatest",
            reached.max(),
            "<=",
            0.99,
            breaks=True,
        ),
    ]
