"""The experiment on ranks, and the test of uniqueness."""

import numpy as np
import pytest

import svmlib as sv
from svmlib.experiments.rank import published_ranks, shown_unique


def orthogonal(n):
    X = np.stack([np.eye(n), np.zeros((n, n))], axis=1)
    return sv.data.Problem(X, np.eye(n), np.ones(n), np.ones(n))


def test_one_cell_agrees_with_the_solver():
    r = sv.experiments.p1_rank(trials=6, sizes=((5, 5),), widths=(3, 10))
    p = sv.data.random_problem(5, 5, 3, batch=6)
    s = sv.svm.attention_svm(p, norm="nuc", errors="nan")
    assert r["rank_nuc"].shape == (1, 2, 6)
    np.testing.assert_array_equal(r["rank_nuc"][0, 0], s.rank)
    np.testing.assert_array_equal(r["solved"][0, 0], s.solved)
    np.testing.assert_array_equal(r["support"][0, 0], s.support.sum((-2, -1)))
    assert (r["rank_fro"][0, 1] == 5).all()


def test_infeasible_instances_have_no_rank():
    r = sv.experiments.p1_rank(trials=10, sizes=((10, 5),), widths=(2,))
    lost = ~r["feasible"][0, 0]
    assert lost.sum() >= 8
    assert (r["rank_fro"][0, 0][lost] == -1).all()
    assert (r["rank_nuc"][0, 0][lost] == -1).all()
    assert not r["unique"][0, 0][lost].any()
    assert np.isnan(r["kept"][0, 0][lost]).all()


def test_gap_surrounds_the_rank():
    r = sv.experiments.p1_rank(trials=4, sizes=((10, 5),), widths=(10,))
    assert np.nanmin(r["kept"]) > 1e-6 > np.nanmax(r["dropped"])
    assert r["worst"].max() < 1e-9


def test_a_parts_folder_gives_the_same_numbers(tmp_path):
    options = {"trials": 3, "sizes": ((5, 5),), "widths": (4,)}
    a = sv.experiments.p1_rank(folder=tmp_path, **options)
    b = sv.experiments.p1_rank(**options)
    for key in a.arrays:
        np.testing.assert_array_equal(a[key], b[key])


@pytest.mark.parametrize("seed", range(3))
def test_uniqueness_is_seen_on_random_data(seed):
    p = sv.data.random_problem(6, 8, 10, seed=seed)
    assert shown_unique(p, sv.svm.attention_svm(p, norm="nuc"))


def test_many_solutions_are_not_called_unique():
    p = orthogonal(4)
    assert not shown_unique(p, sv.svm.attention_svm(p, norm="nuc"))


def test_uniqueness_keeps_the_batch_axes():
    p = sv.data.random_problem(5, 5, 2, batch=8)
    s = sv.svm.attention_svm(p, norm="nuc", errors="nan")
    found = shown_unique(p, s)
    assert found.shape == (8,)
    assert not found[~s.solved].any()


def test_one_token_a_sequence_needs_no_matrix():
    r = sv.experiments.p1_rank(trials=2, sizes=((3, 1),), widths=(4,))
    assert (r["rank_nuc"] == 0).all()
    assert r["unique"].all()


def test_frobenius_solutions_and_empty_grids_are_refused():
    p = sv.data.random_problem(2, 4, 3)
    with pytest.raises(sv.errors.DataError, match="nuclear"):
        shown_unique(p, sv.svm.attention_svm(p))
    with pytest.raises(sv.errors.DataError, match="sizes"):
        sv.experiments.p1_rank(trials=1, sizes=())


def test_published_readings():
    r = published_ranks()
    assert r["fro"].shape == r["nuc"].shape == (3, 8)
    known = np.isfinite(r["nuc"])
    assert (r["nuc"][known] <= r["fro"][known]).all()
