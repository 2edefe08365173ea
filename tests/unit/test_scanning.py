"""Scanning in closed form: the growth curve, the path of symmetric classes and its clock."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import scansnap
from svmlib.errors import DataError, ShapeError

ALIKE = scansnap.symmetric(3, [0.3, 0.1], [0.1, 0.2, 0.3], vocabulary=40)


def test_the_constant_is_shared_by_the_distinct_tokens_of_a_class_from_any_start():
    start = 0.3 * np.random.default_rng(0).normal(size=(1, 40))
    run = scansnap.reduced_flow(ALIKE, [10.0, 1000.0], 1.0, 2.0, z=start)
    Q = scansnap.growth_constant(ALIKE, run.z, start)
    assert Q.shape == (2, 3, 40)
    assert np.array_equal(np.isnan(Q[0]), ALIKE.P == 0)
    own = np.array([Q[:, c, d] for c, d in enumerate(ALIKE.distinct)])
    np.testing.assert_allclose(own, np.broadcast_to(own[..., :1], own.shape), rtol=1e-6)
    assert (Q[:, ALIKE.P > 0][:, :2] < 0).all()  # common tokens fall


def test_the_curve_is_the_law_and_ends_in_its_limits():
    far = np.array([0.0, 0.3, 2.0])
    z = scansnap.growth_curve([0.4, 0.4, 0.1], far)
    chi = np.exp(2 * far)
    np.testing.assert_allclose(z[:, 0], far, atol=1e-15)
    assert np.array_equal(z[:, 0], z[:, 1])
    ratio = 16 * np.exp(2 * (z[:, 0] - z[:, 2]))
    np.testing.assert_allclose(ratio - 1, 15 * chi, rtol=1e-12)
    np.testing.assert_allclose(
        scansnap.growth_curve([0.4, 0.4, 0.1], np.inf), [np.inf, np.inf, 0.5 * np.log(16 / 15)]
    )


@pytest.mark.parametrize("rates", [(1.0, 0.1), (0.3, 5.0)])
def test_path_and_clock_are_those_of_the_reduced_flow(rates):
    times = np.array([0.5, 30.0, 3000.0])
    run = scansnap.reduced_flow(ALIKE, times, *rates)
    lead = int(np.argmax(ALIKE.P[0] * ALIKE.distinct[0]))
    path = scansnap.symmetric_path(ALIKE, run.z[:, 0, lead])
    np.testing.assert_allclose(path.z, run.z, atol=1e-7)
    np.testing.assert_allclose(path.z.sum(-1), run.z.sum(-1), atol=1e-7)
    np.testing.assert_allclose(np.exp(scansnap.log_steps(path.G, 40, 3, *rates)), times, rtol=1e-5)


def test_the_path_starts_at_zero_and_goes_where_steps_cannot_be_counted():
    path = scansnap.symmetric_path(ALIKE, [0.0, 20.0])
    assert path.G[0] == 0.0 and not path.z[0].any()
    s = scansnap.attention(ALIKE, path.z)[1]
    assert (s.max(1) > 1 - 1e-6).all()
    digits = scansnap.log_steps(path.G[1], 40, 3)
    assert np.isfinite(digits) and digits > 1e10
    assert scansnap.log_steps(0.0, 40, 3) == -np.inf


def test_the_clock_inverts_the_accumulated_speed_over_all_sizes():
    t = np.array([1e-6, 1e-2, 1.0, 1e3, 1e8])
    G = scansnap.accumulated_speed(t, 50, 4, 2.0, 0.3)
    np.testing.assert_allclose(np.exp(scansnap.log_steps(G, 50, 4, 2.0, 0.3)), t, rtol=1e-7)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: scansnap.growth_curve([0.1, 0.2], 1.0), DataError, "none larger than the first"),
        (lambda: scansnap.growth_curve([0.2, 0.0], 1.0), DataError, "must be positive"),
        (lambda: scansnap.growth_curve([0.2], -1.0), DataError, "must not be negative, got -1"),
        (lambda: scansnap.growth_curve([0.2], np.nan), DataError, "must not be negative"),
        (lambda: scansnap.growth_constant(ALIKE, np.zeros((1, 3))), ShapeError, "query tokens x tokens"),
        (lambda: scansnap.symmetric_path(ALIKE, []), ShapeError, "grown is empty"),
        (lambda: scansnap.symmetric_path(ALIKE, [1.0, 0.5]), DataError, "grown must increase"),
        (lambda: scansnap.symmetric_path(ALIKE, [-1.0]), DataError, "not be negative"),
        (lambda: scansnap.symmetric_path(scansnap.syn_small(), [1.0]), DataError, "not symmetric"),
        (
            lambda: scansnap.symmetric_path(scansnap.symmetric(2, [], [0.5]), [1.0]),
            DataError,
            "not symmetric",
        ),
        (lambda: scansnap.log_steps(-1.0, 40, 3), DataError, "G must not be negative, got -1"),
        (lambda: scansnap.log_steps(1.0, 40, 3, rate=0.0), DataError, "rate"),
    ],
)
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
