"""Tools of the low-rank chapter against independent answers."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import svmlib as sv
from svmlib.checks import low_rank, low_rank_factors, low_rank_flow


def test_effective_rank_counts_equal_values():
    assert low_rank.effective_rank(np.eye(5)) == pytest.approx(5)
    assert low_rank.effective_rank(np.ones((4, 4))) == pytest.approx(1)
    W = np.diag([3.0, 1.0])
    assert low_rank.effective_rank(W) == pytest.approx(np.exp(0.75 * np.log(4 / 3) + 0.25 * np.log(4)))
    both = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    assert low_rank.effective_rank(both)[0] == pytest.approx(2)
    assert np.isnan(low_rank.effective_rank(both)[1])
    assert np.isnan(low_rank.effective_rank(np.zeros((2, 2))))


def test_both_random_fits_keys_and_queries_of_other_widths():
    rng = np.random.default_rng(0)
    p = sv.data.Problem(rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 2)), np.ones(3), np.ones(4))
    assert low_rank.both_random(p.expand(5), 0.1).matrix().shape == (5, 4, 2)


def test_mirror_problem_is_its_own_mirror_image():
    p = low_rank_flow.mirror_problem([1.0, 0.5], [1.0, 2.0])
    assert (p.n, p.T, p.d) == (2, 2, 2)
    np.testing.assert_allclose(p.scores, [[1, 0], [1, 0]])
    flip = np.diag([1.0, -1.0])
    np.testing.assert_array_equal(p.X[0] @ flip, p.X[1])
    np.testing.assert_array_equal(p.z[0] @ flip, p.z[1])


def test_mirror_problem_refuses_other_lengths_and_zeros():
    with pytest.raises(sv.errors.ShapeError, match="c"):
        low_rank_flow.mirror_problem([1.0, 0.5], [1.0])
    with pytest.raises(sv.errors.DataError, match="zeros"):
        low_rank_flow.mirror_problem([1.0, 0.0], [1.0, 1.0])


@pytest.mark.parametrize("seed", range(3))
def test_mirror_law_in_an_integrated_flow(seed):
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], 3)
    a, c = signs * rng.uniform(0.5, 1.5, 3), signs * rng.uniform(0.5, 1.5, 3)
    p, start = low_rank_flow.mirror_problem(a, c), rng.uniform(0.1, 2, 3)

    def flow(t, x):
        K, Q = x.reshape(2, 3, 3)
        force = -sv.attention.gradient(p, sv.attention.Direct(K @ Q.T)).W
        return np.r_[(force @ Q).ravel(), (force.T @ K).ravel()]

    root = np.diag(np.sqrt(start)).ravel()
    K, Q = solve_ivp(flow, (0, 10), np.r_[root, root], rtol=1e-9, atol=1e-11).y[:, -1].reshape(2, 3, 3)
    grown = np.log(np.diag(K @ Q.T) / start)
    np.testing.assert_allclose(grown / (a * c), grown[0] / (a[0] * c[0]), rtol=1e-6)


def test_narrow_minima_with_a_mask_and_other_widths():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 3, 4))
    mask = np.array([[True, True, False], [True, True, True]])
    args = rng.normal(size=(2, 2)), np.ones(2), rng.normal(size=4)
    minima = low_rank_factors.narrow_minima(sv.data.Problem(X, *args, mask=mask))
    assert minima
    m = minima[0]
    assert m.W.shape == (4, 2)
    p = sv.data.Problem(X, *args, mask=mask)
    assert sv.compare.margins(m.W, p.X, p.z, p.optimal)[mask].min() == pytest.approx(1, abs=1e-6)
    assert m.cost >= float(sv.svm.attention_svm(p, norm="nuc").value) - 1e-6
    assert m.residual < 1e-5


def test_narrow_minima_refuses_batches_and_lone_tokens():
    with pytest.raises(sv.errors.DataError, match="batch"):
        low_rank_factors.narrow_minima(sv.data.random_problem(2, 3, 3, batch=2))
    with pytest.raises(sv.errors.DataError, match="one token"):
        low_rank_factors.narrow_minima(sv.data.random_problem(2, 1, 3))


def test_narrow_minima_against_a_grid():
    q = sv.data.planar(2)
    minima = low_rank_factors.narrow_minima(q)
    k, z = (np.radians(np.arange(0, top, 0.5)) for top in (360, 180))
    grid = np.einsum(
        "ad,be->abde", np.stack([np.cos(k), np.sin(k)], -1), np.stack([np.cos(z), np.sin(z)], -1)
    )
    best = sv.compare.margins(grid, q.X, q.z, q.optimal).min((-2, -1)).max()
    assert len(minima) == 2
    assert 1 / minima[0].cost == pytest.approx(best, rel=2e-3)
    for m in minima:
        assert sv.compare.margins(m.W, q.X, q.z, q.optimal).min() == pytest.approx(1, abs=1e-6)
        assert m.residual < 1e-5
        assert sv.norms.NUC(m.W) == pytest.approx(m.cost, rel=1e-6)


def test_narrow_minimum_of_one_sequence_is_the_solution():
    p = sv.data.random_problem(1, 5, 4, seed=2)
    (m,) = low_rank_factors.narrow_minima(p)
    s = sv.svm.attention_svm(p, norm="nuc")
    np.testing.assert_allclose(m.W, s.W, atol=1e-5 * float(s.value))
    assert sv.norms.SPEC(m.dual) == pytest.approx(1, abs=1e-5)


def test_mean_over_and_gap():
    values, where = np.array([[1.0, 5.0], [2.0, 2.0]]), np.array([[True, False], [False, False]])
    found = low_rank_factors.mean_over(values, where)
    assert found[0] == 1
    assert np.isnan(found[1])
    assert low_rank_factors.smallest_gap(np.array([0.1, np.nan]), np.array([1e-9, 1e-3])) == pytest.approx(
        1e8
    )
