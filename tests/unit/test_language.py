"""The models: what they read, what they cannot read, and what they tell a user who got a size wrong."""

import math

import numpy as np
import pytest
import torch

from svmlib.errors import DataError, SvmlibError
from svmlib.language import ScanLayer, Training, Transformer, evaluate, train_language
from svmlib.scansnap import TokenProcess, attention, gradients


def stream(size: int = 2000, vocabulary: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 4, size) * 3 + np.arange(size) % 3) % vocabulary


@pytest.mark.parametrize(
    "model",
    [
        ScanLayer(12),
        ScanLayer(12, 6),
        Transformer(12, layers=2, heads=2, width=8, hidden=8),
        Transformer(12, width=8, hidden=0, layer_norm=False, positions=False),
    ],
)
def test_nobody_reads_the_future_and_rows_are_probabilities(model: torch.nn.Module) -> None:
    tokens = torch.as_tensor(stream()[:40].reshape(2, 20))
    changed = tokens.clone()
    changed[:, 11:] = (changed[:, 11:] + 5) % 12
    one, two = model(tokens), model(changed)
    torch.testing.assert_close(one.logits[:, :11], two.logits[:, :11])
    for layer in one.attention:
        assert layer.shape[0] == 2 and layer.shape[-2:] == (20, 20)
        assert (layer.triu(1) == 0).all()
        torch.testing.assert_close(layer[..., 1:, :].sum(-1), torch.ones_like(layer[..., 1:, 0]))


def test_scan_layer_is_the_layer_of_the_theory() -> None:
    rng = np.random.default_rng(0)
    model, V, T = ScanLayer(5), 5, 7
    D, Z = rng.normal(size=(V, V)), rng.normal(size=(V, V))
    with torch.no_grad():
        model.D.copy_(torch.as_tensor(D))
        model.Z.copy_(torch.as_tensor(Z))
    tokens = np.array([0, 1, 1, 2, 0, 1, 3])
    reading = model(torch.as_tensor(tokens[None]))
    for t in range(1, T):
        counts = np.bincount(tokens[:t], minlength=V) / t
        process = TokenProcess(counts[None], [int(tokens[t])], [4])
        s = attention(process, Z[tokens[t]][None])[0]
        f = s / np.linalg.norm(s)
        np.testing.assert_allclose(reading.logits[0, t].detach(), D.T @ f, atol=1e-5)
        by_type = np.bincount(tokens[:t], reading.attention[0][0, 0, t, :t].detach(), minlength=V)
        np.testing.assert_allclose(by_type, s, atol=1e-6)


def test_scan_layer_has_the_gradients_of_the_theory() -> None:
    # one sequence in which the query 3 comes last and 4 follows
    rng = np.random.default_rng(1)
    D, Z = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))
    model = ScanLayer(5)
    with torch.no_grad():
        model.D.copy_(torch.as_tensor(D))
        model.Z.copy_(torch.as_tensor(Z))
    tokens = torch.tensor([[0, 1, 1, 2, 0, 1, 3]])
    loss = torch.nn.functional.cross_entropy(model(tokens).logits[:, -1], torch.tensor([4]))
    loss.backward()
    process = TokenProcess([[2 / 6, 3 / 6, 1 / 6, 0, 0]], [3], [4])
    theory = gradients(process, D, Z[3][None])
    assert float(loss.detach()) == pytest.approx(float(theory.loss), rel=1e-5)
    np.testing.assert_allclose(model.D.grad, theory.D, atol=1e-5)
    np.testing.assert_allclose(model.Z.grad[3], theory.z[0], atol=1e-5)


def test_without_positions_order_is_not_seen_and_with_them_it_is() -> None:
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    shuffled = torch.tensor([[3, 1, 4, 2, 5]])
    blind, seeing = (Transformer(8, width=8, hidden=8, positions=p) for p in (False, True))
    torch.testing.assert_close(blind(tokens).logits[0, -1], blind(shuffled).logits[0, -1])
    assert not torch.allclose(seeing(tokens).logits[0, -1], seeing(shuffled).logits[0, -1])


def test_seeds_make_models() -> None:
    one, same, other = (Transformer(8, width=8, hidden=8, seed=s) for s in (1, 1, 2))
    assert torch.equal(one.decoder.weight, same.decoder.weight)
    assert not torch.equal(one.decoder.weight, other.decoder.weight)
    state = torch.random.get_rng_state()
    Transformer(8, width=8, hidden=8)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("skip, model", [(0, Transformer(12, width=8, hidden=8)), (1, ScanLayer(12, 4))])
@pytest.mark.parametrize("size", [3, 9, 10, 11, 30, 31])
def test_every_token_is_predicted_once(skip: int, model: torch.nn.Module, size: int) -> None:
    text, length = stream(size), 10
    losses = []
    for at in range(1 + skip, size):
        start = (at - 1 - skip) // (length - skip) * (length - skip)
        with torch.no_grad():
            logits = model(torch.as_tensor(text[None, start:at])).logits[0, -1]
        losses.append(float(-torch.log_softmax(logits, -1)[text[at]]))
    for batch in (1, 2, 64):
        assert evaluate(model, text, length, batch) == pytest.approx(np.mean(losses), rel=1e-5)


def test_evaluation_keeps_the_mode_of_the_model() -> None:
    model = Transformer(12, width=8, hidden=8, dropout=0.5)
    model.train()
    assert evaluate(model, stream(100), 10) == evaluate(model, stream(100), 10)
    assert model.training


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Transformer(8, width=6, heads=4), "multiple of heads"),
        (lambda: Transformer(8, width=8, dropout=1.0), r"dropout must lie in \[0, 1\)"),
        (lambda: Transformer(1), "vocabulary"),
        (lambda: Transformer(8, layers=0), "layers"),
        (lambda: ScanLayer(8, 0), "width"),
        (lambda: Training(rate=0.0, steps=3), "rate"),
        (lambda: Training(rate=1.0, steps=0), "steps"),
        (lambda: Training(rate=1.0, steps=3, optimizer="sdg"), "optimizer"),
        (lambda: Training(rate=1.0, steps=3, schedule="linear"), "schedule"),
        (lambda: Training(rate=1.0, steps=3, momentum=1.0), "momentum"),
        (lambda: Training(rate=1.0, steps=3, clip=-1.0), "clip"),
    ],
)
def test_wrong_settings_are_named(make, words: str) -> None:
    with pytest.raises(SvmlibError, match=words):
        make()


def test_streams_that_do_not_fit_are_named() -> None:
    model, training = Transformer(12, width=8, hidden=8), Training(rate=1.0, steps=2, batch=2, length=8)
    for ids, words in (
        (np.arange(9.0), "whole numbers"),
        (np.arange(4), "has 4 tokens, but at least 9"),
        (np.arange(20), r"tokens 0\.\.11 of the model's vocabulary, got 0\.\.19"),
        (-np.ones(20, int), r"got -1\.\.-1"),
        (np.zeros((5, 5), int), "shape"),
    ):
        with pytest.raises(DataError, match=words):
            train_language(model, ids, training)
    with pytest.raises(DataError, match="probes must have shape"):
        train_language(model, stream(), training, probes=[1, 2])
    with pytest.raises(DataError, match="probes must hold tokens"):
        train_language(model, stream(), training, probes=[[1, 12]])
    with pytest.raises(DataError, match="valid must hold"):
        train_language(model, stream(), training, valid=np.full(30, 12))
    with pytest.raises(DataError, match="precision"):
        train_language(model, stream(), training, precision="half")
    with pytest.raises(DataError, match="needs a GPU"):
        train_language(model, stream(), training, precision="fp16")


def test_rates_follow_their_schedule() -> None:
    for schedule, first, middle, last in (
        ("constant", 2.0, 2.0, 2.0),
        ("cosine", 2.0, 1.0, 0.0),
        ("inverse", 2.0, 2 * math.sqrt(10 / 51), 2 * math.sqrt(10 / 101)),
    ):
        t = Training(rate=2.0, steps=100, schedule=schedule)
        assert [t.rate_at(k) for k in (0, 50, 100)] == pytest.approx([first, middle, last], abs=1e-12)
