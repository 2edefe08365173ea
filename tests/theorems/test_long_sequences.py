"""Closed forms behind the chapter on long sequences, and checks that notice wrong mathematics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import svmlib as sv
from svmlib.checks import long_sequences, long_sequences_flow, long_sequences_limit


def test_constants_of_equally_frequent_types():
    L = 5
    found = long_sequences_limit.limit(np.full(L, 1 / L), np.zeros(L))
    assert found.types == pytest.approx(L)
    assert found.spread_f == pytest.approx(L - 1)
    assert found.spread_s == pytest.approx(1 - 1 / L)
    np.testing.assert_allclose(found.bias, -0.5 * (L - 1) * found.f)
    assert found.reach == pytest.approx(np.sqrt(L))


def test_a_logit_acts_like_a_frequency_on_attention_and_not_on_errors():
    P, z = np.array([0.5, 0.25, 0.25]), np.array([0.0, np.log(2), 0.0])
    s = long_sequences.by_counts(P, z)
    np.testing.assert_allclose(s, [0.4, 0.4, 0.2])
    tilted = long_sequences_limit.limit(P, z)
    drawn = long_sequences_limit.limit(s, np.zeros(3))
    np.testing.assert_allclose(tilted.f, drawn.f)
    assert tilted.types > drawn.types  # the tilted type is rarer than its attention says


def test_counts_of_three_types_have_the_right_moments():
    P = np.array([0.2, 0.3, 0.5])
    counts, probability = long_sequences_limit.enumerate_counts(P, 12)
    assert len(counts) == 13 * 14 // 2
    np.testing.assert_allclose(probability @ counts, 12 * P)
    assert probability @ counts[:, 0] ** 2 - (12 * 0.2) ** 2 == pytest.approx(12 * 0.2 * 0.8)


def test_ascent_composes_only_with_normalisation():
    v, P = np.array([1.0, 0.7, 0.4]), np.full(3, 1 / 3)
    np.testing.assert_allclose(long_sequences_flow.climb(v, P, 1000), v / v.sum(), atol=1e-9)
    assert long_sequences_flow.climb(v, P, 1000, unit=False)[0] > 0.99
    # what the head dislikes is shut out
    assert long_sequences_flow.climb(np.array([1.0, -0.6]), np.full(2, 0.5), 4000)[1] < 0.05


def test_the_layer_by_positions_is_the_library_in_the_limit():
    process = sv.scansnap.syn_small()
    rng = np.random.default_rng(0)
    D, z = rng.normal(size=(34, 34)), rng.normal(size=(2, 34))
    Z = np.zeros((34, 34))
    Z[process.queries] = z
    # frequencies of Syn-Small are multiples of 1/155: a sequence can have them exactly
    counts = np.rint(process.P * 155).astype(int)
    tokens = np.array([np.repeat(np.arange(34), k) for k in counts])
    data = long_sequences.Sequences(tokens, process.query, process.label)
    loss, read = long_sequences.read_positions(data, torch.tensor(D), torch.tensor(Z))
    assert loss.item() == pytest.approx(float(sv.scansnap.loss(process, D, z)))
    np.testing.assert_allclose(read.numpy(), sv.scansnap.features(sv.scansnap.attention(process, z)))


@pytest.mark.parametrize(
    ("label", "module", "name", "wrong"),
    [
        ("lem-long-gradients", long_sequences, "lemma_formula", "halved"),
        ("thm-long-limit", long_sequences_limit, "by_counts", "untilted"),
        ("prop-long-mean", long_sequences_limit, "limit", "no bias along f"),
    ],
)
def test_checks_fail_on_wrong_formulas(monkeypatch, label, module, name, wrong):
    right = getattr(module, name)
    replaced = {
        "halved": lambda s, D, k: (right(s, D, k)[0], 0.5 * right(s, D, k)[1]),
        "untilted": lambda counts, z: right(np.sqrt(counts), z),
        "no bias along f": lambda P, z: right(P, z)._replace(
            bias=right(P, z).bias + 0.5 * right(P, z).spread_f * right(P, z).f
        ),
    }[wrong]
    monkeypatch.setattr(module, name, replaced)
    long_sequences_limit.errors.cache_clear()
    with pytest.raises(sv.checks.CheckFailed):
        sv.checks.run(label, trials=20 if label == "thm-long-limit" else 3)
    long_sequences_limit.errors.cache_clear()
