"""Hidden layer and attention trained together."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import joma
from svmlib.checks.two_theories_joma import published_targets
from svmlib.errors import DataError, SolverError


def test_frequencies_are_probabilities_with_bumps_in_order() -> None:
    P = joma.frequencies(6, 4, 3, seed=2)
    assert P.shape == (6, 7)
    np.testing.assert_allclose(P.sum(1), 1.0)
    ratio = P[0, :4] / P[0, 0]
    np.testing.assert_allclose(ratio, np.exp(-(np.arange(4) ** 2) / 30.0))
    assert not np.allclose(joma.frequencies(6, 4, 3, bumps=False, seed=2)[0, :4] / P[0, 0], ratio)


@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_steps_follow_the_gradient_of_the_loss(softmax: bool, activation: str) -> None:
    P = joma.frequencies(4, 3, 2)
    options = {"softmax": softmax, "activation": activation, "hidden": 5, "scale": 0.4, "temperature": 0.7}
    coarse, fine = (joma.train(P, 1, rate, record=[0, 1], **options) for rate in (1e-4, 1e-5))
    # the loss falls by the rate times the squared gradient: the motion of z, v and r is part of it
    falls = [(run.loss[0] - run.loss[1]) / rate for run, rate in ((coarse, 1e-4), (fine, 1e-5))]
    assert abs(falls[0] / falls[1] - 1) < 1e-3
    moved = sum(((a[1] - a[0]) ** 2).sum() for a in (fine.z, fine.v, fine.residual)) / 1e-10
    assert 0 < moved <= falls[1] * (1 + 1e-3)


def test_without_a_last_layer_the_fall_is_the_squared_gradient() -> None:
    run = joma.train(joma.frequencies(4, 3, 2), 1, 1e-6, record=[0, 1], scale=0.5)
    moved = sum(((a[1] - a[0]) ** 2).sum() for a in (run.z, run.v, run.residual)) / 1e-12
    assert abs((run.loss[0] - run.loss[1]) / 1e-6 / moved - 1) < 1e-4


def test_invariant_is_exact_for_the_flow_of_exponential_attention_only() -> None:
    P, options = joma.frequencies(5, 4, 2), {"record": 5, "flow": True, "scale": 0.3}
    run = joma.train(P, 100, softmax=False, **options)
    np.testing.assert_allclose(joma.invariant(run).exponential, run.z, atol=1e-9)
    soft = joma.train(P, 100, **options)
    assert np.abs(joma.invariant(soft).exponential - soft.z).max() > 1e-3
    np.testing.assert_allclose(soft.b.sum(-1), 1.0)


def test_a_flow_of_no_length_is_its_start() -> None:
    run = joma.train(joma.frequencies(3, 2, 2), 0, flow=True)
    np.testing.assert_array_equal(run.z, joma.train(joma.frequencies(3, 2, 2), 0).z)


def test_toy_is_sparse_then_dense() -> None:
    v = joma.toy(published_targets())
    entropy = joma.entropy_path(v)
    assert v.shape == (5001, 10)
    assert abs(entropy[0] - np.log(10)) < 1e-12
    assert abs(entropy.min() - 0.942) < 2e-3
    assert abs(entropy[-1] - 1.549) < 2e-3


def test_erf_ratio_is_linear_for_small_weights() -> None:
    ratio = joma.erf_ratio([1e-6, -2e-6], [1.0, -2.0])
    np.testing.assert_allclose(ratio, 1e-6 * np.sqrt(2 / np.pi))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: joma.train([[1.0, -1.0]], 1), DataError, "none negative"),
        (
            lambda: joma.train(joma.frequencies(), 1, activation="gelu"),
            DataError,
            "activation must be one of",
        ),
        (lambda: joma.erf_ratio([1.0], [0.0]), DataError, "never moves"),
        (
            lambda: joma.train(joma.frequencies(), 60, 500.0, softmax=False, scale=3.0),
            SolverError,
            "smaller rate",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_errors_say_what_to_do(call, error, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call()
