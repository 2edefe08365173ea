"""Trained attention under quadratic and ReLU heads, against what is optimal."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.experiments import selection_count
from svmlib.experiments.selection_count import CURVATURES, lambda_problem, settle


@pytest.fixture(scope="module")
def record():
    return sv.experiments.p1_lambda_selection(trials=12)


def test_training_finds_sparsemax(record):
    error = np.abs(record["probabilities"] - record["predicted"]).max((-2, -1))
    assert error.shape == (len(CURVATURES),)
    assert error.max() <= 1e-2


def test_counts_equal_those_of_sparsemax_and_the_reference(record):
    trained, predicted = (
        (record[key] > selection_count.SELECTED).sum(-1) for key in ("probabilities", "predicted")
    )
    np.testing.assert_array_equal(trained, predicted)
    # mean counts of an independent implementation with the same draws
    reference = [1.0, 1.42, 2.08, 2.75, 3.08, 3.92, 4.33, 5.0, 7.25, 8.0]
    np.testing.assert_allclose(trained.mean(-1), reference, atol=0.005)


def test_exact_counts_are_the_thresholds_below(record):
    positive = (record["predicted"][1:] > 0).sum(-1)
    below = (record["thresholds"] < record["curvatures"][1:, None, None]).sum(-1)
    np.testing.assert_array_equal(positive, below)
    assert (np.diff(positive, axis=0) >= 0).all()


def test_prediction_agrees_with_the_solver():
    p = lambda_problem([0.05, 0.7, 5.0], 6)
    best = sv.attention.best_attention(p)
    found = sv.experiments.p1_lambda_selection(trials=6, curvatures=(0.05, 0.7, 5.0))
    assert np.abs(best.probabilities[..., 0, :] - found["predicted"]).max() <= 1e-10


def test_several_sequences_with_random_queries():
    p = lambda_problem([0.3, 3.0], 5, T=6, n=3)
    s = sv.attention.probabilities(p, settle(p).matrix())
    best = sv.attention.best_attention(p)
    assert np.median(np.abs(s - best.probabilities).max((-2, -1))) <= 1e-2


def test_labels_of_a_relu_head():
    r = sv.experiments.p1_relu_selection(trials=60)
    positive, negative = (r[f"count_{name}"].mean() for name in ("positive", "negative"))
    assert positive <= 1.1
    assert negative >= 3.0
    assert (r["margin_drawn"] <= r["best_drawn"] + 1e-9).all()
    assert (r["label_positive"] == 1).all()
    flat = r["margin_negative"] == 0
    assert (r["best_negative"][flat] >= -1e-12).all()


def test_interrupted_parts_do_not_change_the_record(tmp_path):
    first = sv.experiments.p1_lambda_selection(trials=2, folder=tmp_path)
    again = sv.experiments.load(tmp_path / "p1_lambda_selection")
    np.testing.assert_array_equal(first["probabilities"], again["probabilities"])
