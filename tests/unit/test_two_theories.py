"""Flows with and without normalisation, their scores, and the SVM of a selection."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import scansnap
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
