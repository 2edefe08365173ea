"""Symmetries of the SVM in an entry-wise norm, and of the rules that descend in one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import svmlib as sv

SIZES = st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(2, 5), st.integers(0, 10**6))
EXPONENTS = st.sampled_from([Fraction(6, 5), Fraction(7, 4), Fraction(2), Fraction(3), Fraction(10)])
FEW = settings(deadline=None, derandomize=True, max_examples=25)


def _signed_permutation(rng, d):
    return np.eye(d)[rng.permutation(d)] * rng.choice([-1.0, 1.0], size=(d, 1))


@FEW
@given(SIZES, EXPONENTS)
def test_exchanging_and_reflecting_coordinates_does_the_same_to_the_solution(sizes, p):
    n, T, d, seed = sizes
    q, rng = sv.data.random_problem(n, T, d, seed=seed), np.random.default_rng(seed)
    assume(sv.svm.feasible(q))
    plain = sv.svm.lp_svm(q, p=float(p))
    assume(plain.value < 1e3)
    left, right = _signed_permutation(rng, d), _signed_permutation(rng, d)
    turned = sv.svm.lp_svm(sv.data.Problem(q.X @ left.T, q.z @ right.T, q.y), q.optimal, p=float(p))
    np.testing.assert_allclose(turned.W, left @ plain.W @ right.T, atol=1e-6 * float(plain.value))
    np.testing.assert_allclose(turned.value, plain.value, rtol=1e-9)
    # queries of another length: each constraint is divided by it
    scaled = sv.svm.lp_svm(sv.data.Problem(q.X, 3.0 * q.z, q.y), q.optimal, p=float(p))
    np.testing.assert_allclose(3.0 * scaled.value, plain.value, rtol=1e-9)


@FEW
@given(SIZES, EXPONENTS)
def test_exchanging_and_reflecting_coordinates_does_the_same_to_a_run(sizes, p):
    n, T, d, seed = sizes
    q, rng = sv.data.random_problem(n, T, d, seed=seed), np.random.default_rng(seed)
    left, right, W = _signed_permutation(rng, d), _signed_permutation(rng, d), rng.normal(size=(d, d))
    other = sv.data.Problem(q.X @ left.T, q.z @ right.T, q.y, left @ q.v)
    for rule in (sv.dynamics.steepest(sv.norms.lp(float(p)), 0.1), sv.dynamics.mirror_descent(float(p), 0.1)):
        run = sv.dynamics.train(q, sv.attention.Direct(W), rule, 20)
        same = sv.dynamics.train(other, sv.attention.Direct(left @ W @ right.T), rule, 20)
        # steps of small exponents in the dual amplify the last digit of small entries
        np.testing.assert_allclose(same.W[-1], left @ run.W[-1] @ right.T, atol=1e-5)
