"""Claims of the chapter on a hierarchy of SVMs: steepest descent in any norm, and mirror descent."""

from __future__ import annotations

from functools import cache

import numpy as np

from svmlib import attention, compare, data, dynamics, norms, svm
from svmlib.arrays import FloatArray
from svmlib.experiments import wrong_limits

from .mirror import OWN, PAGE, features, image
from .registry import Measured, claim

ENTRIES = {"l1.25": norms.lp(1.25), "l1.75": norms.lp(1.75), "l4": norms.lp(4)}
LAG = r"$1-\langle\Theta,\hat W\rangle/\|\Theta\|_q$"
STUCK = attention.Direct(np.array([[12.0], [0.0]]))  # above the level, beside a wrong selection
NORMS = {**ENTRIES, "fro": norms.FRO, "nuc": norms.NUC}


def largest_margin(p: data.Problem, norm: norms.Norm) -> FloatArray:
    """(...) largest margin of the optimal tokens at norm one."""
    if norm.exponents is not None:
        return svm.lp_svm(p, p=norm.exponents[0]).margin
    return svm.attention_svm(p, norm=norm.name).margin


def weights_of(p: data.Problem, W: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights p_j (..., n, T) in −∇log of the excess linear loss = Σ p_j A_j, and their sum P (...)."""
    s = attention.probabilities(p, W)
    r = s.ndim - p.scores.ndim  # an axis of iterates, perhaps
    best = np.take_along_axis(p.scores, p.optimal[..., None], -1)
    g = (best - p.scores)[:, None] if r else best - p.scores
    e = (s * g).sum(-1, keepdims=True)
    parts = np.where(g > 0, s * (g - e), 0.0) / e.sum((-2, -1), keepdims=True)
    return parts, parts.sum((-2, -1))


def reach(p: data.Problem, norm: norms.Norm) -> FloatArray:
    """(...) largest dual norm of a difference of two tokens times the query."""
    apart = p.X[..., :, None, :] - p.X[..., None, :, :]
    return np.asarray(norm.dual(apart[..., None] * p.z[..., None, None, None, :]).max((-3, -2, -1)))


def below(p: data.Problem, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Starts off the SVM direction whose excess linear loss is at most half the level, and the level."""
    ordered = np.sort(p.scores, axis=-1)
    level = (ordered[..., -1] - ordered[..., -2]).min(-1) / p.n
    solution = svm.attention_svm(p)
    noise = np.random.default_rng(seed).normal(size=solution.W.shape)
    lowest = compare.margins(noise, p.X, p.z, p.optimal).min((-2, -1))
    V = solution.W + (0.5 / np.maximum(-lowest, 1e-9))[:, None, None] * noise
    sizes = 2.0 ** np.arange(10)
    gaps = dynamics.gap(p, sizes[:, None, None] * V[:, None], "linear")
    first = (gaps <= 0.5 * level[:, None]).argmax(-1)
    return sizes[first][:, None, None] * V, level


def sandwich(p: data.Problem, run: dynamics.Run, lengths: FloatArray, norm: norms.Norm) -> FloatArray:
    """Margin at norm one over an upper bound for it: the dual norm of averaged weights of the features."""
    parts, total = weights_of(p, run.W[:, :-1])
    share = lengths[:, None, None] * parts / total[..., None, None]
    mean = share.sum(1) / share.sum((1, 2, 3))[:, None, None]
    bound = norm.dual(np.einsum("bnt,bntij->bij", mean, features(p, p.optimal)))
    margins = compare.margins(run.W[:, -1], p.X, p.z, p.optimal).min((-2, -1))
    return np.asarray(margins / norm(run.W[:, -1]) / bound)


@claim(
    "lem-lp-pull",
    title="Below the level the excess loss pulls like features, and its logarithm is smooth",
    kind="lemma",
    source=OWN,
    chapter=PAGE,
    scope="n, T, d = 4, 5, 6, linear loss for the weights, Frobenius, nuclear and ℓ₄ norm for the curvature",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def pull(trials: int) -> list[Measured]:
    """The weights from probabilities, against the gradient, and their bounds; curvature by differences."""
    p, rng = data.random_problem(4, 5, 6, batch=trials), np.random.default_rng(1)
    start, level = below(p)
    A, ordered = features(p, p.optimal), np.sort(p.scores, axis=-1)
    spread = 4.0 * (ordered[..., -1] - ordered[..., 0]).max(-1) / (level * p.n)
    constant = np.log(p.n * (p.T - 1) * spread)
    error, positive, total, limit, mean = [], [], [], [], []
    for scale in (1.0, 1.3, 2.0, 8.0):
        W = scale * start
        gap = dynamics.gap(p, W, "linear")
        parts, sums = weights_of(p, W)
        G = -attention.gradient(p, attention.Direct(W), "linear").matrix() / gap[:, None, None]
        pulled = np.einsum("bnt,bntij->bij", parts, A)
        error.append((norms.FRO(G - pulled) / norms.FRO(G)).max())
        margins = compare.margins(W, p.X, p.z, p.optimal)
        finite = np.where(np.isfinite(margins), margins, 0.0)
        low = (gap <= 0.5 * level)[:, None, None]
        positive.append(np.where(low & np.isfinite(margins), parts, np.inf).min())
        total.append((sums - (1.0 - gap / level)).min())
        limit.append(np.abs(sums - 1.0).max())
        over = (parts * finite).sum((-2, -1)) / sums - margins.min((-2, -1)) - constant
        mean.append(over[low[:, 0, 0]].max())
    bent = []
    for norm in (norms.FRO, norms.NUC, norms.lp(4)):
        for scale in (0.0, 0.2, 1.0, 2.0):
            D = rng.normal(size=start.shape)
            D, h = D / norm(D)[:, None, None], 1e-3
            logs = [np.log(dynamics.gap(p, scale * start + k * h * D, "linear")) for k in (-1, 0, 1)]
            bent.append(((logs[0] - 2.0 * logs[1] + logs[2]) / h**2 / reach(p, norm) ** 2).max())
    tight = data.prompt_problem([[[1.0, 0.1], [0.0, 0.0]], [[-1.0, 0.1], [0.0, 0.0]]], [[1.0, 0.0]] * 2)
    logs = [np.log(dynamics.gap(tight, np.array([[k * 1e-3], [100.0]]), "linear")) for k in (-1, 0, 1)]
    sharp = (logs[0] - 2.0 * logs[1] + logs[2]) / 1e-6 / reach(tight, norms.FRO) ** 2
    # the mean score is below the second best one
    free = data.prompt_problem([[[1.0], [0.9], [0.0]]], [[1.0, 0.9, 0.0]])
    above = weights_of(free, np.array([[-1.0]]))[0].min()
    return [
        Measured("gradient of the log excess against the sum of features, relative", max(error), "<=", 1e-10),
        Measured("smallest weight below half the level", min(positive), ">", 0.0),
        Measured("sum of the weights less $1-E/\\varepsilon$, smallest", min(total), ">=", -1e-12),
        Measured("sum of the weights at 8 times the start: largest distance from 1", limit[-1], "<=", 1e-3),
        Measured("mean margin less smallest margin less its bound, largest", max(mean), "<=", 0.0),
        Measured("second derivative of the log excess over $L_{\\log}$, largest", max(bent), "<=", 1.0),
        Measured("the same for two opposite features: the bound is attained", sharp, ">=", 0.95),
        Measured("above the level: smallest weight", above, "<", 0.0, breaks=True),
    ]


@claim(
    "thm-lp-steepest",
    title="Steepest descent of the attention layer finds the largest margin of its norm",
    source=OWN,
    chapter=PAGE,
    scope="n, T, d = 4, 5, 6, linear loss; from below the level with the steps of part 2; steps (k+1)^-0.2, "
    "1,500 of them; three entry-wise norms, Frobenius, nuclear, spectral",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def steepest(trials: int) -> list[Measured]:
    """Every step against its bound, then long runs in five norms, and a certified sixth."""
    p = data.random_problem(4, 5, 6, batch=trials)
    start = below(p)[0]
    least, signs, excess = [], [], []
    for norm in NORMS.values():
        top, H = largest_margin(p, norm), reach(p, norm) ** 2
        b = int((top / H).argmin())  # one length for all instances must suit the worst
        eta = float((top / (2.0 * H)).min())
        run = dynamics.train(
            p, attention.Direct(start), dynamics.steepest(norm, eta), 100, record=range(101), loss="linear"
        )
        parts, total = weights_of(p, run.W)
        change = np.diff(np.log(run.gap), axis=1)
        bound = -eta * top[:, None] * total[:, :-1] + 0.5 * eta**2 * H[:, None]
        excess.append((change - bound).max())
        signs.append(parts.min())
        least.append(-change[b].max() / (0.25 * eta * top[b]))
    long, rate, decay, pair, share = 1500, 1.0, 0.2, ("l1.75", "l4"), {}
    lengths = np.asarray(rate * np.arange(1.0, long + 1) ** -decay, dtype=np.float64)
    zero = attention.Direct.zeros(p)
    for name in pair:
        rule = dynamics.steepest(NORMS[name], rate, decay=decay)
        run = dynamics.train(p, zero, rule, long, record=[long], loss="linear")
        right = (run.selected == p.optimal).all(-1)
        lowest = compare.margins(run.W[:, -1], p.X, p.z, p.optimal).min((-2, -1))
        for other in pair:
            reached = lowest / NORMS[other](run.W[:, -1]) / largest_margin(p, NORMS[other])
            share[name, other] = float(np.median(reached[right]))
    own = min(share[name, name] for name in pair)
    foreign = max(share[a, b] for a in pair for b in pair if a != b)
    rule = dynamics.steepest(norms.SPEC, rate, decay=decay)
    run = dynamics.train(p, zero, rule, long, record=range(long + 1), loss="linear")
    spectral = sandwich(p, run, lengths, norms.SPEC)[(run.selected == p.optimal).all(-1)]
    wrong = wrong_limits.two_sequences()
    lost = dynamics.train(wrong, STUCK, dynamics.steepest(ENTRIES["l1.75"], rate, decay=decay), 100).W[-1]
    behind = float(compare.margins(lost, wrong.keys, wrong.z, wrong.optimal).min())
    return [
        Measured("largest change of log excess less its bound, 100 steps, 5 norms", max(excess), "<=", 1e-9),
        Measured("smallest weight of a feature below the level", min(signs), ">=", 0.0),
        Measured("smallest fall of log excess over its guarantee", min(least), ">=", 1.0),
        Measured("share of the largest margin in the own norm, median, worse rule", own, ">=", 0.975),
        Measured("in the other norm, better rule", foreign, "<=", own - 0.03),
        Measured(
            "spectral norm: margin over an upper bound for all matrices, smallest", spectral.min(), ">=", 0.96
        ),
        Measured("start (12, 0), two sequences: margin of the optimal tokens", behind, "<", 0.0, breaks=True),
    ]


@cache
def polyak(trials: int, steps: int) -> tuple[data.Problem, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Problems, weights after Polyak steps from below the level, the same at a quarter, and step lengths.

    The last array holds early lengths times the norm of the gradient of the log excess, from the features.
    """
    p = data.random_problem(4, 5, 6, batch=trials)
    W, lengths, products, early = below(p)[0], [], [], None
    for k in range(steps):
        G = attention.gradient(p, attention.Direct(W), "linear").matrix()
        lengths.append(dynamics.gap(p, W, "linear") / norms.FRO(G))
        if k < 10:
            pull = np.einsum("bnt,bntij->bij", weights_of(p, W)[0], features(p, p.optimal))
            products.append(lengths[-1] * norms.FRO(pull))
        W = W - lengths[-1][:, None, None] * norms.FRO.steepest(G)  # the square of |G| would underflow
        early = W if k == steps // 4 else early
    assert early is not None
    return p, W, early, np.stack(lengths, axis=1), np.array(products)


@claim(
    "thm-lp-mirror",
    title=r"Mirror descent approaches the $\ell_p$ SVM in direction",
    source="Julistiono, Tarzanagh and Azizan (2024) for the fact; proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 4, 5, 6, logistic loss, p = 1.5, 3, 2,000 steps from zero; two sequences last",
    seeds="0 to trials − 1",
    trials=(16, 6),
)
def mirror(trials: int) -> list[Measured]:
    """The image of W against the normal of the solution, W against the solution, and how W grows."""
    p, rows, marks = data.random_problem(4, 5, 6, batch=trials), [], [500, 2000]
    zero, ends = attention.Direct.zeros(p), {}
    for e, rate in ((1.5, 0.1), (3.0, 1.5)):
        s, norm = svm.lp_svm(p, p=e), norms.lp(e)
        run = dynamics.train(p, zero, dynamics.mirror_descent(e, rate), 2000, record=marks)
        right = (run.selected == p.optimal).all(-1)
        W = run.W[right]
        theta = image(W, e - 1.0)
        unit = (s.W / s.value[:, None, None])[right][:, None]
        lag = 1.0 - (theta * unit).sum((-2, -1)) / norm.dual(theta)
        angle = np.median(1.0 - compare.correlation(W, s.W[right]), axis=0)
        # for p < 2 a step of W grows with W, and the weights of the features begin to swing
        bounds = (0.7 / (e - 1.0) if e < 2.0 else 0.95 / (e - 1.0), 1.05 / (e - 1.0))
        growth = np.median(np.log(norm(W)[:, -1] / norm(W)[:, -2])) / np.log(4.0)
        ends[e] = (run.W[:, -1], right)
        rows += [
            Measured(
                f"p = {e:g}: largest $1-\\langle\\Theta,\\hat W\\rangle/\\|\\Theta\\|_q$",
                lag[:, -1].max(),
                "<=",
                0.01,
            ),
            Measured(f"p = {e:g}: median $1-\\mathrm{{corr}}$ with the SVM", angle[-1], "<=", 3e-3),
            Measured(f"p = {e:g}: the same, step 2,000 over 500", angle[-1] / angle[-2], "<=", 0.35),
            Measured(f"p = {e:g}: growth exponent of the norm, 500 to 2,000", growth, "in", bounds),
        ]
    other, right = ends[3.0]
    foreign = 1.0 - compare.correlation(other, svm.lp_svm(p, p=1.5).W)[right]
    wrong = wrong_limits.two_sequences()
    lost = dynamics.train(wrong, STUCK, dynamics.mirror_descent(1.5, 0.1), 200).W[-1]
    turned = compare.correlation(lost, svm.lp_svm(wrong, p=1.5).W)
    return [
        *rows,
        Measured("run for p = 3, SVM for p = 1.5: median $1-\\mathrm{corr}$", np.median(foreign), ">=", 0.05),
        Measured("start (12, 0): correlation with the SVM", turned, "<=", 0.9, breaks=True),
    ]


@claim(
    "cor-lp-polyak",
    title="Polyak steps are normalised steps, and share their limit",
    kind="corollary",
    source="Vasudeva, Deora and Thrampoulidis (2025) for rates; proof in the chapter",
    chapter=PAGE,
    scope="n, T, d = 4, 5, 6, linear loss, starts below the level of part 2, 300 steps",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def polyak_steps(trials: int) -> list[Measured]:
    """Length of every step against its two bounds, and the direction of W at two times."""
    p, W, early, lengths, products = polyak(trials, 300)
    r, s = reach(p, norms.FRO), svm.attention_svm(p)
    late = lengths[:, 50:]
    wrong = wrong_limits.two_sequences()
    stuck = attention.gradient(wrong, STUCK, "linear").matrix()
    leap = dynamics.gap(wrong, STUCK, "linear") / norms.FRO(stuck) / svm.attention_svm(wrong).value
    fall = [1.0 - compare.correlation(V, s.W) for V in (early, W)]
    return [
        Measured(
            "length times $\\|\\nabla\\log E\\|_F$, largest error", np.abs(products - 1.0).max(), "<=", 1e-8
        ),
        Measured("smallest length times the largest reach", (late * r[:, None]).min(), ">=", 1.0 - 1e-6),
        Measured("largest length times the margin", (late / s.value[:, None]).max(), "<=", 1.0 + 1e-6),
        Measured("largest 1 − corr with the SVM after 300 steps", fall[1].max(), "<=", 1e-3),
        Measured("its ratio to that after 75 steps, largest", (fall[1] / fall[0]).max(), "<=", 0.15),
        Measured("start (12, 0), two sequences: length times the margin", leap, ">=", 10.0, breaks=True),
    ]
