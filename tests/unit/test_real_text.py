"""Experiments on real text: shapes, what is kept, what comes out again, and what stored records say."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import experiments, language, text
from svmlib.errors import DataError
from svmlib.experiments._language_runs import LAG, lagged_steps

NAMES = (
    "p3_embedded_models",
    "p3_embedded_scan",
    "p3_wikitext2",
    "p3_wikitext2_models",
    "p3_wikitext2_scan",
)


@pytest.mark.parametrize("steps", [100, 600, 4000])
def test_snapshots_come_in_pairs(steps):
    when = lagged_steps(steps)
    first = when[:-1][np.diff(when) == LAG]
    assert when[0] == 0 and when[-1] == steps
    assert set(when.tolist()) == {*first.tolist(), *(first + LAG).tolist()}
    with pytest.raises(DataError, match="multiple of 20"):
        lagged_steps(steps + 1)


@pytest.fixture(scope="module")
def small():
    return experiments.p3_embedded(1, models=("1", "3p", "scan"), rates=(0.5,), steps=100, width=16)


def test_a_record_holds_every_model(small):
    r, s = len(small["steps"]), len(small["speed_at"])
    assert small["entropy"].shape == (3, 1, 1, 3, r)
    assert small["speed"].shape == (3, 1, 1, 3, s)
    assert small["maps"].shape == (3, 1, 1, 5, 32, 32)
    there = np.isfinite(small["entropy"]).all(-1)[:, 0, 0]
    np.testing.assert_array_equal(there, [[1, 0, 0], [1, 1, 1], [1, 0, 0]])
    np.testing.assert_array_equal(np.isfinite(small["growth"]).all((-1, -2))[:, 0, 0], [1, 0, 1])
    assert (small["valid"][..., 0] > small["valid"][..., -1]).all()
    np.testing.assert_allclose(small["valid"][2, 0, 0, 0], np.log(2000), rtol=1e-5)


def test_entropy_at_the_start_is_that_of_uniform_attention(small):
    # the layer of the theory starts at zero logits: position t reads t tokens alike
    np.testing.assert_allclose(small["entropy"][2, 0, 0, 0, 0], np.log(np.arange(2, 32)).mean(), rtol=1e-6)
    np.testing.assert_allclose(small["relative"][2, 0, 0, 0, 0], 1.0, rtol=1e-6)


def test_distances_and_speeds_agree(small):
    steps, at = small["steps"], small["speed_at"]
    rows = np.searchsorted(steps, at)
    distance = small["distance"][:, 0, 0][:, rows, rows + 1]
    np.testing.assert_allclose(distance / LAG, small["speed"][:, 0, 0, 0], rtol=1e-9)


def test_the_text_of_a_record_is_named(small):
    corpus = text.load_corpus()
    assert str(small["checksum_train"]) == corpus.checksum("train")
    assert str(small["checksum_test"]) == corpus.checksum("test")
    vocabulary = text.build_vocabulary(corpus, "train", size=2000)
    assert tuple(small["vocabulary"].tolist()) == vocabulary.words
    assert small["tokens_train"] == sum(1 for _ in corpus.words("train"))


def test_a_stopped_experiment_goes_on_with_the_same_numbers(tmp_path, monkeypatch, small):
    from svmlib.experiments import _language_runs

    train, calls = _language_runs._trained, []

    def twice(*args, **how):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(*args, **how)

    options = {"models": ("1", "3p", "scan"), "rates": (0.5,), "steps": 100, "width": 16, "folder": tmp_path}
    monkeypatch.setattr(_language_runs, "_trained", twice)
    with pytest.raises(KeyboardInterrupt):
        experiments.p3_embedded(1, **options)
    again = experiments.p3_embedded(1, **options)
    assert len(calls) == 4  # two that were kept, one that was broken off, and that one again
    for key in small.arrays:
        np.testing.assert_array_equal(again[key], small[key], err_msg=key)


def test_unknown_models_and_missing_texts_are_named(monkeypatch, tmp_path):
    with pytest.raises(DataError, match="no model '2'"):
        experiments.p3_embedded(1, models=("2",), steps=100)
    monkeypatch.setenv("SVMLIB_CORPORA", str(tmp_path))
    (tmp_path / "wikitext-2").mkdir()
    with pytest.raises(DataError, match="three ways"):
        experiments.p3_wikitext2(1, steps=100)


@pytest.mark.parametrize("name", NAMES)
def test_stored_records_are_of_the_whole_experiment(name):
    record, run = experiments.stored(name), experiments.EXPERIMENTS[name]
    assert record.trials == run.trials == 3
    assert record.seed == 0
    assert record["entropy"].shape[:3] == (len(record["models"]), len(record["rates"]), 3)
    assert np.isfinite(record["entropy"][..., 0, :]).all()
    assert np.isfinite(record["valid"]).all()
    assert (record["valid"][..., -1] < record["valid"][..., 0]).all()
    assert len(str(record["checksum_train"])) == 64


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_sparser_at_larger_rates_for_every_seed(name):
    end = experiments.stored(name)["entropy"][:, :, :, 0, -1]
    assert (end[:, -1] < end[:, 0]).all()


@pytest.mark.parametrize("name", ["p3_embedded_scan", "p3_wikitext2_scan"])
def test_what_a_stored_record_says_of_its_text_comes_out_again(name):
    record = experiments.stored(name)
    if "embedded" in name:
        corpus, split, other = text.load_corpus(), "train", "another version of Python"
    else:
        try:
            corpus, split, other = text.load_corpus("wikitext-2"), "valid", "another edition of the text"
        except DataError:
            pytest.skip("WikiText-2 is not on this machine (SVMLIB_CORPORA)")
    if corpus.checksum(split) != str(record["checksum_train"]):
        pytest.skip(f"the stored record is of {other}")
    vocabulary = text.build_vocabulary(corpus, split, size=len(record["vocabulary"]))
    assert vocabulary.words == tuple(record["vocabulary"].tolist())
    words = text.encode(corpus, split, vocabulary)
    queries = record["queries"]
    cooc = text.cooccurrence(words, queries, length=31, vocabulary=len(vocabulary))
    velocity = language.expected_velocity(cooc)
    windows = language.initial_velocity(words, queries, length=32, vocabulary=len(vocabulary), stride=8)
    known = cooc.seen.sum(1) >= 20
    limit = [language.rank_correlation(v[k], w[k]) for v, w, k in zip(velocity, windows, known, strict=True)]
    np.testing.assert_allclose(record["limit"][0, 0, 0], limit, atol=0.01)
