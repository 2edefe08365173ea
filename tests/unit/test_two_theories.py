"""Flows with and without normalisation, their scores, and the SVM of a selection."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import scansnap
from svmlib.errors import DataError, ShapeError
from svmlib.experiments import two_theories as tt


@pytest.mark.parametrize("normalized", [True, False])
def test_scores_drive_attention_as_softmax_would(normalized: bool) -> None:
    process, h = tt.two_processes()[0], 1e-4
    decoder = np.random.default_rng(1).normal(size=(14, 4))
    run = scansnap.flow(process, [0.0, h], 0.0, 1.0, decoder=decoder, normalize=normalized, rtol=1e-12)
    s, worth = run.s[0], tt.scores(run, normalized)[0]
    pull = s * (worth - (s * worth).sum(-1, keepdims=True))
    np.testing.assert_allclose((run.z[1, 0] - run.z[0, 0]) / h, pull.mean(0), atol=1e-3 * np.abs(pull).max())


@pytest.mark.parametrize("normalized", [True, False])
def test_loss_falls_by_the_squared_gradient(normalized: bool) -> None:
    process = scansnap.TokenProcess(
        [[4, 2, 1, 0, 0, 0], [3, 0, 1, 2, 0, 0], [1, 1, 0, 1, 0, 0]], [4, 4, 5], [0, 1, 2], prior=[1, 2, 3]
    )
    start = np.random.default_rng(0).normal(size=(4, 4))
    h = 1e-4
    run = scansnap.flow(process, [0.0, h], 1.0, normalize=normalized, decoder=start, rtol=1e-12)
    move = ((run.z[1] - run.z[0]) ** 2).sum()
    # the last column stands for the three other tokens: each moves by a third of the sum
    step = run.decoder[1] - run.decoder[0]
    move += (step**2 @ np.array([1.0, 1.0, 1.0, 3.0])).sum()
    assert abs((run.loss[0] - run.loss[1]) * h / move - 1) < 1e-3


def test_a_decoder_of_rate_zero_stands_still() -> None:
    process = tt.two_processes()[1]
    trained = scansnap.flow(process, [20.0], 1.0, 0.0)
    run = scansnap.flow(process, [0.0, 50.0], 0.0, decoder=trained.decoder[-1])
    np.testing.assert_array_equal(run.decoder[1], trained.decoder[-1])
    assert not trained.z.any()
    assert run.z[1].any()


def test_selection_svm_has_unit_margins() -> None:
    process = tt.two_processes()[0]
    p = tt.selection_svm(process, [2, 6, 10])
    held = np.flatnonzero(process.P[1] > 0)
    np.testing.assert_allclose(np.delete(p[6] - p[held], 2), 1.0, atol=1e-8)
    alone = tt.selection_svm(process, [2, 6, 10], np.arange(14) < 2)
    np.testing.assert_allclose(alone[[0, 2, 3]], [-0.6, 0.4, 0.0], atol=1e-8)


def test_attention_behind_a_frozen_normalised_decoder_is_held_where_it_has_stopped() -> None:
    process, times = tt.two_processes()[1], np.array([0.0, 3.0, 1e3, 1e7, 1e10])
    decoder = scansnap.flow(process, [20.0], 1.0, 0.0).decoder[-1]
    held = tt._settled(process, times, decoder, True)
    np.testing.assert_array_equal(held.times, times)
    np.testing.assert_array_equal(held.z[-1], held.z[-2])
    run = scansnap.flow(process, times[:4], 0.0, decoder=decoder)
    for name in ("loss", "s", "z", "sent", "decoder"):
        np.testing.assert_allclose(getattr(held, name)[:4], getattr(run, name), atol=1e-7)
    # at rest distinct tokens share attention as they did when the decoder was trained
    own = slice(2, 6)
    np.testing.assert_allclose(held.s[-1, 0, own] / held.s[-1, 0, 2], process.P[0, own] / process.P[0, 2])


def test_attention_that_still_moves_is_followed_to_the_end() -> None:
    process, times = tt.two_processes()[0], np.array([0.0, 1e7])
    decoder = scansnap.flow(process, [1e4], 1.0, 0.0, normalize=False).decoder[-1]
    run = tt._settled(process, times, decoder, False)
    assert run.z[-1, 0, 2] - run.z[-1, 0, 0] > 5.0


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [([2, 2, 2], DataError, "occurs in each class"), ([2], ShapeError, "each of 3 classes")],
)
def test_selection_svm_says_what_it_needs(tokens: list[int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tt.selection_svm(tt.two_processes()[0], tokens)


def test_selection_svm_wants_classes_of_one_size() -> None:
    ragged = scansnap.TokenProcess([[4, 2, 1, 0, 0, 0], [3, 0, 1, 2, 1, 0]], [5, 5], [0, 1])
    with pytest.raises(ShapeError, match="equally many"):
        tt.selection_svm(ragged, [0, 3])
