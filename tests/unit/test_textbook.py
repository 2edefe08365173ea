from __future__ import annotations

import numpy as np
import oracle
import pytest

import svmlib as sv
from svmlib.checks import textbook
from svmlib.errors import DataError

P = sv.data.random_problem(n=3, T=4, d=5, seed=2)


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def test_gradient_agrees_with_the_pivoted_one_before_saturation():
    W = np.random.default_rng(0).normal(size=(5, 5))
    want = sv.attention.gradient(P, sv.attention.Direct(W)).W
    assert relative(textbook.gradient(P, W), want) < 1e-13
    assert relative(textbook.gradient(P, W, 30), want) < 1e-13


def test_gradient_of_a_batch_is_that_of_its_elements():
    batch = sv.data.random_problem(n=3, T=4, d=5, batch=3, seed=1)
    W = np.random.default_rng(1).normal(size=(3, 5, 5))
    each = [textbook.gradient(batch[b], W[b]) for b in range(3)]
    assert np.allclose(textbook.gradient(batch, W), each, rtol=1e-14, atol=1e-16)


def test_float32_computes_in_float32():
    W = np.random.default_rng(0).normal(size=(5, 5))
    error = relative(textbook.gradient(P, W, "float32"), textbook.gradient(P, W))
    assert 1e-9 < error < 1e-5


def test_digits_beyond_float64_are_used():
    W = 60.0 * sv.svm.attention_svm(P).W  # margins of 60: float64 has lost the top coefficient
    want = sv.attention.gradient(P, sv.attention.Direct(W)).W
    assert relative(textbook.gradient(P, W, 60), want) < 1e-12
    assert relative(textbook.gradient(P, W), want) > 0.1


def test_run_with_digits_matches_the_oracle():
    run = textbook.descend(P, sv.attention.Direct.zeros(P), 40, precision=40, record=[40])
    assert relative(run.W[-1], oracle.direct(P, np.zeros((5, 5)), 0.1, 40, 40)) < 1e-14


@pytest.mark.parametrize(("eps", "decay"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_one_step_is_the_documented_rule(eps, decay):
    rng = np.random.default_rng(3)
    K, Q = rng.normal(size=(2, 5, 2))
    G = textbook.gradient(P, K @ Q.T)
    moved = []
    for block, pull in ((K, G @ Q), (Q, G.T @ K)):
        total = pull + 2 * decay * block
        moved.append(block - 0.1 * total / (np.linalg.norm(total) + eps))
    run = textbook.descend(P, sv.attention.Factored(K, Q), 1, eps=eps, decay=decay, record=[0, 1])
    assert np.allclose(run.W[0], K @ Q.T, rtol=1e-15, atol=1e-15)
    assert relative(run.W[1], moved[0] @ moved[1].T) < 1e-13


def test_a_zero_gradient_moves_nothing():
    still = sv.data.Problem(X=np.zeros((1, 2, 2)), z=[[1.0, 0.0]], y=[1], v=[1.0, 0.0])
    run = textbook.descend(still, sv.attention.Direct(np.eye(2)), 3, record=[3])
    assert (run.W[-1] == np.eye(2)).all()


def test_bad_arguments_are_named():
    with pytest.raises(DataError, match="precision must be"):
        textbook.gradient(P, np.zeros((5, 5)), "float16")
    with pytest.raises(DataError, match="precision must be"):
        textbook.gradient(P, np.zeros((5, 5)), 3)
    curved = sv.data.Problem(P.X, P.z, P.y, head=sv.attention.quadratic(P.v, 0.1))
    with pytest.raises(DataError, match="linear head"):
        textbook.gradient(curved, np.zeros((5, 5)))
