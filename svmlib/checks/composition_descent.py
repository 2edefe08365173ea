"""Claims of the chapter on composing tokens: what W can reach, and where gradient descent goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.integrate import cumulative_trapezoid

from svmlib import attention
from svmlib.arrays import FloatArray
from svmlib.attention import Direct, best_attention, mlp, probabilities, quadratic
from svmlib.data import Problem, random_problem
from svmlib.dynamics import gradient_descent, normalized, train

from .composition import PAGE, margins, random_quadratic
from .overparam_orthogonal import orthogonal_problem
from .registry import Measured, claim


def features(problem: Problem) -> FloatArray:
    """Rows (x_it - x_i1) z_i' of one problem, flattened, for t after the first token.

    Parameters
    ----------
    problem : Problem
        Without a batch axis and without a mask.

    Returns
    -------
    ndarray, shape (n (T - 1), e q)
        One row for each pair.
    """
    delta = problem.keys[:, 1:] - problem.keys[:, :1]
    rows = np.einsum("nte,nq->nteq", delta, problem.z)
    return np.asarray(rows.reshape(problem.n * (problem.T - 1), -1))


def realised(problem: Problem, s: FloatArray) -> FloatArray:
    """Least matrix whose attention probabilities are s, as far as there is one.

    Parameters
    ----------
    problem : Problem
        Without a batch axis.
    s : ndarray, shape (n, T)
        Positive probabilities.

    Returns
    -------
    ndarray, shape (e, q)
        The least-squares solution.
    """
    wanted = np.log(s[:, 1:] / s[:, :1]).ravel()
    W = np.linalg.lstsq(features(problem), wanted, rcond=None)[0]
    return np.asarray(W.reshape(problem.key_dim, problem.query_dim))


@claim(
    "prop-best-reached",
    title="Independent features: the best attention gives the infimum, attained inside the simplex only",
    kind="proposition",
    source="derived in the chapter",
    chapter=PAGE,
    scope="n = 2, T = 3, d = 6; quadratic head, λ = 0.5 and 20; attention mixed with the uniform one",
    seeds="0 to trials − 1",
    trials=(30, 10),
)
def reached(trials: int) -> list[Measured]:
    """Build matrices with prescribed attention; then let two sequences share a query."""
    worst, inside, growth, above = 0.0, [], [], []
    for lam in (0.5, 20.0):
        p = random_quadratic(2, 3, 6, trials, lam)
        best = best_attention(p)
        floor = np.log1p(np.exp(-best.value)).mean(-1)
        drawn = attention.loss(p, np.random.default_rng(0).normal(scale=5.0, size=(trials, 6, 6)))
        above.append((drawn - floor).min())
        for b in range(trials):
            s = best.probabilities[b]
            if (s > 1e-3).all():
                W = realised(p[b], s)
                inside.append(abs(attention.loss(p[b], W) - floor[b]))
            elif (s == 0).any():
                Ws = [realised(p[b], (1 - e) * s + e / 3) for e in (1e-4, 1e-8, 1e-12)]
                excess = [attention.loss(p[b], W) - floor[b] for W in Ws]
                worst = max(worst, excess[-1])
                growth.append(np.linalg.norm(Ws[-1]) / np.linalg.norm(Ws[0]))
    q = random_quadratic(2, 4, 6, trials, 20.0)
    shared = Problem(q.X, np.repeat(q.z[:, :1], 2, axis=1), np.ones(2), head=q.head)
    shared = Problem(np.repeat(shared.X[:, :1], 2, axis=1), shared.z, np.array([1.0, -1.0]), head=q.head)
    best = best_attention(shared)
    floor = np.log1p(np.exp(-best.value)).mean(-1)
    low = np.min(
        [
            attention.loss(shared, 30.0 * np.random.default_rng(k).normal(size=(trials, 6, 6)))
            for k in range(50)
        ],
        axis=0,
    )
    return [
        Measured("smallest excess of random matrices", min(above), ">", 0.0),
        Measured("optimum inside: largest excess of the matrix that realises it", max(inside), "<=", 1e-10),
        Measured("instances of that kind", len(inside), ">=", trials / 3),
        Measured("optimum on the boundary: excess with 1e-12 of the uniform attention", worst, "<=", 1e-11),
        Measured("norm there over that at 1e-4, smallest", min(growth), ">", 1.5),
        Measured("instances of that kind", len(growth), ">=", trials / 3),
        Measured(
            "one query, opposite labels: smallest excess over 50 random matrices",
            (low - floor).min(),
            ">",
            0.01,
            breaks=True,
        ),
    ]


def orthogonal_quadratic(n: int, T: int, d: int, trials: int, curvatures: Sequence[float]) -> Problem:
    """Orthogonal tokens and queries of random lengths under heads v'u - lam |u|^2, labels +1.

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens, dimension.
    trials : int
        Number of instances.
    curvatures : sequence of float, length L
        Values of lam; each is paired with every instance.

    Returns
    -------
    Problem
        With batch shape (L, trials).
    """
    all_of = [orthogonal_problem(n, T, d, seed) for seed in range(trials)]
    X, z, v = (np.stack([getattr(p, name) for p in all_of]) for name in ("X", "z", "v"))
    lengths = np.random.default_rng(0).uniform(0.7, 1.4, (trials, n, T + 1, 1))
    X = lengths[:, :, :T] * X / np.linalg.norm(X, axis=-1, keepdims=True)
    z = lengths[:, :, T] * z / np.linalg.norm(z, axis=-1, keepdims=True)
    return Problem(X, z, np.ones(n), head=quadratic(v, np.array(curvatures)[:, None]))


def _spread_start(p: Problem, size: float, seed: int) -> Direct:
    """Weights whose logits are uniform in (-size, size), for orthogonal tokens and queries."""
    a = np.random.default_rng(seed).uniform(-size, size, p.X.shape[-4:-1])  # one for all curvatures
    tokens = a / np.square(p.X).sum(-1)
    queries = p.z / np.square(p.z).sum(-1, keepdims=True)
    return Direct(np.einsum("...nt,...ntd,...ne->...de", tokens, p.X, queries))


@claim(
    "thm-orthogonal-compose",
    title="Orthogonal tokens and queries, concave margins: every run composes as is best",
    kind="theorem",
    source="statement and proof in the chapter",
    chapter=PAGE,
    scope="head v'u − λ|u|², λ = 0.3 and 2, n = 2 and 1, T = 4, d = 5, random lengths and starts; steps of ¼",
    seeds="0 to trials − 1",
    trials=(30, 12),
)
def orthogonal_compose(trials: int) -> list[Measured]:
    """Gaps of long runs, the bound along fine ones, and convex heads from the same starts."""
    all_of = orthogonal_quadratic(2, 4, 5, trials, (0.3, 2.0, -0.3, -2.0))
    record = [*range(101), 800, 8000]
    run = train(all_of, _spread_start(all_of, 2.0, 1), gradient_descent(0.25), 8000, record=record)
    s = np.moveaxis(probabilities(all_of, run.W), -3, 0)
    best = best_attention(all_of)
    gap = best.value - np.stack([margins(all_of, at) for at in s])  # (record, curvature, trials, n)
    late = gap[-2:, :2].reshape(2, -1)
    seen = late[0] > 1e-6
    ratio = late[1, seen] / late[0, seen]
    kept = best.probabilities[:2].min(-1)
    inside = gap[-1, :2][kept > 0.02]
    norm = np.linalg.norm(run.W, axis=(-2, -1))[:2]
    growth = norm[..., -1] / norm[..., -2]

    one = orthogonal_quadratic(1, 4, 5, trials, (0.3, 2.0))
    goal = best_attention(one)
    walk = train(one, _spread_start(one, 6.0, 3), normalized(0.02), 3000, record=[0, 3000])
    s = np.moveaxis(probabilities(one, walk.W), -3, 0)
    far = goal.value - np.stack([margins(one, at) for at in s])
    waits = far[1] >= 1e-2
    share = np.where(goal.selected, s[0], 1.0).min(-1)  # smallest at the start among tokens that are to stay

    bound, total = _bound_along_the_flow(trials)
    return [
        Measured("mean gap of the margin at the start", gap[0, :2].mean((-2, -1)).min(), ">", 0.3),
        Measured("largest rise of a gap in a step", np.diff(gap[:101, :2], axis=0).max(), "<=", 1e-12),
        Measured("largest gap after 8,000 steps", late[1].max(), "<=", 0.25),
        Measured("its ratio to that after 800 steps, median", np.median(ratio), "<=", 0.15),
        Measured("optimum inside the simplex: largest gap", inside.max(), "<=", 1e-3),
        Measured(
            "all optima inside: largest quotient of the norms of W after 8,000 and 800 steps",
            growth[(kept > 0.02).all(-1)].max(),
            "<=",
            1.15,
        ),
        Measured("an optimum on the boundary: smallest", growth[(kept == 0.0).any(-1)].min(), ">=", 1.2),
        Measured("one sequence, far starts: mean gap at the start", far[0].mean(), ">", 0.3),
        Measured(
            "share of them with a gap below 0.01 after 3,000 short steps",
            1.0 - waits.mean(),
            ">=",
            0.9,
            f"all but {waits.sum()} of {waits.size}",
        ),
        Measured(
            "the others: largest share at the start of the last token to come",
            share[waits].max(initial=0.0),
            "<=",
            1e-3,
            "of the kept tokens, the one with the smallest share",
        ),
        Measured("fine steps: largest gap × clock ÷ Φ(0)", bound, "<=", 1.0),
        Measured("largest of Φ + ∫ gap d(clock), ÷ Φ(0)", total.max(), "<=", 1.002, "the proof's inequality"),
        Measured(
            "linear heads: the smallest of the same",
            total[0].min(),
            ">=",
            0.998,
            "there the inequality is an equality",
        ),
        Measured(
            "convex head, λ = −2: share of sequences at a wrong token",
            (gap[-1, 3] > 0.1).mean(),
            ">",
            0.2,
            breaks=True,
        ),
        Measured("the same, λ = −0.3: largest gap", gap[-1, 2].max(), ">", 0.1, breaks=True),
    ]


def _bound_along_the_flow(trials: int) -> tuple[float, FloatArray]:
    """Largest gap times clock over Phi(0); and Phi plus the integral of the gap in units of Phi(0)."""
    one = orthogonal_quadratic(1, 4, 5, trials, (0.0, 0.3, 2.0))
    goal = best_attention(one)
    eta, every = 0.02, 10
    steps = range(0, 1501, every)
    fine = train(one, _spread_start(one, 2.0, 2), gradient_descent(eta), steps[-1], record=steps)
    a = attention.logits(one, fine.W)[..., 0, :]
    s = probabilities(one, fine.W)[..., 0, :]
    kappa = np.square(one.X[..., 0, :, :]).sum(-1) * np.square(one.z[..., 0, :]).sum(-1, keepdims=True)
    value = np.stack([margins(one, s[..., r, None, :])[..., 0] for r in range(len(steps))], axis=-1)
    gap = goal.value - value
    speed = 1.0 / (1.0 + np.exp(value)) / np.exp(a).sum(-1)
    phi = (goal.probabilities / kappa[..., None, :] * np.exp(-a)).sum(-1)
    clock, missing = (cumulative_trapezoid(x, dx=eta * every, initial=0.0) for x in (speed, gap * speed))
    return float((gap * clock / phi[..., :1]).max()), np.asarray((phi + missing) / phi[..., :1])


@claim(
    "prop-relu-flat",
    title="A ReLU head is flat where no unit is active",
    kind="proposition",
    source="head: Transformers as Support Vector Machines (2023); statement and proof in the chapter",
    chapter=PAGE,
    scope="n = 1, T = 4, d = 4, one and three units, head of norm one; 1,000 normalised steps from zero",
    seeds="0 to trials − 1",
    trials=(200, 60),
)
def relu_flat(trials: int) -> list[Measured]:
    """Train single sequences under both labels and look at those that end where no unit is active."""
    least, margin, zero, stuck, best_there = [], [], [], [], []
    for units in (1, 3):
        base = random_problem(1, 4, 4, batch=trials)
        V = np.stack([np.random.default_rng(b).normal(size=(4, units)) for b in range(trials)])
        head = mlp(V / np.linalg.norm(V, axis=(-2, -1), keepdims=True))
        both = np.broadcast_to(np.array([-1.0, 1.0])[:, None, None], (2, trials, 1))
        p = Problem(base.X, base.z, both, head=head)
        W = train(p, Direct.zeros(p), normalized(0.1), 1000, record=[1000]).W[..., -1, :, :]
        s, f = probabilities(p, W)[..., 0, :], attention.predictions(p, W)[..., 0]
        dead = np.einsum("lbt,btd,bdh->lbh", s, base.X[:, 0], V).max(-1) < 0
        slope = np.abs(attention.gradient(p, Direct(W)).matrix()).max((-2, -1))
        zero.append(slope[dead].max(initial=0.0))
        least.append(s[0][dead[0]].min(initial=1.0))
        margin.append(np.abs(f[dead]).max(initial=0.0))
        inner = np.einsum("btd,bdh->bth", base.X[:, 0], V).max(-1).min(-1) < -1e-3
        stuck.append(dead[0][inner].mean())
        best_there.append(best_attention(p).value[1, dead[1], 0])
    lost = np.concatenate(best_there)
    return [
        Measured("no unit active: largest prediction, either label", max(margin), "==", 0.0),
        Measured("no unit active: largest entry of the gradient, either label", max(zero), "==", 0.0),
        Measured("no unit active, label −1: smallest probability of a token", min(least), ">", 1e-6),
        Measured(
            "label −1, a token with no unit active: share of runs that end flat, least", min(stuck), ">", 0.6
        ),
        Measured("label +1: runs that are stuck in the flat part", len(lost), ">=", 5),
        Measured(
            "label +1, stuck: mean margin that was to be had instead of zero",
            lost.mean(),
            ">",
            0.05,
            breaks=True,
        ),
    ]
