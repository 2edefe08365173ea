"""Experiments on synthetic classes: published numbers, and stored records that come out again."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import experiments, scansnap
from svmlib.experiments.syn import syn_medium_entropies, syn_small_losses

SMALL = scansnap.syn_small()


@pytest.fixture(scope="module")
def two():
    return experiments.p3_syn_small(4, seed=2)


def test_the_published_losses(two):
    log = syn_small_losses()
    at = np.searchsorted(two["steps"], log[:, 0])
    np.testing.assert_array_equal(two["steps"][at], log[:, 0])
    assert two["loss"][0, :, 0] == pytest.approx(np.log(34), abs=1e-12)
    np.testing.assert_allclose(two["loss"][0, :, at[:6]].mean(1), log[:6, 1], rtol=0.12)
    np.testing.assert_allclose(two["loss"][0, :, at[6:]].mean(1), log[6:, 1], rtol=0.25)


def test_attention_keeps_to_frequent_tokens_and_is_denser_behind_a_fast_decoder(two):
    end = two["s"][:, :, -1, 0]
    common = scansnap.common_mass(SMALL, two["s"])[:, :, -1, 0]
    np.testing.assert_allclose(common.mean(1), [0.355, 0.566], atol=0.04)
    np.testing.assert_allclose(end[..., 19].mean(1), [0.186, 0.090], atol=0.03)
    assert (common[0] < common[1]).all()
    assert (end[0, :, 10:20].argmax(-1) >= 8).all()


def test_without_momentum_the_same_picture_is_slower():
    r = experiments.p3_syn_momentum(2)
    mass = {key: scansnap.common_mass(SMALL, r[f"{key}_s"])[:, -1, 0] for key in ("momentum", "slow", "fast")}
    np.testing.assert_allclose(mass["slow"], 0.450, atol=0.03)
    np.testing.assert_allclose(mass["fast"], mass["slow"], atol=0.03)
    assert mass["momentum"].mean() < mass["slow"].mean()


def test_adam_keeps_three_profiles():
    r = experiments.p3_adam(3, seed=2)
    mass = scansnap.common_mass(SMALL, r["s"])[:, :, -1, 0]
    np.testing.assert_allclose(mass.mean(1), [0.31, 0.007, 0.0], atol=0.01)
    top = r["s"][:, :, -1, 0, 10:20].mean(1).argmax(-1)
    assert 2 <= top[0] <= 4 <= top[1] <= 7 < 8 <= top[2]


def test_a_part_of_the_sweep_comes_out_again():
    stored = experiments.stored("p3_syn_medium")
    again = experiments.p3_syn_medium(10, queries=[1], rates=[0.5], ratios=[1.0, 10.0])
    for key in ("entropy", "entropy_all", "entropy_part", "common", "loss", "risen", "fallen"):
        np.testing.assert_allclose(again[key][0, 0], stored[key][0, 0, [0, 3]], rtol=1e-6, atol=1e-9)
    assert stored.trials == 10
    assert stored.seed == 0


def test_every_cell_of_the_sweep_is_the_published_one():
    found, published = experiments.stored("p3_syn_medium"), syn_medium_entropies()
    mean, std = found["entropy"].mean(-1), found["entropy"].std(-1)
    assert mean.shape == (4, 4, 4)
    off = (mean - published[..., 0]) / np.sqrt((std**2 + published[..., 1] ** 2) / 10)
    assert np.abs(off).max() < 4
    assert (np.diff(mean, axis=1) < 0).all()  # sparser with the rate of attention
    assert (np.diff(mean[1:, :, 1:], axis=2) > 0).all()  # denser with the ratio, from 2 on
    assert (mean[1:, :, 1] < mean[1:, :, 0]).all()  # and sparser below
    np.testing.assert_allclose(found["entropy_start"].mean(1), 2.151, atol=0.01)


def test_the_dip_belongs_to_the_decoder():
    r = experiments.stored("p3_ratio")
    assert (np.diff(r["reduced"], axis=1) > 0).all()
    for key in ("population", "flow"):
        lowest = r["ratios"][r[key].argmin(1)]
        assert ((lowest >= 1) & (lowest <= 3)).all()
    again = experiments.p3_ratio(1, queries=[1], ratios=[0.5, 3.0])
    for key in ("population", "flow", "reduced"):
        np.testing.assert_allclose(again[key][0], r[key][0, [0, 3]], rtol=1e-5)


def test_short_sequences_make_attention_sparser_like_one_over_their_length():
    r = experiments.stored("p3_length")
    for key in ("small", "medium"):
        gap = r[f"{key}_entropy_drawn"].mean() - r[f"{key}_entropy"].mean(1)
        assert (gap > 0).all()
        assert -1.25 < np.polyfit(np.log(r["lengths"][2:]), np.log(gap[2:]), 1)[0] < -0.7
    again = experiments.p3_length(20, lengths=[15], queries=1)
    np.testing.assert_allclose(again["small_entropy"][0], r["small_entropy"][0], rtol=1e-6)


def test_recall_of_the_stored_runs_is_flatter_for_fast_attention():
    r = experiments.stored("p3_recall")
    assert (np.diff(r["recall_rates"], axis=-1) <= 0).all()
    half, double = (np.abs(r["levels"] - x).argmin() for x in (0.5, 2.0))
    lost = (r["recall_rates"][0][..., half] - r["recall_rates"][0][..., double]).mean(-1)
    assert lost[-1] < lost[0] - 0.05
    stored = experiments.stored("p3_syn_medium")
    np.testing.assert_allclose(r["entropy_rates"], stored["entropy"][:, :, 1], rtol=1e-6)
    again = experiments.p3_recall(10, queries=[1], rates=[3.0], ratios=[1.0], levels=r["levels"])
    np.testing.assert_allclose(again["recall_rates"][0, 0], r["recall_rates"][0, 3], atol=1e-9)
