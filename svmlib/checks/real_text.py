"""Claims of the chapter on real text."""

from __future__ import annotations

import numpy as np
import torch

from svmlib import language, text
from svmlib.arrays import FloatArray, IntArray

from .registry import Measured, claim

PAGE = "scan_snap/real_text"


def stream(words: int, V: int, seed: int) -> IntArray:
    """Draw a stream of tokens in which each one depends on the one before.

    Parameters
    ----------
    words, V : int
        Length of the stream, size of the vocabulary.
    seed : int
        Seed.

    Returns
    -------
    ndarray of int, shape (words,)
        Tokens.
    """
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(V, 0.3), V).cumsum(1)
    out = np.zeros(words, np.int64)
    for k, u in enumerate(rng.random(words - 1)):
        out[k + 1] = min(int(moves[out[k]].searchsorted(u)), V - 1)
    return out


def _unevenness(attention: torch.Tensor, tokens: torch.Tensor) -> float:
    """Largest difference of attention of one reader on two equal tokens."""
    last = attention[:, :, -1]
    same = tokens[:, None, :, None] == tokens[:, None, None, :]
    return float(((last[..., :, None] - last[..., None, :]).abs() * same).max())


@claim(
    "prop-text-table",
    title="Attention of the lowest layer is a table over pairs of token types",
    kind="proposition",
    source="Scan and Snap (2023), section 2, for its own layer",
    chapter=PAGE,
    scope="V = 40, width 16, two heads, two layers, random weights with larger queries, in double precision",
    seeds="0 to trials − 1",
    trials=(8, 3),
)
def table(trials: int) -> list[Measured]:
    """Maps against the softmax of the table; earlier tokens shuffled; positions and the second layer."""
    worst = shuffled = drift = 0.0
    rank = 0
    placed, second = np.inf, np.inf
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        x = torch.as_tensor(rng.integers(0, 40, (8, 24)))
        mixed = x.clone()
        mixed[:, :-1] = x[:, :-1][:, torch.as_tensor(rng.permutation(23))]
        models = {}
        for positions in (False, True):
            model = language.Transformer(
                40, layers=2, heads=2, width=16, hidden=16, positions=positions, seed=seed
            )
            for block in model.blocks:
                block.qkv.weight.data.mul_(3)  # type: ignore[union-attr, operator]
            models[positions] = model.double()
        plain = models[False]
        with torch.no_grad():
            read = plain(x)
            Z = torch.as_tensor(language.pair_logits(plain, np.arange(40)))
            a = Z[:, x[:, :, None], x[:, None, :]].transpose(0, 1)
            a = a.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), -np.inf)
            worst = max(worst, float((torch.softmax(a, -1) - read.attention[0]).abs().max()))
            rank = max(rank, int(torch.linalg.matrix_rank(Z).max()))
            one = language.Transformer(40, layers=1, heads=2, width=16, positions=False, seed=seed).double()
            moved = one(x).logits[:, -1] - one(mixed).logits[:, -1]
            shuffled = max(shuffled, float(moved.abs().max()))
            second = min(second, _unevenness(read.attention[1], x))
            placed = min(placed, _unevenness(models[True](x).attention[0], x))
        scan = language.ScanLayer(40)
        language.train_language(
            scan, stream(500, 40, seed), language.Training(rate=5.0, steps=10, batch=4, length=12, seed=seed)
        )
        drift = max(drift, float(scan.Z.detach().sum(1).abs().max() / scan.Z.detach().abs().max()))
    return [
        Measured("largest difference of a map from the softmax of the table", worst, "<=", 1e-12),
        Measured("largest rank of a head's table", rank, "<=", 8, "width over heads"),
        Measured("largest change of the last logits, earlier tokens shuffled", shuffled, "<=", 1e-12),
        Measured(
            "row sums of Z after training, over its largest entry", drift, "<=", 1e-4, "single precision"
        ),
        Measured("with positions: equal tokens read unequally, least", placed, ">=", 1e-3, breaks=True),
        Measured("second layer: equal tokens read unequally, least", second, ">=", 1e-3, breaks=True),
    ]


def first_steps(ids: IntArray, V: int, length: int, rate: float, steps: int) -> FloatArray:
    """Take full gradient steps of the layer of the theory on all windows of a stream.

    Parameters
    ----------
    ids : ndarray of int, shape (words,)
        The stream.
    V, length : int
        Size of the vocabulary, tokens of a window.
    rate : float
        Learning rate of decoder and attention.
    steps : int
        Number of steps.

    Returns
    -------
    ndarray, shape (V, V)
        Attention logits in the end.
    """
    layer = language.ScanLayer(V).double()
    windows = torch.as_tensor(np.lib.stride_tricks.sliding_window_view(ids, length + 1).copy())
    for _ in range(steps):
        logits = layer(windows[:, :-1]).logits[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 2:].flatten())
        gradients = torch.autograd.grad(loss, [layer.D, layer.Z])
        with torch.no_grad():
            for weight, gradient in zip((layer.D, layer.Z), gradients, strict=True):
                weight.sub_(rate * gradient)
    return np.asarray(layer.Z.detach().numpy())


@claim(
    "prop-text-first",
    title="The first direction on real windows",
    kind="proposition",
    source="Scan and Snap (2023), Lemmas 1 and 2, at $D=Z=0$, for single windows",
    chapter=PAGE,
    scope="streams of 300 tokens of 12 types, windows of 8, full gradient steps",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def first(trials: int) -> list[Measured]:
    """Ten full steps against the formula, at three rates; the long-sequence limit instead."""
    V, length, K = 12, 8, 10
    rates = np.array([0.1, 0.01, 0.001])
    errors = np.zeros((trials, 3))
    sums, alike = 0.0, -1.0
    for seed in range(trials):
        ids = stream(300, V, seed)
        v = language.initial_velocity(ids, np.arange(V), length=length, vocabulary=V, stride=1)
        sums = max(sums, float(np.abs(v.sum(1)).max() / np.abs(v).max()))
        for k, rate in enumerate(rates):
            z = first_steps(ids, V, length, rate, K)
            expected = rate**2 * K * (K - 1) / 2 * v
            errors[seed, k] = np.linalg.norm(z - expected) / np.linalg.norm(expected)
        present = np.flatnonzero(np.bincount(ids[1:-1], minlength=V))
        cooc = text.cooccurrence(ids, present, length=length - 1, following=V, vocabulary=V)
        limit = language.expected_velocity(cooc)
        alike = max(alike, float((limit * v[present]).sum() / np.linalg.norm(limit) / np.linalg.norm(v)))
    slope = np.polyfit(np.log(rates), np.log(errors.max(0)), 1)[0]
    return [
        Measured("largest relative error at time 0.01", errors[:, 2].max(), "<=", 0.01, "ten steps"),
        Measured("slope of the error in time", slope, "==", 1.0, tol=0.1),
        Measured("largest row sum over the largest entry", sums, "<=", 1e-12),
        Measured("limit of long sequences instead: largest cosine", alike, "<=", 0.95, breaks=True),
    ]


@claim(
    "prop-text-loss",
    title="The loss of a stream is a mean over tokens",
    kind="proposition",
    source="folklore; a mistake in the published notebook",
    chapter=PAGE,
    scope="streams of 1,003 tokens, windows of 35, random models; stops after a tenth of the windows",
    seeds="0 to trials − 1",
    trials=(10, 3),
)
def weighting(trials: int) -> list[Measured]:
    """Losses by hand against the library; unweighted means; a sum that stops and is divided by all."""
    whole = identity = short = 0.0
    unweighted = np.inf
    for seed in range(trials):
        ids = stream(1003, 30, seed)
        model = language.Transformer(30, width=16, hidden=16, positions=False, seed=seed)
        starts = np.arange(0, len(ids) - 1, 35)
        sizes = np.minimum(35, len(ids) - 1 - starts)
        losses = np.zeros(len(starts))
        with torch.no_grad():
            for k, (s, n) in enumerate(zip(starts, sizes, strict=True)):
                x = torch.as_tensor(ids[s : s + n + 1])[None]
                losses[k] = float(torch.nn.functional.cross_entropy(model(x[:, :-1]).logits[0], x[0, 1:]))
        mean = float(sizes @ losses / sizes.sum())
        whole = max(whole, abs(mean - language.evaluate(model, ids, 35)))
        covariance = ((sizes - sizes.mean()) * (losses - losses.mean())).mean() / sizes.mean()
        identity = max(identity, abs(losses.mean() + covariance - mean))
        unweighted = min(unweighted, abs(losses.mean() - mean))
        K = len(starts) // 10
        stopped = sizes[:K] @ losses[:K] / sizes.sum()
        ratio = sizes.sum() / sizes[:K].sum()
        short = max(short, abs(stopped * ratio - sizes[:K] @ losses[:K] / sizes[:K].sum()))
    return [
        Measured("difference of evaluate from the mean over tokens", whole, "<=", 1e-5, "single precision"),
        Measured("error of the covariance formula", identity, "<=", 1e-12),
        Measured("error of the factor of a sum that stops", short, "<=", 1e-12),
        Measured("mean over windows instead: least error", unweighted, ">=", 1e-6, breaks=True),
    ]


def _counted(incidence: FloatArray, label: IntArray, N: int) -> text.Cooccurrence:
    w = np.bincount(label, minlength=N)
    seen = np.stack([incidence[label == n].sum(0) for n in range(N)]).astype(np.int64)[None]
    return text.Cooccurrence(np.array([0]), np.arange(N)[None], w[None], seen, seen, np.array([w.sum()]), 10)


@claim(
    "prop-text-chance",
    title="What chance does to distinct types and to discrimination",
    kind="proposition",
    source="own statement; permutation tests",
    chapter=PAGE,
    scope="400 windows of four next tokens, 30 types in 2 to 300 of them; next tokens shuffled",
    seeds="shuffles 0 to trials − 1",
    trials=(2000, 400),
)
def chance(trials: int) -> list[Measured]:
    """Means over shuffles against the formulas; a type that always stands before one next token."""
    rng = np.random.default_rng(0)
    W, N, L = 400, 4, 30
    label = np.repeat(np.arange(N), (200, 120, 60, 20))
    incidence = np.zeros((W, L))
    for k, size in enumerate(np.geomspace(2, 300, L).astype(int)):
        incidence[rng.choice(W, size, replace=False), k] = 1
    planted = incidence.copy()
    planted[:, 15] = label == 2
    found = np.zeros((trials, L))
    distinct = np.zeros(trials)
    for t in range(trials):
        cooc = _counted(incidence, np.random.default_rng(t).permutation(label), N)
        found[t] = language.discrimination(cooc)[0]
        distinct[t] = language.kinds(cooc, 2).distinct[0].sum()
    expected = language.kinds(cooc, 2).accidental[0]
    spread = found.std(0) / trials**0.5
    error = distinct.std() / trials**0.5
    # without the second term
    seen = cooc.seen[0].astype(float)
    share, prior = seen / seen.sum(0), cooc.windows[0] / W
    raw = np.where(share > 0, share * np.log(np.where(share > 0, share, 1) / prior[:, None]), 0).sum(0)
    real = language.discrimination(_counted(planted, label, N))[0, 15]
    return [
        Measured(
            "mean discrimination by chance, largest in standard errors",
            np.abs(found.mean(0) / spread).max(),
            "<=",
            4.5,
        ),
        Measured(
            "distinct types by chance, off in standard errors",
            abs(distinct.mean() - expected) / error,
            "<=",
            4.0,
        ),
        Measured("discrimination of a type of one next token", real, ">=", 1.5, "nats"),
        Measured("uncorrected, ten rarest types, by chance", raw[:10].mean(), ">=", 0.1, "nats", breaks=True),
    ]
