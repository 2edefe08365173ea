"""The decoder over fixed attention: closed forms against direct computation, and what is refused."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from svmlib import errors, scansnap


def test_decompose_returns_the_coefficients():
    process = scansnap.symmetric(3, [0.5], [0.3, 0.2])
    z = np.random.default_rng(0).normal(size=(2, 1, process.M))
    f = scansnap.features(scansnap.attention(process, z))
    coefficients = np.random.default_rng(1).normal(size=(2, 3, 3))
    assert np.allclose(scansnap.decompose(process, coefficients @ f, z), coefficients, atol=1e-12)


def test_decompose_leaves_out_what_is_outside():
    process = scansnap.symmetric(2, [0.5], [0.5])
    outside = np.zeros((2, process.M))
    outside[:, -1] = 1.0
    assert np.allclose(scansnap.decompose(process, outside, np.zeros((1, process.M))), 0.0)


def test_decompose_refuses_equal_features():
    process = scansnap.TokenProcess([[1, 1, 0, 0], [1, 1, 0, 0]], [2, 2], [2, 3])
    with pytest.raises(errors.DataError, match="dependent"):
        scansnap.decompose(process, np.zeros((2, 4)), np.zeros((1, 4)))


@pytest.mark.parametrize(("C", "M", "kappa"), [(2, 3, 0.5), (4, 200, 0.3), (1, 10, 0.0)])
def test_symmetric_decoder_solves_its_equations(C, M, kappa):
    times = np.array([0.0, 0.5, 20.0, 3000.0])

    def slope(_, y):  # y: accumulated wrong and other probabilities
        own = (C - 1) * y[0] + (M - C) * y[1]
        w = np.array([own, -y[0], -y[1]]) * (1 - kappa)
        w += kappa * y[1] * np.array([M - C, M - C, -C])
        p = np.exp(w - w.max()) / (np.exp(w - w.max()) @ [1, C - 1, M - C])
        return 0.7 / C * p[1:]

    solved = solve_ivp(slope, (0, times[-1]), [0.0, 0.0], "DOP853", times, rtol=1e-11, atol=1e-13)
    found = scansnap.symmetric_decoder(times, kappa, M=M, C=C, rate=0.7)
    assert np.allclose(found.clock, solved.y[1], rtol=1e-8)
    if C > 1:
        assert np.allclose(found.wrong, solved.y[0], rtol=1e-8)
    p = np.exp(found.log_probabilities) @ [1, C - 1, M - C]
    assert np.allclose(p, 1.0, atol=1e-12)


def test_symmetric_decoder_keeps_the_order_of_times():
    times = np.array([1e5, 0.0, 30.0])
    found = scansnap.symmetric_decoder(times, 0.2, M=50, C=3)
    again = scansnap.symmetric_decoder(np.sort(times), 0.2, M=50, C=3)
    assert np.allclose(np.sort(found.clock), again.clock, rtol=1e-12)
    assert found.clock[1] == 0.0 == found.force[1]


@pytest.mark.parametrize(
    ("times", "overlap", "M", "C", "message"),
    [
        ([1.0], 1.0, 10, 2, "overlap"),
        ([1.0], -0.1, 10, 2, "overlap"),
        ([1.0], 0.5, 4, 4, "exceed"),
        ([-1.0], 0.5, 10, 2, "negative"),
        ([1e300], 0.5, 10, 2, "larger"),
        ([], 0.5, 10, 2, "empty"),
    ],
)
def test_symmetric_decoder_refuses(times, overlap, M, C, message):
    with pytest.raises(errors.DataError, match=message):
        scansnap.symmetric_decoder(np.array(times, dtype=float), overlap, M=M, C=C)


def test_peak_and_residual_time_refuse():
    with pytest.raises(errors.SvmlibError):
        scansnap.peak(1, 2)
    with pytest.raises(errors.DataError, match="epsilon"):
        scansnap.residual_time([0.1, 0.0], 10, 2)


def test_residual_time_is_zero_for_long_residuals():
    assert scansnap.residual_time(1.0, 10, 2) == 0.0
