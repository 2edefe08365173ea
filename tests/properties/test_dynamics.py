"""Symmetries that gradient descent on attention weights must have."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from svmlib import attention, data, dynamics

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(0, 10**6))
FEW = settings(deadline=None, derandomize=True, max_examples=25)
RULE = dynamics.normalized(0.1)


def _train(p, weights, steps=40):
    return dynamics.train(p, weights, RULE, steps, record=[steps]).W[-1]


def _instance(sizes):
    n, T, d, seed = sizes
    rng = np.random.default_rng(seed)
    return data.random_problem(n, T, d, seed=seed), rng, rng.normal(size=(d, d))


@FEW
@given(SIZES)
def test_a_rotation_of_the_space_rotates_the_weights(sizes):
    p, rng, W = _instance(sizes)
    R = np.linalg.qr(rng.normal(size=(p.d, p.d)))[0]
    q = data.Problem(p.X @ R.T, p.z @ R.T, p.y, R @ p.v)
    np.testing.assert_allclose(
        _train(q, attention.Direct(R @ W @ R.T)), R @ _train(p, attention.Direct(W)) @ R.T, atol=1e-10
    )


@FEW
@given(SIZES)
def test_the_order_of_sequences_and_tokens_does_not_matter(sizes):
    p, rng, W = _instance(sizes)
    i, t = rng.permutation(p.n), rng.permutation(p.T)
    q = data.Problem(p.X[i][:, t], p.z[i], p.y[i], p.v)
    for weights in (attention.Direct(W), attention.Factored(W, rng.normal(size=W.shape))):
        np.testing.assert_allclose(_train(q, weights), _train(p, weights), atol=1e-10)


@FEW
@given(SIZES)
def test_only_differences_of_keys_and_scores_matter_to_the_linear_loss(sizes):
    p, rng, W = _instance(sizes)
    shift = rng.normal(size=(p.n, 1, p.d))
    q = data.Problem(p.X + shift, p.z, p.y, p.v)
    a, b = (attention.gradient(t, attention.Direct(W), "linear").W for t in (p, q))
    np.testing.assert_allclose(b, a, atol=1e-13)


@FEW
@given(SIZES)
def test_weights_outside_the_data_never_move(sizes):
    p, _, W = _instance(sizes)
    moved = _train(p, attention.Direct(W)) - W
    delta = (p.X - p.X[:, :1]).reshape(-1, p.d)
    for span, change in ((p.z, moved.T), (delta, moved)):
        u, s, _ = np.linalg.svd(span.T, full_matrices=True)
        rank = int((s > 1e-10 * max(s[0], 1e-300)).sum())
        np.testing.assert_allclose(u[:, rank:].T @ change, 0.0, atol=1e-10)


@FEW
@given(SIZES)
def test_gradient_is_the_derivative_of_the_loss(sizes):
    p, rng, W = _instance(sizes)
    D, h = rng.normal(size=W.shape), 1e-5
    for loss in ("logistic", "exponential", "linear"):
        G = attention.gradient(p, attention.Direct(W), loss).W
        slope = (attention.loss(p, W + h * D, loss) - attention.loss(p, W - h * D, loss)) / (2 * h)
        np.testing.assert_allclose((G * D).sum(), slope, atol=1e-8)


@FEW
@given(SIZES)
def test_gradient_flow_nearly_conserves_the_difference_of_the_factors(sizes):
    p, rng, _ = _instance(sizes)
    weights = attention.Factored(*rng.normal(size=(2, p.d, 3)))

    def drift(rate, steps):
        end = dynamics.train(p, weights, dynamics.gradient_descent(rate), steps, record=[steps]).weights
        before = weights.K.T @ weights.K - weights.Q.T @ weights.Q
        return np.linalg.norm(end.K.T @ end.K - end.Q.T @ end.Q - before)

    coarse, fine = drift(0.1, 20), drift(0.01, 200)
    assert fine <= 0.2 * coarse + 1e-12
