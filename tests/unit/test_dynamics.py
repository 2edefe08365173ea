from __future__ import annotations

import numpy as np
import oracle
import pytest

from svmlib import attention, compare, data, dynamics
from svmlib.errors import DataError, ShapeError, SolverError

RULE = dynamics.normalized(0.1)


@pytest.mark.parametrize(
    ("problem", "start", "digits"),
    [
        (data.planar(1), 0.0, 400),
        (data.planar(2), 0.7, 400),
        (data.planted_problem(3, 4, 5)[0], 0.0, 250),
    ],
    ids=["planar-1", "planar-2-random-start", "planted"],
)
def test_direct_matches_extended_precision_after_2000_steps(problem, start, digits):
    W = start * np.random.default_rng(0).uniform(-1, 1, (problem.d, problem.d))
    want = oracle.direct(problem, W, 0.1, 2000, digits)
    run = dynamics.train(problem, attention.Direct(W), RULE, 2000, record=[2000])
    assert np.linalg.norm(run.W[0] - want) <= 1e-12 * np.linalg.norm(want)


@pytest.mark.parametrize("loss", ["exponential", "linear"])
def test_other_losses_match_extended_precision(loss):
    p = data.random_problem(2, 3, 3, seed=4)
    want = oracle.direct(p, np.zeros((3, 3)), 0.1, 600, 250, loss)
    run = dynamics.train(p, attention.Direct.zeros(p), RULE, 600, record=[600], loss=loss)
    assert np.linalg.norm(run.W[0] - want) <= 1e-12 * np.linalg.norm(want)


def test_factors_match_extended_precision_for_as_long_as_their_dynamics_allows():
    # (K, Q) amplifies round-off by itself: jitter of 1e-15 a step shows until when agreement can be asked for
    p, record = data.planar(1), [50, 100, 150, 200, 300, 600]
    K = 0.1 * np.random.default_rng(0).normal(size=(2, 2))
    want = oracle.factored(p, K, np.zeros((2, 2)), 0.1, record, 1500)
    shaken = oracle.factored(p, K, np.zeros((2, 2)), 0.1, record, 1500, jitter=1e-15)
    got = dynamics.train(p, attention.Factored(K, np.zeros((2, 2))), RULE, 600, record=record).W
    size = np.linalg.norm(want, axis=(1, 2))
    stable = np.linalg.norm(shaken - want, axis=(1, 2)) < 1e-13 * size
    assert stable[:3].all()
    assert not stable[-1]
    assert (np.linalg.norm(got - want, axis=(1, 2))[stable] <= 1e-12 * size[stable]).all()
    nuclear = np.array([[0.48670625, 0.46925755], [7.00553572, 6.75438326]])
    np.testing.assert_allclose(
        compare.correlation(got, nuclear), compare.correlation(want, nuclear), atol=1e-4
    )


def test_margins_beyond_underflow_do_not_stop_training():
    p, W = data.planted_problem(2, 3, 4)
    run = dynamics.train(p, attention.Direct(2000.0 * W), RULE, 50, record=[0, 50])
    margins = compare.margins(run.W, p.X, p.z, p.optimal)
    assert margins[np.isfinite(margins)].min() > 1990
    assert run.gap[-1] == 0.0  # the loss itself is below what float64 can hold
    # 50 steps of 0.1, nearly straight: they turn between the two sequences' smallest margins
    assert 4.9 < float(np.linalg.norm(run.W[1] - run.W[0])) <= 5.0 + 1e-9


def test_a_tie_for_the_top_score_does_not_hide_the_small_gradient():
    # Tokens 0 and 1 share their score and the top probability; only token 2, 500 below them, scores better.
    # Its weight e^-500 is all the gradient there is, and the square of it underflows.
    p = data.Problem([[[1.0, 0.0], [1.0, 0.01], [0.0, 0.0]]], [[1.0, 0.0]], [1], [-1.0, 0.0])
    W = attention.Direct(np.array([[500.0, 0.0], [0.0, 0.0]]))
    run = dynamics.train(p, W, RULE, 10, record=[10])
    assert float(np.linalg.norm(run.W[-1] - W.W)) == pytest.approx(1.0, rel=1e-9)
    assert run.W[-1][0, 0] < 500.0


def test_every_normalised_step_has_the_length_asked_for():
    p = data.random_problem(6, 8, 10, batch=5)
    run = dynamics.train(p, attention.Direct.random(p), RULE, 300, record=range(301))
    np.testing.assert_allclose(np.linalg.norm(np.diff(run.W, axis=1), axis=(-2, -1)), 0.1, rtol=1e-9)


def test_plain_descent_follows_the_gradient():
    p = data.random_problem(3, 4, 5, batch=2)
    W = attention.Direct.random(p)
    by_hand = np.array(W.W)
    for _ in range(5):
        by_hand -= 0.7 * attention.gradient(p, attention.Direct(by_hand)).W
    run = dynamics.train(p, W, dynamics.gradient_descent(0.7), 5, record=[5])
    np.testing.assert_allclose(run.W[:, 0], by_hand, atol=1e-14)
    factors = attention.Factored(*np.random.default_rng(0).normal(size=(2, 2, 5, 3)))
    K, Q = np.array(factors.K), np.array(factors.Q)
    for _ in range(5):
        g = attention.gradient(p, attention.Factored(K, Q))
        K, Q = K - 0.7 * g.K, Q - 0.7 * g.Q
    run = dynamics.train(p, factors, dynamics.gradient_descent(0.7), 5, record=[5])
    np.testing.assert_allclose(run.weights.K, K, atol=1e-13)
    np.testing.assert_allclose(run.weights.Q, Q, atol=1e-13)


def test_a_batch_trains_like_its_members(monkeypatch):
    p = data.random_problem(3, 4, 5, batch=7)
    for weights in (attention.Direct.random(p), attention.Factored.random(p, m=2)):
        whole = dynamics.train(p, weights, RULE, 120, record=[7, 120])
        monkeypatch.setattr(dynamics.training, "CPU_WORKSPACE", 1)
        split = dynamics.train(p, weights, RULE, 120, record=[7, 120])
        monkeypatch.undo()
        np.testing.assert_allclose(split.W, whole.W, rtol=1e-11, atol=1e-12)
        one = dynamics.train(p[3], weights._make(w[3] for w in weights), RULE, 120, record=[7, 120])
        np.testing.assert_allclose(one.W, whole.W[3], rtol=1e-11, atol=1e-12)
        assert one.selected.tolist() == whole.selected[3].tolist()


def test_a_run_can_be_continued():
    p = data.random_problem(3, 4, 5, batch=2)
    for weights in (attention.Direct.random(p), attention.Factored.random(p)):
        whole = dynamics.train(p, weights, RULE, 150, record=[150])
        first = dynamics.train(p, weights, RULE, 60)
        second = dynamics.train(p, first.weights, RULE, 90, record=[90])
        # (K, Q) amplifies the rounding of Q at the break
        np.testing.assert_allclose(second.W, whole.W, rtol=1e-11 if len(weights) == 1 else 1e-9)


def test_recorded_numbers_are_those_of_the_layer():
    p = data.random_problem(3, 4, 5, batch=2)
    run = dynamics.train(p, attention.Direct.random(p), RULE, 100, record=[0, 10, 100])
    np.testing.assert_allclose(run.loss, attention.loss(p, run.W), rtol=1e-12)
    s = attention.probabilities(p, run.W)
    np.testing.assert_allclose(run.top_probability, s.max(-1), rtol=1e-12)
    np.testing.assert_array_equal(run.top_token, s.argmax(-1))
    np.testing.assert_allclose(run.gap, run.loss - dynamics.infimum(p)[:, None], atol=1e-14)
    np.testing.assert_allclose(dynamics.gap(p, run.W), run.gap, rtol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_the_gap_to_the_infimum_is_exact_where_the_difference_of_losses_is_noise(loss):
    p, W = data.planted_problem(2, 3, 4)
    run = dynamics.train(p, attention.Direct(60.0 * W), RULE, 0, loss=loss)
    # both other tokens are 60 below and score 1 less: the score lost is 2 e^-60 up to a factor 1 + O(e^-60)
    slope = {"logistic": 1 / (1 + np.e), "exponential": np.exp(-1.0), "linear": 1.0}[loss]
    assert run.gap[0] == pytest.approx(2 * np.exp(-60.0) * slope, rel=1e-10)


def test_nonlinear_head_trains_and_reports_no_gap():
    p = data.random_problem(2, 3, 4)
    q = data.Problem(p.X, p.z, p.y, head=attention.linear(p.v))
    a, b = (dynamics.train(t, attention.Direct.zeros(t), RULE, 50, record=[50]) for t in (p, q))
    np.testing.assert_allclose(b.W, a.W, rtol=1e-11)
    assert np.isnan(b.gap).all()


def test_a_sequence_of_one_token_has_nothing_to_learn():
    p = data.Problem(np.ones((2, 1, 3)), np.ones((2, 3)), [1, -1], np.ones(3))
    for weights in (attention.Direct.zeros(p), attention.Factored.random(p)):
        run = dynamics.train(p, weights, RULE, 5)
        assert not run.W.any()
        np.testing.assert_array_equal(run.top_probability, 1.0)


def test_blow_up_is_an_error_that_names_step_and_instance():
    p = data.random_problem(2, 3, 3, batch=2)
    X = np.array(p.X)
    X[1] *= 1e55
    q = data.Problem(X, p.z, p.y, p.v)
    with pytest.raises(SolverError, match=r"by step \d+: 1 of 2 instances .* instance 1 of the batch"):
        dynamics.train(q, attention.Factored.random(q), dynamics.gradient_descent(1e200), 300, loss="linear")


def test_record_steps():
    assert dynamics.record_steps([3, 1], 5).tolist() == [1, 3, 5]
    assert dynamics.record_steps(None, 2000)[[0, 1, -1]].tolist() == [0, 1, 2000]
    assert dynamics.record_steps(3, 0).tolist() == [0]
    bad = (
        ([9], r"record must lie in 0..5, got steps from 9 to 9"),
        ([0.5], "whole numbers"),
        (0, "positive integer"),
        ("abc", "real numbers"),
        ("12", "real numbers"),
        (1.5, "record must have 1 axes"),
    )
    for record, message in bad:
        with pytest.raises((DataError, ShapeError), match=message):
            dynamics.record_steps(record, 5)
    for steps in (-1, 2.0, True, "5"):
        with pytest.raises(ShapeError, match="steps must be a whole number >= 0, got"):
            dynamics.record_steps(None, steps)
    assert dynamics.record_steps(10**9, 10).tolist() == dynamics.record_steps(10, 10).tolist()


@pytest.mark.parametrize("rule", [dynamics.gradient_descent, dynamics.normalized])
@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan, np.inf, "fast"])
def test_bad_step_sizes(rule, rate):
    with pytest.raises(DataError, match="step size must be a positive number"):
        rule(rate)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_smoothness_bounds_the_change_of_the_gradient(loss):
    p, rng = data.random_problem(3, 4, 5, batch=4), np.random.default_rng(0)
    L = attention.smoothness(p, loss)
    worst = np.zeros(4)
    for _ in range(200):
        W, D = rng.normal(size=(2, 4, 5, 5)) * rng.choice([0.1, 1.0, 5.0])
        a, b = (attention.gradient(p, attention.Direct(V), loss).W for V in (W, W + 1e-3 * D))
        worst = np.maximum(worst, np.linalg.norm(b - a, axis=(1, 2)) / np.linalg.norm(1e-3 * D, axis=(1, 2)))
    assert (worst <= L).all()
    assert (worst > L / 200).all()  # a bound, but not an empty one


@pytest.mark.parametrize(
    ("loss", "scores", "want"),
    [
        ("logistic", (1000.0, -1000.0), np.log(2.0)),
        ("logistic", (0.0, -2000.0), 1000.0 - np.log(2.0)),
        ("exponential", (1000.0, -1000.0), 1.0),
        ("linear", (1000.0, -1000.0), 1000.0),
    ],
)
def test_the_gap_of_large_scores_is_not_lost(loss, scores, want):
    p = data.Problem([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], scores)
    assert float(dynamics.gap(p, np.zeros((2, 2)), loss)) == pytest.approx(want, rel=1e-12)
    run = dynamics.train(p, attention.Direct.zeros(p), RULE, 0, loss=loss)
    assert run.gap[0] == pytest.approx(want, rel=1e-12)


def test_rules_problems_and_empty_batches_are_checked():
    p = data.random_problem(2, 3, 4, batch=2)
    start = attention.Direct.zeros(p)
    for rule in (None, "normalized", 0.1, dynamics.normalized):
        with pytest.raises(DataError, match=r"rule must come from svmlib\.dynamics\.normalized"):
            dynamics.train(p, start, rule, 5)
    with pytest.raises(DataError, match=r"problem must be a svmlib\.data\.Problem, got ndarray"):
        dynamics.train(p.X, start, RULE, 5)
    with pytest.raises(ShapeError, match="batch of this problem is empty"):
        dynamics.train(p[:0], attention.Direct.zeros(p[:0]), RULE, 5)


def test_a_scalar_query_trains_a_vector():
    # P2's single input: normalised steps on p, written out here with the textbook gradient
    keys = np.array([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]])
    scores = np.array([[1.0, 0.9, 0.0]])
    p = data.prompt_problem(keys, scores)
    starts = np.array([[0.0, 1.0], [0.0, -1.5]])
    weights = attention.Direct(starts[:, :, None])
    run = dynamics.train(p.expand(2), weights, dynamics.normalized(0.1), 40)
    for start, got in zip(starts, run.W[:, -1, :, 0], strict=True):
        q = start.copy()
        for _ in range(40):
            s = np.exp(keys[0] @ q)
            s /= s.sum()
            g = keys[0].T @ (s * (scores[0] - s @ scores[0]))
            q += 0.1 * g / np.linalg.norm(g)
        np.testing.assert_allclose(got, q, rtol=1e-11)
    factored = attention.Factored.random(p.expand(2), m=3)
    assert [b.shape for b in factored] == [(2, 2, 3), (2, 1, 3)]
    trained = dynamics.train(p.expand(2), factored, dynamics.normalized(0.1), 10)
    assert trained.W.shape[-2:] == (2, 1)


@pytest.mark.parametrize(("n", "d"), [(20, 17), (3, 5)])
def test_both_ways_to_multiply_matrices_train_alike(n, d, monkeypatch):
    p = data.random_problem(n, 4, d, batch=3)
    start = attention.Factored.random(p)
    runs = []
    for wide, columns in ((1, 1), (10**9, 1)):
        monkeypatch.setattr(dynamics.training, "WIDE", wide)
        monkeypatch.setattr(dynamics.training, "COLUMNS", columns)
        runs.append(dynamics.train(p, start, dynamics.normalized(0.1), 20))
    np.testing.assert_allclose(runs[0].W, runs[1].W, rtol=1e-9, atol=1e-12)
