"""Claims of the chapter on a hierarchy of SVMs: layers on top of each other, and suppression by margins."""

from __future__ import annotations

import numpy as np

from svmlib import attention, compare, data, dynamics, svm
from svmlib.arrays import FloatArray
from svmlib.attention import Architecture, Direct, TransformerWeights
from svmlib.data import Problem
from svmlib.experiments.heads import head_measures

from .hierarchy import OWN, PAGE, network
from .registry import Measured, claim


@claim(
    "thm-hierarchy-limit",
    title="If a head's direction, inputs and preferences settle, the direction is that of an SVM",
    kind="theorem",
    source=OWN,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 10; 2 layers of 1 head, attention trained by steps of 0.2; 100 and 400 steps",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def limit_of_a_head(trials: int) -> list[Measured]:
    """Train, sort heads by the hypotheses of the theorem, and measure the correlation of each kind."""
    held, trend, failed = [], [], []
    for kind in ({"mlp": False}, {}):
        p = data.random_problem(4, 5, 10, batch=trials)
        a = Architecture(layers=2, **kind)  # type: ignore[arg-type]
        start = TransformerWeights.random(p, a)
        run = dynamics.train_layers(p, a, start, dynamics.normalized(0.2), 400, record=[0, 100, 400])
        for layer in (0, 1):
            early, end = (head_measures(p, a, w, layer, 0) for w in run.history[1:])
            grows = end["size"] > 2.5 * early["size"]
            fits = grows & (end["single"] == 1) & (end["settled"] == 1) & (end["local"] == 1)
            held += end["corr"][fits].tolist()
            trend += ((1 - end["corr"]) / (1 - early["corr"]))[fits].tolist()
            failed += end["corr"][end["single"] < 1].tolist()
    return [
        Measured("heads that satisfy the hypotheses, as far as a run shows", len(held), ">=", trials),
        Measured("their correlation with the SVM, median", np.median(held), ">=", 0.98),
        Measured("1 − correlation, 400 steps over 100, median", np.median(trend), "<=", 0.4),
        Measured(
            "heads with several selected tokens: correlation, median",
            np.median(failed),
            "<=",
            0.95,
            f"{len(failed)} heads",
            breaks=True,
        ),
    ]


def _last_slopes(p: Problem, w: TransformerWeights, seen: attention.Transformed) -> FloatArray:
    """(B, n, T, d) gradient of y f in the tokens of the last of two layers without MLP, by the formula."""
    x, z = seen.inputs[:, 1, :, :-1], seen.inputs[:, 1, :, -1]
    s = seen.probabilities[:, 1, :, :, -1]
    out = np.zeros_like(x)
    for h in range(s.shape[1]):
        pulled = np.einsum("bde,bd->be", w.V[:, 1, h], w.v)
        value = np.einsum("bntd,bd->bnt", x, pulled)
        mean = (s[:, h] * value).sum(-1, keepdims=True)
        mapped = np.einsum("bde,bne->bnd", w.W[:, 1, h], z)
        both = pulled[:, None, None] + (value - mean)[..., None] * mapped[:, :, None]
        out += s[:, h, ..., None] * both
    return p.y[..., None, None] * out


@claim(
    "prop-hierarchy-ignored",
    title="What a layer ignores, the layer below does not learn",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 4, T = 5, d = 6; 2 layers of 2 heads without MLP; layer 2 scaled up to 16 times",
    seeds="0 to trials − 1",
    trials=(20, 20),
)
def ignored(trials: int) -> list[Measured]:
    """Compare the slopes of the lower layer's outputs with the formula, and scale up the layer above."""
    p, a, w = network(trials, layers=2, heads=2, mlp=False)
    V = np.array(w.V)
    V[:, 0, 0] = np.eye(p.d)  # so that slopes in the first head's outputs are those in the stream
    w = w._replace(V=V)
    worst, bound, decay, kept = 0.0, 0.0, [], []
    for scale in (1.0, 4.0, 16.0):
        W = np.array(w.W)
        W[:, 1] *= scale
        there = w._replace(attention=Direct(W))
        seen = attention.transformer(p, a, there)
        slope = seen.slopes[:, 0, 0]
        found = _last_slopes(p, there, seen)
        worst = max(worst, float(np.abs(slope[:, :, :-1] - found).max()))
        s, x, z = seen.probabilities[:, 1, :, :, -1], seen.inputs[:, 1, :, :-1], seen.inputs[:, 1, :, -1]
        D = np.linalg.norm(x[:, :, :, None] - x[:, :, None], axis=-1).max((-2, -1))
        pulled = np.linalg.norm(np.einsum("bhde,bd->bhe", W_values(there), there.v), axis=-1)
        mapped = np.linalg.norm(np.einsum("bhde,bne->bhnd", there.W[:, 1], z), axis=-1)
        allowed = (s * (pulled[:, :, None] * (1 + D[:, None] * mapped))[..., None]).sum(1)
        size = np.linalg.norm(slope, axis=-1)
        bound = max(bound, float((size[:, :, :-1] / allowed).max()))
        decay.append(np.median(size[:, :, :-1].min(-1)))
        kept.append(np.median(size[:, :, -1]))
    return [
        Measured("slopes by autograd and by the formula: largest difference", worst, "<=", 1e-11),
        Measured("norm of a slope over its bound, largest", bound, "<=", 1.0),
        Measured(
            "smallest slope of a sequence, layer 2 times 16, relative, median",
            decay[2] / decay[0],
            "<=",
            1e-3,
        ),
        Measured(
            "the read-out stream: the same ratio, median",
            kept[2] / kept[0],
            ">",
            0.1,
            "the residual connection keeps it in sight",
            breaks=True,
        ),
    ]


def W_values(w: TransformerWeights) -> FloatArray:
    """Value maps of the second layer."""
    return np.asarray(w.V[:, 1])


@claim(
    "prop-hierarchy-settle",
    title="Once a layer selects, the inputs of the next settle exponentially, and so does its SVM",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 3, T = 4, d = 10; 2 layers of 2 heads with ReLU MLPs; margins 4 to 16 in layer 1",
    seeds="0 to trials − 1",
    trials=(12, 4),
)
def settle(trials: int) -> list[Measured]:
    """Scale the first layer to given margins; compare the second's inputs and SVM with their limits."""
    p, a, w = network(trials, n=3, T=4, d=10, layers=2, heads=2)
    base = attention.transformer(p, a, w)
    logits = np.einsum("bntd,bhde,bnke->bhnkt", p.X, w.W[:, 0], base.inputs[:, 0])
    ordered = np.sort(logits, -1)
    least = (ordered[..., -1] - ordered[..., -2]).min((-3, -2, -1))
    worst, svms, sizes, margin = 0.0, [], [], []
    limit, far = _at_margin(p, a, w, least, 400.0)
    own = attention.layer_problem(p, a, far, 1, 0)
    best = svm.attention_svm(own, errors="nan")
    for rho in (4.0, 8.0, 16.0):
        seen, there = _at_margin(p, a, w, least, rho)
        moved = np.linalg.norm(seen.inputs[:, 1] - limit.inputs[:, 1], axis=-1).max((-2, -1))
        D = np.linalg.norm(p.X[:, :, :, None] - p.X[:, :, None], axis=-1).max((-3, -2, -1))
        norms = [np.linalg.norm(m[:, 0], 2, axis=(-2, -1)) for m in (w.E, w.F, w.V)]
        lipschitz = 1 + norms[0] * norms[1]
        epsilon = lipschitz * norms[2].sum(-1) * (p.T - 1) * np.exp(-rho) * D
        worst = max(worst, float((moved / epsilon).max()))
        sizes.append(np.median(moved))
        near = svm.attention_svm(attention.layer_problem(p, a, there, 1, 0), own.optimal, errors="nan")
        B = np.linalg.norm(limit.inputs[:, 1], axis=-1).max((-2, -1))
        eta = 4 * B * moved + 2 * moved**2
        margin.append((best.margin - near.margin) / eta)
        shortfall = 1 - compare.correlation(near.W, best.W)
        svms.append(shortfall * best.margin / (2 * eta))
        last = np.nanmax(shortfall)
    return [
        Measured("distance of the inputs from their limits over the bound, largest", worst, "<=", 1.0),
        Measured(
            "the same distance, margin 16 over margin 4, median",
            sizes[2] / sizes[0],
            "<=",
            1e-4,
            f"e^-12 is {np.exp(-12):.0e}",
        ),
        Measured(r"margin lost, over its bound $\chi$, largest", np.nanmax(margin[:2]), "<=", 1.0),
        Measured("1 − correlation of the two SVMs over its bound, largest", np.nanmax(svms), "<=", 1.0),
        Measured("1 − correlation of the SVMs at margin 16, largest", last, "<=", 1e-6),
        Measured(
            "margin 4: distance from the limits, median",
            sizes[0],
            ">",
            1e-3,
            "no selection, no limit",
            breaks=True,
        ),
    ]


def _at_margin(
    p: Problem, a: Architecture, w: TransformerWeights, least: FloatArray, rho: float
) -> tuple[attention.Transformed, TransformerWeights]:
    W = np.array(w.W)
    W[:, 0] *= (rho / least)[:, None, None, None]
    there = w._replace(attention=Direct(W))
    return attention.transformer(p, a, there), there


@claim(
    "prop-hierarchy-sparse",
    title="Sparsity is margin times norm",
    kind="proposition",
    source=OWN,
    chapter=PAGE,
    scope="n = 4, T = 6, d = 8, random selections; norms 2 to 64",
    seeds="0 to trials − 1",
    trials=(50, 10),
)
def sparse(trials: int) -> list[Measured]:
    """Bound probabilities and entropy by margins, for random matrices and for the SVM."""
    p = data.random_problem(4, 6, 8, batch=trials)
    tokens = np.random.default_rng(0).integers(6, size=(trials, 4))
    best = svm.attention_svm(p, tokens, errors="nan")
    ok = best.solved
    p, tokens = p[ok], tokens[ok]
    unit = (best.W * best.margin[:, None, None])[ok]
    gamma, required = best.margin[ok], compare.margins(best.W[ok], p.X, p.z, tokens)
    reach = np.linalg.norm(p.z, axis=-1) * np.linalg.norm(p.X[:, :, :, None] - p.X[:, :, None], axis=-1).max(
        (-2, -1)
    )
    rng = np.random.default_rng(1)
    upper, lower, entropy, floor, attained, direction, beaten = ([] for _ in range(7))
    for R in (2.0, 8.0, 32.0, 64.0):
        for error in (0.0, 0.02):
            noise = rng.normal(size=unit.shape)
            noise *= error / np.linalg.norm(noise, axis=(-2, -1), keepdims=True)
            W = R * (unit + noise)
            s = attention.probabilities(p, W)
            delta = compare.margins(W, p.X, p.z, tokens)
            other = np.isfinite(delta)
            with np.errstate(divide="ignore"):
                log = np.log(s)
            upper.append((log + delta)[other].max())
            if (delta > 0).all():
                lower.append((log + delta)[other].min() + np.log(p.T))
            rho = delta.min(-1)
            fits = rho >= 0
            bound = (p.T - 1) * (1 + rho) * np.exp(-rho)
            fits &= bound > 1e-8  # below, the entropy itself has lost its digits
            entropy.append((compare.entropy(s) / bound)[fits].max(initial=0.0))
            predicted = R * (gamma[:, None, None] * required - error * reach[..., None])
            direction.append((log + predicted)[other].max())
            if error == 0:
                attained.append((np.where(other, log, -np.inf).max((-2, -1)) + R * gamma).max())
        rival = rng.normal(size=(200, *unit.shape))
        rival = np.concatenate([unit[None], rival, unit + 0.1 * rival])
        rival *= R / np.linalg.norm(rival, axis=(-2, -1), keepdims=True)
        s = np.stack([attention.probabilities(p, r) for r in rival])
        wrong = np.where(np.arange(p.T) == tokens[..., None], 0.0, s).max((-2, -1))
        floor.append((np.log(wrong) + R * gamma + np.log(p.T)).min())
        s = attention.probabilities(p, 2 * R * unit)
        wrong = np.where(np.arange(p.T) == tokens[..., None], 0.0, s).max((-2, -1))
        beaten.append((np.log(wrong) + R * gamma + np.log(p.T)).min())
    even = data.Problem(np.eye(1, p.T)[..., None], np.ones((1, 1)), np.ones(1))  # all margins equal
    equal = float(compare.entropy(attention.probabilities(even, np.array([[8.0]])))[0])
    return [
        Measured(r"$\log s_{it}+\delta_{it}$, largest", max(upper), "<=", 1e-9),
        Measured(r"$\log s_{it}+\delta_{it}+\log T$, smallest, margins positive", min(lower), ">=", -1e-9),
        Measured("entropy over its bound, largest", max(entropy), "<=", 1 + 1e-6),
        Measured("the same for equal margins of 8", equal / ((p.T - 1) * 9 * np.exp(-8)), "in", (0.998, 1.0)),
        Measured(
            r"log of the largest wrong probability $+R\Gamma+\log T$, smallest",
            min(floor),
            ">=",
            0.0,
            "the SVM and 400 other matrices of norm R",
        ),
        Measured(r"SVM: log of the largest wrong probability $+R\Gamma$, largest", max(attained), "<=", 1e-9),
        Measured(
            r"at distance 0.02 from the SVM: $\log s_{it}+R(\Gamma\,m_{it}-0.02\,r_i)$, largest",
            max(direction),
            "<=",
            1e-9,
        ),
        Measured("twice the norm: the fourth quantity, smallest", min(beaten), "<", 0.0, breaks=True),
    ]
