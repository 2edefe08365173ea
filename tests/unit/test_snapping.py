"""Snapping: closed forms, classes that are alike in both flows, very long times."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib import scansnap
from svmlib.errors import DataError, ShapeError, SolverError

SIZES = {"M": 1000, "C": 10, "attention_rate": 0.5}


def test_growth_is_the_suppression_divided_among_the_classes():
    t = np.array([0.0, 3.0, 700.0])
    lost = scansnap.suppression(t, C0=2.5, **SIZES)
    assert lost[0] == 0.0 and np.all(np.diff(lost) > 0)
    np.testing.assert_allclose(scansnap.log_growth(t, C0=2.5, **SIZES), lost / 10, rtol=1e-15)
    np.testing.assert_allclose(scansnap.suppression(t, C0=[[1.0], [2.5]], **SIZES)[1], lost, rtol=1e-15)


@pytest.mark.parametrize("t", [1e5, 1e250, 1e300])
def test_progress_and_speed_do_not_overflow(t):
    h = float(scansnap.progress(t, 1000))
    assert 1000 * h == pytest.approx(np.log(1000.0) + np.log(t), rel=0.01)
    assert 0 < float(scansnap.speed(t, 1000, 1)) == pytest.approx(1000 * h / t, rel=0.02)


def test_best_rate_is_the_maximum():
    rate = float(scansnap.best_rate(80.0, 50, 4))
    near = scansnap.accumulated_speed(80.0, 50, 4, rate * np.array([0.99, 1.0, 1.01]))
    assert near[1] > near[0] and near[1] > near[2]
    np.testing.assert_allclose(scansnap.best_rate([40.0, 160.0], 50, 4), [2 * rate, rate / 2])


@pytest.mark.parametrize("C", [2, 6])
@pytest.mark.parametrize("J", [1, 3])
def test_symmetric_growth_and_flow_are_the_general_flows(C, J):
    process = scansnap.symmetric(C, [0.4], [0.3] * J, vocabulary=60)
    start = float(scansnap.features(scansnap.attention(process, np.zeros((1, 60))))[0, 0] ** 2)
    t, same = np.array([1.0, 40.0, 3e4]), {"M": 60, "C": C, "distinct": J, "rate": 0.7, "attention_rate": 0.9}
    model, whole = scansnap.reduced_flow(process, t, 0.7, 0.9), scansnap.flow(process, t, 0.7, 0.9)
    short, joint = (
        scansnap.symmetric_growth(t, start, **same),
        scansnap.symmetric_flow(np.log(t), start, **same),
    )
    token = np.flatnonzero(process.distinct[1])[-1]
    for long, brief in ((model, short), (whole, joint)):
        np.testing.assert_allclose(brief.common, long.z[:, 0, 0], rtol=2e-6)
        np.testing.assert_allclose(brief.distinct, long.z[:, 0, token], rtol=2e-6)
        np.testing.assert_allclose(brief.overlap, scansnap.features(long.s)[:, 0, 0] ** 2, rtol=2e-6)


def test_symmetric_growth_starts_where_it_should():
    r = scansnap.symmetric_growth([0.0, 1e-9], 0.2, **SIZES)
    np.testing.assert_allclose(r.overlap, 0.2, rtol=1e-12)
    np.testing.assert_allclose(r.common, 0.0, atol=1e-12)


def test_the_joint_flow_goes_on_and_forgets_the_ratio_of_the_rates():
    log_t = np.array([1e3, 1e5, 1e6])
    slopes = []
    for C, M, rate in ((4, 400, 0.05), (4, 400, 5.0), (10, 400, 0.5), (4, 20, 0.5), (4, 10**5, 0.5)):
        r = scansnap.symmetric_flow(log_t, 0.3, M=M, C=C, attention_rate=rate)
        assert np.all(np.diff(r.common) < -0.05)
        law = 4 * (C - 1) + 2 * (C - 1) / (M - 1) * np.mean(1 / r.overlap[-2:])
        slopes.append(np.diff(1 / r.overlap)[-1] / np.log(10.0) / law)
    assert slopes == pytest.approx(
        [1.0] * 5, abs=0.2
    )  # 1/overlap: 4 (C - 1) log log t, then a power of log t
    assert slopes[0] == pytest.approx(slopes[1], abs=0.01)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: scansnap.symmetric_growth([1.0], 1.0, **SIZES), "between 0 and 1"),
        (lambda: scansnap.symmetric_growth([1.0], 0.5, M=9, C=1), "C must be"),
        (lambda: scansnap.symmetric_flow([0.0], 0.5, M=4, C=4), "M must exceed"),
        (lambda: scansnap.symmetric_flow([0.0, 0.0], 0.5, M=9, C=4), "must increase"),
        (lambda: scansnap.symmetric_flow([-40.0], 0.5, M=9, C=4), "from no less"),
        (lambda: scansnap.suppression(1.0, C0=0.0, **SIZES), "C0 must be positive"),
        (lambda: scansnap.suppression(1.0, M=9, C=4, rate=[1.0, 0.0]), "rate must be positive, got 0"),
        (
            lambda: scansnap.symmetric_growth([1.0], 0.5, M=9, C=4, attention_rate=-1),
            "attention_rate must not",
        ),
        (lambda: scansnap.transition(9, 4, -1.0), "rate must be positive, got -1"),
        (lambda: scansnap.best_rate(0.0, 9, 4), "t must be positive"),
    ],
)
def test_refusals(wrong, message):
    with pytest.raises((DataError, ShapeError), match=message):
        wrong()


def test_a_solver_that_gives_up_is_reported(monkeypatch):
    class Failed:
        success, message = False, "no"

    monkeypatch.setattr("svmlib.scansnap.snapping.solve_ivp", lambda *_a, **_k: Failed())
    with pytest.raises(SolverError, match="could not be followed"):
        scansnap.symmetric_flow([0.0], 0.5, M=9, C=4)
