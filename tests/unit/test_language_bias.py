"""Kinds of tokens, discrimination beyond chance, early velocity, order of dropping: by hand and by force."""

import itertools
import math

import numpy as np
import pytest
import torch

from svmlib.errors import DataError, ShapeError
from svmlib.language import (
    ScanLayer,
    Transformer,
    attended,
    discrimination,
    drop_times,
    expected_velocity,
    initial_velocity,
    kinds,
    mass,
    measured_process,
    pair_logits,
    rank_correlation,
)
from svmlib.scansnap import gradients, velocity
from svmlib.text import Cooccurrence, cooccurrence

# windows of two tokens before the query 0: "3 4 0 1" twice, "3 5 0 2" twice, "4 4 0 1" and "3 3 0 2"
IDS = [3, 4, 0, 1, 3, 4, 0, 1, 3, 5, 0, 2, 3, 5, 0, 2, 4, 4, 0, 1, 3, 3, 0, 2]


def small() -> Cooccurrence:
    return cooccurrence(IDS, [0], length=2, following=2, vocabulary=6)


def text(seed: int = 0, size: int = 3000, V: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 4, size) + 3 * np.repeat(rng.integers(0, 3, size // 10), 10)) % V


def test_kinds_by_hand() -> None:
    found = kinds(small(), least=1)
    assert small().seen[0].tolist() == [[0, 0, 0, 2, 3, 0], [0, 0, 0, 3, 0, 2]]
    assert np.flatnonzero(found.distinct[0]).tolist() == [4, 5]
    assert np.flatnonzero(found.common[0]).tolist() == [3]
    # of 6 windows, 3 of each next token: all 3 with token 4 alike, 2 / 20; both with token 5, 2 * 3 / 15
    np.testing.assert_allclose(found.accidental, [2 / 20 + 6 / 15])
    strict = kinds(small(), least=3)
    assert np.flatnonzero(strict.distinct[0]).tolist() == [4] and strict.least == 3
    np.testing.assert_allclose(strict.accidental, [2 / 20])


def test_kinds_are_those_of_the_theory() -> None:
    found, process = kinds(small(), least=1), measured_process(small())
    np.testing.assert_array_equal(found.common[0], process.common)
    np.testing.assert_array_equal(found.distinct[0], process.distinct.any(0))
    np.testing.assert_allclose(process.P, np.array([[0, 0, 0, 2, 4, 0], [0, 0, 0, 4, 0, 2]]) / 6)
    assert process.label.tolist() == [1, 2] and process.prior.tolist() == [0.5, 0.5]


def test_discrimination_by_hand() -> None:
    found = discrimination(small())[0]
    assert np.isnan(found[:3]).all()
    # token 5: both windows before 2, log 2; of six windows drawn two are alike with probability 6 / 15
    assert found[5] == pytest.approx(math.log(2) * (1 - 6 / 15))
    # token 4: three of three, log 2; chance: three alike 2 / 20, otherwise two and one
    mixed = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    assert found[4] == pytest.approx(math.log(2) - (0.1 * math.log(2) + 0.9 * mixed))
    assert np.isnan(discrimination(small(), least=3)[0, 5])


def made(seen: np.ndarray, windows: np.ndarray) -> Cooccurrence:
    Q, N, _ = seen.shape
    following = np.tile(np.arange(N), (Q, 1))
    return Cooccurrence(np.arange(Q), following, windows, seen, seen, windows.sum(1), 5)


def test_chance_is_the_mean_of_all_deals_and_of_draws() -> None:
    w = np.array([4, 3, 0, 1])
    deals = list(itertools.combinations(np.repeat([0, 1, 3], [4, 3, 1]).tolist(), 3))
    values = []
    for deal in deals:
        share = np.bincount(deal, minlength=4) / 3
        values.append(sum(s * math.log(s / (k / 8)) for s, k in zip(share, w, strict=True) if s))
    got = discrimination(made(np.array([[[1], [1], [0], [1]]]), w[None]))[0, 0]
    observed = sum(math.log((1 / 3) / (k / 8)) for k in (4, 3, 1)) / 3
    assert got == pytest.approx(observed - np.mean(values))

    w = np.array([3000, 900, 90, 10])
    drawn = np.random.default_rng(0).multivariate_hypergeometric(w, 700, 20_000) / 700
    logs = np.log(np.where(drawn > 0, drawn, 1) / (w / 4000))
    divergence = (drawn * logs).sum(1)
    rare = discrimination(made(np.array([[[700], [0], [0], [0]]]), w[None]))[0, 0]
    error = 5 * divergence.std() / math.sqrt(20_000)
    assert math.log(4 / 3) - rare == pytest.approx(divergence.mean(), abs=error)


def test_words_without_meaning_discriminate_by_nothing() -> None:
    rng = np.random.default_rng(0)
    p = 1 / np.arange(1, 101)
    found = discrimination(
        cooccurrence(rng.choice(100, 30_000, p=p / p.sum()), [1], length=5, vocabulary=100)
    )
    known = found[~np.isnan(found)]
    assert len(known) > 90 and abs(known.mean()) < 0.01


@pytest.mark.parametrize("query", [0, 1])
def test_expected_velocity_is_that_of_the_theory(query: int) -> None:
    cooc = cooccurrence(text(), [query], length=6, following=4, vocabulary=12)
    process = measured_process(cooc)
    D, z = np.zeros((12, 12)), np.zeros((1, 12))
    step = -1e-10 * gradients(process, D, z).D
    theory = -gradients(process, step, z).z[0] / 1e-10
    got = expected_velocity(cooc)[0]
    assert np.abs(got - theory).max() < 1e-8 * np.abs(theory).max()
    assert abs(got.sum()) < 1e-15


def test_two_classes_start_in_the_signs_of_the_reduced_flow() -> None:
    got = expected_velocity(small())
    theory = velocity(measured_process(small()), np.zeros((1, 6)))
    assert (np.sign(np.round(got, 12)) == np.sign(np.round(theory, 12))).all()
    assert got[0, 3] < 0 < min(got[0, 4], got[0, 5])  # the common token loses, distinct ones gain


def test_expected_velocity_of_queries_that_share_next_tokens() -> None:
    cooc = cooccurrence(text(), [0, 1, 5], length=6, following=4, vocabulary=12)
    q, n = np.nonzero(cooc.windows)
    label = torch.as_tensor(cooc.following[q, n])
    assert len(label.unique()) < len(label)
    P, prior = torch.as_tensor(cooc.shares[q, n]), torch.as_tensor(cooc.windows[q, n] / cooc.windows.sum())

    def loss(D: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
        s = P * Z[q].exp()
        logits = s / s.norm(dim=1, keepdim=True) @ D
        return prior @ torch.nn.functional.cross_entropy(logits, label, reduction="none")

    D, Z = (torch.zeros(k, 12, dtype=torch.float64, requires_grad=True) for k in (12, 3))
    (down,) = torch.autograd.grad(loss(D, Z), D)
    (push,) = torch.autograd.grad(loss(-1e-10 * down, Z), Z)
    theory = -push.numpy() / 1e-10
    np.testing.assert_allclose(expected_velocity(cooc), theory, atol=1e-8 * np.abs(theory).max())

    with pytest.raises(DataError, match="Several queries have the same next token"):
        measured_process(cooc)
    assert measured_process(cooc, 5).queries.tolist() == [5]
    with pytest.raises(DataError, match=r"7 is none of the queries, \[0, 1, 5\]"):
        measured_process(cooc, 7)


@pytest.mark.parametrize("block, stride", [(1, None), (1 << 19, None), (500, 3)])
def test_initial_velocity_is_that_of_the_layer(
    block: int, stride: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svmlib.language.early.BLOCK", block)
    ids, T = text(size=210), 8
    starts = np.arange(0, 210 - T, stride or T)[:, None] + np.arange(T)
    x, n = torch.as_tensor(ids[starts]), torch.as_tensor(ids[starts + 1][:, 1:].flatten())
    model = ScanLayer(12).double()

    def down(weight: torch.Tensor) -> torch.Tensor:
        logits = model(x).logits[:, 1:].flatten(0, 1)
        (out,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, n), weight)
        return out

    step = down(model.D)
    with torch.no_grad():
        model.D.copy_(-1e-10 * step)
    theory = -down(model.Z).numpy()[[5, 0, 5]] / 1e-10
    got = initial_velocity(ids, [5, 0, 5], length=T, vocabulary=12, stride=stride)
    np.testing.assert_allclose(got, theory, atol=1e-8 * np.abs(theory).max())
    np.testing.assert_allclose(got.sum(1), 0, atol=1e-15)


def test_initial_velocity_by_hand() -> None:
    ids = [3, 3, 2, 0, 1]
    got = initial_velocity(ids, [0], length=4, vocabulary=5)
    process = measured_process(cooccurrence(ids, [0], length=3, vocabulary=5))
    f = process.P[0] / np.linalg.norm(process.P[0])
    # the other positions teach the decoder too: 3 before 3, with 2 next, and 3 3 before 2, with 0 next
    D = np.outer(f, np.eye(5)[1] - 0.2) + np.outer(np.eye(5)[3], np.eye(5)[2] + np.eye(5)[0] - 0.4)
    g = D[:, 1]
    np.testing.assert_allclose(got[0], f * (g - (f @ g) * f) / 9, atol=1e-15)
    with pytest.raises(DataError, match="one window of 5 and its next token are needed"):
        initial_velocity(ids, [0], length=5, vocabulary=5)
    with pytest.raises(ShapeError, match="length must be an integer >= 2"):
        initial_velocity(ids, [0], length=1, vocabulary=5)


def test_mass_by_hand() -> None:
    tokens = np.array([[3, 4, 5, 0], [0, 1, 0, 2]])
    rows = np.zeros((2, 1, 4, 4))
    rows[0, 0, 3] = [0.5, 0.2, 0.3, 0]  # common, distinct, distinct
    rows[1, 0, 2] = [0.1, 0.6, 0.3, 0]  # unknown, unknown, the query itself
    found = mass(rows[None], tokens, small(), least=1)
    assert {k: v.shape for k, v in found.items()} == dict.fromkeys(
        ("distinct", "common", "unknown", "own"), (1, 1, 1)
    )
    got = {k: float(v[0, 0, 0]) for k, v in found.items()}
    assert got == pytest.approx({"distinct": 0.25, "common": 0.25, "unknown": 0.35, "own": 0.15})
    value = np.array([[np.nan, 5, 0, 1, 2, 3]])
    # known: 1 * 0.5 + 2 * 0.2 + 3 * 0.3 in the one, 5 * 0.6 in the other
    np.testing.assert_allclose(attended(rows[None], tokens, small(), value), [[[(1.8 + 3) / (1 + 0.6)]]])


def test_mass_of_models() -> None:
    cooc = cooccurrence(text(), [0, 1, 9], length=6, following=4, vocabulary=12)
    tokens = text(1)[:200].reshape(10, 20)
    for model in (ScanLayer(12), Transformer(12, heads=2, width=8, hidden=8)):
        maps = torch.stack([model(torch.as_tensor(tokens)).attention[0].detach()] * 3)
        found = mass(maps, tokens, cooc)
        total = np.sum(list(found.values()), 0)
        assert total.shape == (3, maps.shape[2], 3)
        np.testing.assert_allclose(total, 1, rtol=1e-6)
        assert (found["own"] == 0).all() == isinstance(model, ScanLayer)
        ones = attended(maps, tokens, cooc, np.ones((3, 12)))
        np.testing.assert_allclose(ones, 1)
    absent = mass(maps, np.where(tokens == 0, 1, tokens), cooc)
    assert all(np.isnan(v[..., 0]).all() and not np.isnan(v[..., 1]).any() for v in absent.values())


def test_mass_errors() -> None:
    maps = np.zeros((2, 1, 4, 4))
    with pytest.raises(ShapeError, match=r"with P = 3 and T = 4 as in tokens, got shape \(2, 1, 4, 4\)"):
        mass(maps, np.zeros((3, 4), int), small())
    with pytest.raises(ShapeError, match=r"tokens must be whole numbers of shape \(P, T\), got float64"):
        mass(maps, np.zeros((2, 4)), small())
    with pytest.raises(DataError, match=r"tokens must lie in 0\.\.5, got 0\.\.6"):
        mass(maps, np.full((2, 4), 6) * np.eye(2, 4, dtype=int), small())
    with pytest.raises(ShapeError, match="queries and token types"):
        attended(maps, np.zeros((2, 4), int), small(), np.zeros((1, 5)))
    with pytest.raises(ShapeError, match="least must be a positive integer"):
        kinds(small(), 0)


def test_drop_times_by_hand() -> None:
    steps = [0, 10, 20, 30]
    z = np.array([[0, 1, 0, 0], [0.5, 1.49, 0.4, 1.0], [1.0, 1.9, 0.9, 0.5], [2.0, 2.5, 2.0, 0.0]])
    # the lead is type 1; behind it, against the start: 0 0.01 0.1 0.5, ., -0.09 0 0.5, 0.51 -0.4 -1.5
    assert drop_times(steps, z).tolist() == [np.inf, np.inf, 10, 20]
    assert drop_times(steps, z, loss=0.2).tolist() == [np.inf, np.inf, np.inf, 20]
    assert drop_times(steps, z, lead=0).tolist() == [np.inf, 20, 10, 20]
    # a number added to all logits of a step changes nothing
    assert drop_times(steps, z + np.array([[0], [7], [-3], [1]])).tolist() == [np.inf, np.inf, 10, 20]


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"steps": [0, 1]}, ShapeError, "one for each row of logits"),
        ({"steps": [0, 2, 1]}, DataError, "steps must rise"),
        ({"lead": 2}, ShapeError, r"lead must be a place among 2 token types, 0\.\.1, got 2"),
        ({"lead": -1}, ShapeError, "lead must be a whole number >= 0"),
        ({"loss": 1.0}, DataError, r"loss must lie between 0 and 1, got 1\.0"),
        ({"logits": np.zeros((0, 2))}, ShapeError, r"got shape \(0, 2\)"),
    ],
)
def test_drop_times_errors(change: dict, error: type[Exception], match: str) -> None:
    given = {"steps": [0, 1, 2], "logits": np.zeros((3, 2)), **change}
    with pytest.raises(error, match=match):
        drop_times(given.pop("steps"), given.pop("logits"), **given)


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3], [10, 200, np.inf]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, np.nan], [3, 2, 1, 0]) == pytest.approx(-1)
    # ranks 1 2 3.5 3.5 against 1 2 3 4: 4.5 / sqrt(4.5 * 5)
    assert rank_correlation([5, 6, np.inf, np.inf], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert math.isnan(rank_correlation([np.inf] * 4, [1, 2, 3, 4]))
    assert math.isnan(rank_correlation([1, 2, np.nan], [1, 2, 3])) and math.isnan(rank_correlation([], []))
    with pytest.raises(ShapeError, match="as many as a"):
        rank_correlation([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    "model",
    [
        ScanLayer(12),
        ScanLayer(12, 6),
        Transformer(12, width=8, hidden=8, positions=False),
        Transformer(
            12, layers=2, heads=4, width=16, hidden=0, layer_norm=False, positions=False, dropout=0.1
        ),
    ],
)
def test_pair_logits_are_those_behind_the_maps(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for w in model.parameters():
            w.add_(torch.randn(w.shape, generator=generator) * 0.3)
    model.eval()
    own = isinstance(model, Transformer)
    tokens = torch.as_tensor(text(2)[:9])
    maps = model(tokens[None]).attention[0][0].detach().numpy()
    logits = pair_logits(model, [7, *range(5)])
    assert logits.shape == (len(maps), 6, 12)
    logits = pair_logits(model, np.arange(12))
    for t in range(1, 9):
        a = logits[:, int(tokens[t])][:, tokens[: t + own].numpy()]
        b = np.exp(a - a.max(1, keepdims=True))
        np.testing.assert_allclose(maps[:, t, : t + own], b / b.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_pair_logits_errors() -> None:
    with pytest.raises(DataError, match=r"no function of two token types\. Build it with positions=False"):
        pair_logits(Transformer(8, width=8, hidden=8), [0])
    with pytest.raises(DataError, match="not for Linear"):
        pair_logits(torch.nn.Linear(2, 2), [0])
    with pytest.raises(DataError, match=r"queries must hold tokens 0\.\.7 of the vocabulary, got 0\.\.8"):
        pair_logits(ScanLayer(8), [0, 8])
    with pytest.raises(ShapeError, match="queries must be a list of whole numbers"):
        pair_logits(ScanLayer(8), 0)
