"""The flow with and without normalisation, against the library's own and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import scansnap
from svmlib.errors import DataError, ShapeError
from svmlib.experiments import two_theories as tt

TIMES = np.array([0.0, 1.0, 30.0, 1000.0])


def test_with_normalisation_it_is_the_flow_of_the_library() -> None:
    process = tt.two_processes()[0]
    context = process.P.any(0)
    ours, theirs = tt.layer_flow(process, TIMES, 3.0, rtol=1e-10), scansnap.flow(process, TIMES, 3.0, 1.0)
    np.testing.assert_allclose(ours.z, theirs.z[..., context], atol=1e-7)
    np.testing.assert_allclose(ours.s, theirs.s[..., context], atol=1e-7)
    np.testing.assert_allclose(ours.loss, theirs.loss, rtol=1e-6)


@pytest.mark.parametrize("normalized", [True, False])
def test_loss_falls_by_the_squared_gradient(normalized: bool) -> None:
    process = scansnap.TokenProcess(
        [[4, 2, 1, 0, 0, 0], [3, 0, 1, 2, 0, 0], [1, 1, 0, 1, 0, 0]], [4, 4, 5], [0, 1, 2], prior=[1, 2, 3]
    )
    start = np.random.default_rng(0).normal(size=(4, 4))
    h = 1e-4
    run = tt.layer_flow(process, [0.0, h], 1.0, normalized=normalized, decoder=start, rtol=1e-12)
    move = ((run.z[1] - run.z[0]) ** 2).sum()
    # the last column stands for the three other tokens: each moves by a third of the sum
    step = run.decoder[1] - run.decoder[0]
    move += (step**2 @ np.array([1.0, 1.0, 1.0, 3.0])).sum()
    assert abs((run.loss[0] - run.loss[1]) * h / move - 1) < 1e-3


def test_a_decoder_of_rate_zero_stands_still() -> None:
    process = tt.two_processes()[1]
    trained = tt.layer_flow(process, [20.0], 1.0, 0.0)
    run = tt.layer_flow(process, [0.0, 50.0], 0.0, decoder=trained.decoder[-1])
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


def test_errors() -> None:
    process = tt.two_processes()[0]
    with pytest.raises(DataError, match="increasing"):
        tt.layer_flow(process, [1.0, 1.0])
    with pytest.raises(DataError, match="not be negative"):
        tt.layer_flow(process, [1.0], -1.0)
    with pytest.raises(ShapeError, match="decoder"):
        tt.layer_flow(process, [1.0], decoder=np.zeros((2, 2)))
