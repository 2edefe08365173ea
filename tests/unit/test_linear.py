"""Linear classification: descent, regularisation path, largest margins, and what they refuse."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svmlib import dynamics, linear, svm
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError


@pytest.mark.parametrize("name", sorted(linear.LOSSES))
def test_losses_agree_with_extended_precision(name):
    exact = {
        "logistic": lambda m: mpmath.log(1 + mpmath.exp(-m)),
        "exponential": lambda m: mpmath.exp(-m),
        "polynomial": lambda m: 1 / (1 + m) if m >= 0 else 1 - m + m**2,
    }[name]
    loss = linear.LOSSES[name]
    with mpmath.workdps(900):  # at m = 2,000 the loss is e^-2000
        for m in (-40.0, -2.0, -0.3, 0.2, 1.0, 29.9, 30.1, 700.0, 2000.0):
            value = mpmath.log(exact(mpmath.mpf(m)))
            slope = mpmath.log(-mpmath.diff(exact, mpmath.mpf(m)))
            curvature = mpmath.log(mpmath.diff(exact, mpmath.mpf(m), 2))
            got = [float(f(np.array([m]))[0]) for f in (loss.log_value, loss.log_slope, loss.log_curvature)]
            np.testing.assert_allclose(
                got, [float(value), float(slope), float(curvature)], rtol=2e-14, atol=2e-14
            )


@pytest.mark.parametrize("name", sorted(linear.LOSSES))
def test_one_plain_step_is_the_gradient_by_finite_differences(name):
    X, y = linear.separable_data(7, 4, seed=1)
    start = np.random.default_rng(0).normal(size=4)
    run = linear.descend(X, y, linear.gradient_descent(0.5), 1, start=start, record=[0, 1], loss=name)
    slopes = []
    for e in np.eye(4) * 1e-6:
        up, down = (
            linear.descend(X, y, linear.gradient_descent(1.0), 0, start=start + s * e, loss=name)
            for s in (1, -1)
        )
        slopes.append((up.loss[0] - down.loss[0]) / 2e-6)
    np.testing.assert_allclose((run.w[0] - run.w[1]) / 0.5, slopes, rtol=1e-7, atol=1e-9)


def test_steepest_steps_are_those_of_their_norm():
    X, y = linear.separable_data(9, 5, seed=2)
    g = linear.descend(X, y, linear.gradient_descent(1.0), 1).w[-1]  # minus the gradient at 0
    first = {name: linear.descend(X, y, linear.steepest(name, 0.3), 1).w[-1] for name in ("l1", "l2", "linf")}
    np.testing.assert_allclose(first["l2"], 0.3 * g / np.linalg.norm(g), rtol=1e-14)
    np.testing.assert_array_equal(first["linf"], 0.3 * np.sign(g))
    at = np.abs(g).argmax()
    np.testing.assert_array_equal(first["l1"], 0.3 * np.sign(g[at]) * np.eye(5)[at])


def test_decay_shortens_the_steps():
    run = linear.descend([[1.0]], [1], linear.steepest("l2", 1.0, decay=0.5), 9, record=range(10))
    np.testing.assert_allclose(np.diff(run.w[:, 0]), 1 / np.sqrt(np.arange(1, 10)), rtol=1e-14)


def test_records_do_not_change_the_run():
    X, y = linear.separable_data(8, 3)
    rule = linear.normalized(0.1)
    full = linear.descend(X, y, rule, 60, record=range(61))
    few = linear.descend(X, y, rule, 60, record=[0, 7, 60])
    np.testing.assert_array_equal(few.steps, [0, 7, 60])
    np.testing.assert_array_equal(few.w, full.w[[0, 7, 60]])


def test_normalised_steps_continue_where_the_loss_underflows():
    X, y = linear.separable_data(10, 3, seed=5)
    best = svm.hard_margin(X, y)
    run = linear.descend(X, y, linear.normalized(1.0), 8000, record=[2000, 4000, 8000])
    assert run.loss[-1] == 0.0 and run.margin[-1] > 2000
    np.testing.assert_allclose(run.log_loss, -run.margin, atol=np.log(10))
    np.testing.assert_allclose(run.angle(best.w)[1:] / run.angle(best.w)[:-1], 0.5, rtol=0.01)


@settings(max_examples=15)
@given(
    n=st.integers(1, 12),
    d=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(sorted(linear.LOSSES)),
)
def test_a_batch_of_one_is_no_batch_and_rotations_rotate(n, d, seed, loss):
    X, y = linear.separable_data(n, d, seed=seed)
    rule = linear.normalized(0.2)
    plain = linear.descend(X, y, rule, 50, loss=loss)
    batch = linear.descend(X[None], y[None], rule, 50, loss=loss)
    np.testing.assert_allclose(batch.w[0], plain.w, atol=1e-12)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    turned = linear.descend(X @ turn.T, y, rule, 50, loss=loss)
    np.testing.assert_allclose(turned.w, plain.w @ turn.T, atol=1e-10)
    np.testing.assert_allclose(linear.descend(-X, -y, rule, 50, loss=loss).w, plain.w, atol=0)


@settings(max_examples=15)
@given(
    n=st.integers(1, 12),
    d=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(sorted(linear.LOSSES)),
)
def test_no_vector_of_the_ball_beats_the_path(n, d, seed, loss):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    found = linear.path(X, y, [0.5, 3.0, 20.0], loss=loss)
    assert (found.norm <= found.radii * (1 + 1e-12)).all()
    assert (found.interior == (found.norm < found.radii * (1 - 1e-9))).all()
    for j, R in enumerate(found.radii):
        other = found.w[j] + R * np.geomspace(1e-4, 2, 50)[:, None] * rng.normal(size=(50, d))
        other *= np.minimum(1.0, R / np.linalg.norm(other, axis=1))[:, None]
        tried = linear.descend(
            np.tile(X, (50, 1, 1)), y, linear.gradient_descent(1.0), 0, start=other, loss=loss
        )
        assert (tried.log_loss[:, 0] >= found.log_loss[j] - 1e-12).all()


def test_path_at_extreme_radii():
    X, y = linear.separable_data(12, 3, batch=3)
    found = linear.path(X, y, [1e-3, 1e6])
    assert found.stationarity.max() < 1e-8
    for b in range(3):
        best = svm.hard_margin(X[b], y[b])
        mean = linear.signed_points(X[b], y[b]).mean(axis=0)  # minus the gradient at 0, up to a factor
        for radius, direction, tolerance in ((0, mean, 1e-2), (1, best.w, 1e-4)):
            w = found.w[b, radius]
            assert w @ direction >= np.cos(tolerance) * np.linalg.norm(w) * np.linalg.norm(direction)


def test_path_of_a_known_minimiser():
    # signed points 1 (twice) and -1: 2 sigma(-w) = sigma(w), so w = log 2
    found = linear.path([[1.0], [1.0], [-1.0]], [1, 1, 1], [0.1, 10.0])
    np.testing.assert_allclose(found.w[:, 0], [0.1, np.log(2)], rtol=1e-12)
    np.testing.assert_array_equal(found.interior, [0.0, 1.0])


@pytest.mark.parametrize(("norm", "order", "dual"), [("l1", 1, np.inf), ("linf", np.inf, 1)])
def test_largest_margins_are_certified_by_duality(norm, order, dual):
    X, y = linear.separable_data(15, 6, seed=4)
    A = linear.signed_points(X, y)
    found = linear.max_margin(X, y, norm)
    assert (A @ found.w).min() >= 1 - 1e-9
    assert found.value == pytest.approx(np.linalg.norm(found.w, order), rel=1e-12)
    assert found.multipliers.min() >= 0
    # weak duality proves that no other vector is smaller
    assert np.linalg.norm(found.multipliers @ A, dual) <= 1 + 1e-9
    assert found.multipliers.sum() == pytest.approx(found.value, rel=1e-9)
    assert found.margin == 1 / found.value


@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_largest_margins_at_any_scale(norm):
    X, y = linear.separable_data(15, 6, seed=4)
    want = linear.max_margin(X, y, norm)
    for size in (1e-200, 1e-9, 1e9, 1e15, 1e200):
        found = linear.max_margin(X * size, y, norm)
        assert found.value * size == pytest.approx(want.value, rel=1e-7)
        assert found.multipliers.sum() == pytest.approx(found.value, rel=1e-7)
        assert found.gap <= 1e-8
        with pytest.raises(InfeasibleError, match="separates the 2 points in 1 dimensions"):
            linear.max_margin([[size], [size]], [1, -1], norm)
    np.testing.assert_allclose(linear.max_margin(np.eye(2) * 1e-9, [1, 1], norm).w, 1e9, rtol=1e-9)
    assert repr(want).startswith(f'MaxMargin("{norm}", n=15, d=6, margin ')


@pytest.mark.parametrize(
    "rule", [linear.normalized(0.1), linear.steepest("l1", 0.1), linear.steepest("linf", 0.1)]
)
def test_steps_keep_their_length_at_any_scale(rule):
    order = {"l1": 1, "l2": 2, "linf": np.inf}[rule.norm]
    for size in (1e-300, 1e-165, 1.0, 1e155, 1e300):
        run = linear.descend(np.eye(2) * size, [1, 1], rule, 1, record=[1], loss="exponential")
        assert np.linalg.norm(run.w[0], order) == pytest.approx(0.1, rel=1e-12)
        assert (run.w >= 0).all()


def test_path_names_what_leaves_the_range():
    X, y = linear.separable_data(5, 2)
    for points, radii in (
        (X, [1e300]),
        (X, [1e-300]),
        (X * 1e200, [1.0]),
        (X * 1e-300, [1.0]),
        (X * 1e150, [1.0]),
    ):
        with pytest.raises(
            DataError, match="must lie between 1e-100 and 1e100: rescale X, or leave out radii"
        ):
            linear.path(points, y, radii)
    scaled, plain = linear.path(X * 1e90, y, np.array([1.0, 5.0]) * 1e-90), linear.path(X, y, [1.0, 5.0])
    np.testing.assert_allclose(scaled.w * 1e90, plain.w, rtol=1e-7)
    with np.errstate(all="raise"):  # a caller's setting
        linear.path(X, y, [1.0, 1e5])
        linear.descend(X, y, linear.normalized(50.0), 50)


def test_numbers_of_other_types_are_numbers():
    for rate in (np.float32(0.5), np.int64(1), np.array(0.5)):
        assert linear.normalized(rate).rate == float(rate)
    X, _ = linear.separable_data(np.int64(5), 2, seed=np.int64(3))
    np.testing.assert_array_equal(X, linear.separable_data(5, 2, seed=3)[0])


def test_angle_and_correlation():
    run = linear.descend([[1.0, 1.0]], [1], linear.normalized(1.0), 2, record=[0, 2])
    assert np.isnan(run.angle([1.0, 0.0])[0]) and np.isnan(run.correlation([1.0, 0.0])[0])
    assert run.angle([1.0, 0.0])[1] == pytest.approx(np.pi / 4, rel=1e-14)
    assert run.correlation([1.0, 0.0])[1] == pytest.approx(np.sqrt(0.5), rel=1e-14)
    with pytest.raises(ShapeError):
        run.angle([1.0, 0.0, 0.0])


def test_separable_data():
    X, y = linear.separable_data(20, 4, batch=3, seed=1, gap=0.5)
    assert X.shape == (3, 20, 4) and set(np.unique(y)) == {-1.0, 1.0}
    np.testing.assert_array_equal(linear.separable_data(20, 4, seed=1, gap=0.5)[0], X[0])
    assert all(svm.hard_margin(a, b).margin >= 0.5 for a, b in zip(X, y, strict=True))


def test_records_are_read_only():
    run = linear.descend([[1.0]], [1], linear.normalized(1.0), 1)
    with pytest.raises(ValueError, match="read-only"):
        run.w[0] = 1.0


def test_bad_arguments_are_named():
    X, y = linear.separable_data(5, 2)
    with pytest.raises(DataError, match=r"labels \+1 and -1, but 1 of 5 are not, such as 0"):
        linear.signed_points(X, [1, 1, 0, 1, 1])
    with pytest.raises(ShapeError, match=r"y must end in axes of sizes \(5,\), got shape \(4,\)"):
        linear.signed_points(X, y[:4])
    with pytest.raises(ShapeError, match="leading axes of X and y do not fit"):
        linear.signed_points(np.zeros((2, 5, 2)), np.ones((3, 5)))
    with pytest.raises(ShapeError, match="at least one point"):
        linear.signed_points(np.zeros((0, 2)), np.ones(0))
    with pytest.raises(DataError, match="must come from gradient_descent"):
        linear.descend(X, y, 0.1, 3)  # type: ignore[arg-type]
    for rule in (dynamics.normalized(0.1), linear.normalized, "normalized", None):
        with pytest.raises(DataError, match=r"of svmlib.linear, called with a step size, as in"):
            linear.descend(X, y, rule, 3)
    with pytest.raises(DataError, match="norm must be one of"):
        linear.descend(X, y, linear.Step("l7", 0.1), 3)
    with pytest.raises(DataError, match="rate must be a positive number"):
        linear.descend(X, y, linear.Step("l2", -0.1), 3)
    for bad in (-1, True, "a", np.nan):
        with pytest.raises(DataError, match="rate must be a positive number, got"):
            linear.normalized(bad)
    with pytest.raises(DataError, match="decay must be"):
        linear.steepest("l1", 0.1, "a")
    with pytest.raises(DataError, match="norm must be one of"):
        linear.steepest(["l1"], 0.1)
    with pytest.raises(DataError, match="loss must be one of"):
        linear.path(X, y, [1.0], loss=["logistic"])
    with pytest.raises(DataError, match="gap must be"):
        linear.separable_data(5, 2, gap="a")
    for sizes in ((2.0, 2), (None, 2), (True, 2), ("a", 2), (5, 2, (2, 3)), (5, 2, None, -1)):
        with pytest.raises(ShapeError, match="must be a"):
            linear.separable_data(*sizes)
    with pytest.raises(DataError, match=r"norm must be one of \['l1', 'l2', 'linf'\]"):
        linear.steepest("l3", 1.0)
    with pytest.raises(DataError, match="decay must be"):
        linear.steepest("l2", 1.0, decay=-1.0)
    with pytest.raises(DataError, match="loss must be one of"):
        linear.descend(X, y, linear.normalized(1.0), 1, loss="hinge")
    with pytest.raises(ShapeError, match=r"start must have shape \(2,\)"):
        linear.descend(X, y, linear.normalized(1.0), 1, start=np.zeros((3, 2)))
    with pytest.raises(DataError, match="positive and increasing"):
        linear.path(X, y, [2.0, 1.0])
    with pytest.raises(DataError, match='for "l2" use svmlib'):
        linear.max_margin(X, y, "l2")
    with pytest.raises(ShapeError, match="takes one instance"):
        linear.max_margin(X[None], y[None], "l1")
    with pytest.raises(InfeasibleError, match="separates the 2 points in 1 dimensions"):
        linear.max_margin([[1.0], [1.0]], [1, -1], "l1")
    with pytest.raises(DataError, match="gap must be"):
        linear.separable_data(5, 2, gap=-1.0)
    with pytest.raises(ShapeError, match="d must be a positive integer"):
        linear.separable_data(5, 0)


def test_divergence_is_an_error():
    with pytest.raises(SolverError, match="left the finite numbers by step"):
        linear.descend([[1.0], [2.0]], [1, -1], linear.gradient_descent(50.0), 100, loss="exponential")
