"""What a solution holds where there is none, and the arguments that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

NORMS = ("fro", "nuc")


def gaussian(n, T, d, seed=0, **rest):
    rng = np.random.default_rng(seed)
    return sv.data.Problem(
        rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), np.ones(n), rng.normal(size=d), **rest
    )


@pytest.mark.parametrize("norm", NORMS)
def test_an_unsolved_element_leaves_the_others(norm):
    p = gaussian(3, 4, 5)
    z = p.z.copy()
    z[1] = z[0] * (1 + 1e-9) + 1e-9
    twin = p.X.copy()
    twin[0, 1] = twin[0, 0]
    batch = sv.data.Problem(
        np.stack([p.X, np.stack([p.X[0], -p.X[0], p.X[2]]), twin]), np.stack([p.z, z, p.z]), p.y, p.v
    )
    svm = sv.svm.attention_svm(batch, [0, 0, 0], norm=norm, errors="nan")
    np.testing.assert_array_equal(svm.solved, [True, False, False])
    np.testing.assert_array_equal(svm.feasible, [True, True, False])  # only the last one is proved to be not
    np.testing.assert_array_equal(svm.W[0], sv.svm.attention_svm(p, [0, 0, 0], norm=norm).W)
    for a in (svm.W, svm.value, svm.margin, svm.multipliers, svm.certificate.worst):
        assert np.isnan(a[1:]).all()
    assert (svm.rank[1:] == -1).all()
    assert not svm.support[1:].any()
    assert "2 of 3 feasible, 1 of them not solved" in repr(svm)
    assert "not solved" in repr(sv.svm.attention_svm(batch[1], [0, 0, 0], norm=norm, errors="nan"))
    np.testing.assert_array_equal(np.isnan(sv.selection.support_fraction(svm)), [False, True, True])
    assert not sv.selection.locally_optimal(batch, svm)[1:].any()


def test_uncertified_points_are_refused(monkeypatch):
    from svmlib.svm import programs

    p = gaussian(3, 4, 5)
    true = programs.nuclear_points
    monkeypatch.setattr(programs, "nuclear_points", lambda a: [(W * (1 - 1e-6), lam) for W, lam in true(a)])
    with pytest.raises(SolverError, match=r'"nuc" attention SVM.*only up to primal 1.0e-06.*promised 1e-09'):
        sv.svm.attention_svm(p, norm="nuc")
    lost = sv.svm.attention_svm(p, norm="nuc", errors="nan")
    assert lost.feasible and not lost.solved and np.isnan(lost.W).all()


@pytest.mark.parametrize("norm", NORMS)
def test_batches_with_infeasible_elements(norm):
    good, X = gaussian(2, 3, 4), gaussian(2, 3, 4).X.copy()
    X[0, 2] = X[0, 0]
    p = sv.data.Problem(np.stack([[good.X, X], [X, good.X]]), good.z, good.y, good.v)
    assert p.batch_shape == (2, 2)
    with pytest.raises(InfeasibleError, match=r"of batch element \(0, 1\) \(n=2, T=3, d=4\).*errors=\"nan\""):
        sv.svm.attention_svm(p, [0, 0], norm=norm)
    svm = sv.svm.attention_svm(p, [0, 0], norm=norm, errors="nan")
    np.testing.assert_array_equal(svm.feasible, [[True, False], [False, True]])
    np.testing.assert_array_equal(svm.feasible, sv.svm.feasible(p, [0, 0]))
    off = ~svm.feasible
    for a in (svm.W, svm.value, svm.margin, svm.multipliers, svm.certificate.worst, svm.certificate.gap):
        assert np.isnan(a[off]).all()
        assert not np.isnan(a[svm.feasible]).any()
    assert (svm.rank[off] == -1).all()
    assert not svm.support[off].any()
    single = sv.svm.attention_svm(good, [0, 0], norm=norm)
    np.testing.assert_array_equal(svm.W[0, 0], single.W)
    assert svm.multipliers.shape == (2, 2, 2, 3)
    assert "2 of 4 feasible" in repr(svm)
    assert "batch (2, 2)" in repr(svm)


def test_all_infeasible_batch():
    p = sv.data.Problem(np.zeros((2, 1, 2, 3)), np.ones((1, 3)), [1], np.ones(3))
    svm = sv.svm.attention_svm(p, norm="nuc", errors="nan")
    assert not svm.feasible.any()
    assert repr(sv.svm.attention_svm(p[0], errors="nan")).startswith(
        'AttentionSVM("fro", n=1, T=2, d=3, infeasible'
    )


def test_records_are_read_only():
    svm = sv.svm.attention_svm(gaussian(2, 3, 4), norm="nuc")
    for name in ("W", "value", "rank", "support", "multipliers", "tokens", "constrained", "feasible"):
        assert not getattr(svm, name).flags.writeable
    with pytest.raises(AttributeError):
        svm.W = 0
    assert 'AttentionSVM("nuc", n=2, T=3, d=4, value' in repr(svm)
    assert svm.value.dtype == np.float64
    assert svm.value.shape == svm.rank.shape == ()


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"norm": "max"}, DataError, 'norm must be "fro" or "nuc", got \'max\''),
        ({"norm": ["fro"]}, DataError, 'norm must be "fro" or "nuc"'),
        ({"errors": "ignore"}, DataError, 'errors must be "raise" or "nan", got \'ignore\''),
        ({"tokens": [0, 9]}, ShapeError, r"tokens must lie in 0\.\.2 for sequences of T=3 tokens"),
        ({"tokens": [0, 1, 2]}, ShapeError, r"tokens must have shape"),
        ({"tokens": [0, 2]}, DataError, "tokens selects a masked position"),
    ],
)
def test_bad_arguments(kwargs, error, message):
    mask = np.array([[1, 1, 1], [1, 1, 0]], dtype=bool)
    with pytest.raises(error, match=message):
        sv.svm.attention_svm(gaussian(2, 3, 4, mask=mask), **kwargs)


def test_what_is_no_problem_is_named():
    for solve in (sv.svm.attention_svm, sv.svm.feasible, sv.svm.attention_svm_conic):
        with pytest.raises(DataError, match=r"problem must be a svmlib\.data\.Problem, got ndarray"):
            solve(np.zeros((2, 3, 4)))


def test_headless_problems_need_tokens():
    p = gaussian(2, 3, 4)
    bare = sv.data.Problem(p.X, p.z, p.y)
    with pytest.raises(DataError, match="linear head"):
        sv.svm.attention_svm(bare)
    assert sv.svm.attention_svm(bare, [0, 1]).feasible
