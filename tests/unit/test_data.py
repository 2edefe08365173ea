from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from svmlib import compare, data
from svmlib.errors import DataError, ShapeError

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "planar_instances.json"
X = np.arange(12.0).reshape(2, 3, 2)
z, y, v = np.ones((2, 2)), np.array([1.0, -1.0]), np.array([1.0, 0.5])


def test_scores_and_optimal_tokens():
    p = data.Problem(X, z, y, v)
    assert (p.n, p.T, p.d, p.batch_shape) == (2, 3, 2, ())
    np.testing.assert_allclose(p.scores, y[:, None] * (X @ v))
    assert p.optimal.tolist() == [2, 0]
    assert not p.tied.any()


def test_a_batch_shares_what_has_no_batch_axis():
    p = data.Problem(np.stack([X, -X]), z, y, v)
    assert p.batch_shape == (2,)
    assert p.z.shape == (2, 2, 2)
    assert p.optimal.tolist() == [[2, 0], [0, 2]]
    np.testing.assert_array_equal(p[1].X, -X)
    assert p[:1].batch_shape == (1,)
    with pytest.raises(ShapeError, match="no batch axes to index"):
        p[0][0]


def test_records_cannot_be_changed_from_outside():
    tokens = X.copy()
    p = data.Problem(tokens, z, y, v)
    tokens[:] = 0.0
    assert p.X[0, 0, 1] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        p.X[0] = 0.0


def test_masked_tokens_may_hold_anything_and_are_never_chosen():
    padded = X.copy()
    padded[0, 2] = np.nan
    p = data.Problem(padded, z, y, v, mask=[[True, True, False], [True, True, True]])
    assert p.optimal.tolist() == [1, 0]
    assert p.scores[0, 2] == -np.inf
    assert not p.differences()[0, 2].any()
    with pytest.raises(DataError, match="tokens selects a masked position"):
        p.checked_tokens([2, 0])


def test_tie_and_duplicate_of_the_best_token():
    p = data.Problem([[[1.0, 0.0], [1.0, 5.0], [0.0, 0.0]]], [[1.0, 0.0]], [1], [1.0, 0.0])
    assert p.tied.tolist() == [True]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": X[0]}, ShapeError, r"X must have at least 3 axes, got shape \(3, 2\)"),
        ({"X": np.zeros((2, 0, 2))}, ShapeError, "n, T, d >= 1"),
        ({"X": np.full((2, 3, 2), np.nan)}, DataError, "X must be finite, but 12 of its 12 entries"),
        (
            {"z": np.ones((3, 2))},
            ShapeError,
            r"z must end in axes of sizes \(2, any\), n of X, which has .*, got shape \(3, 2\)",
        ),
        ({"z": np.full((2, 2), np.inf)}, DataError, "z must be finite"),
        ({"z": np.ones((2, 0))}, ShapeError, r"z must have at least one column, got shape \(2, 0\)"),
        (
            {"keys": np.ones((2, 2, 2))},
            ShapeError,
            r"keys must end in axes of sizes \(2, 3, any\), n and T of X, .*, got shape \(2, 2, 2\)",
        ),
        ({"keys": np.full((2, 3, 4), np.nan)}, DataError, "keys must be finite, but 24 of its 24"),
        ({"keys": np.ones((2, 3, 0))}, ShapeError, "keys must have at least one column"),
        ({"y": [1, 0]}, DataError, r"y must hold labels \+1 and -1, got the values \[0.0, 1.0\]"),
        ({"y": [1, 1, 1]}, ShapeError, r"y must end in axes of sizes \(2,\)"),
        ({"v": np.ones(3)}, ShapeError, r"v must end in axes of sizes \(2,\), d of X.*, got shape \(3,\)"),
        ({"head": lambda u: u}, DataError, "either v .* or head"),
        ({"v": None, "head": 3}, DataError, "head must be callable"),
        ({"X": X * 1e70}, DataError, r"largest entry of X is 1.1e\+71; it must lie between 1e-60 and 1e60"),
        ({"z": z * 1e-70}, DataError, "largest entry of z is 1.0e-70"),
        ({"mask": np.ones((2, 2))}, ShapeError, r"mask must end in axes of sizes \(2, 3\)"),
        ({"mask": [[2, 0, 0], [1, 1, 1]]}, DataError, "mask must be boolean"),
        ({"mask": [[0, 0, 0], [1, 1, 1]]}, DataError, "mask leaves a sequence without any token"),
        (
            {"X": np.zeros((4, 2, 3, 2)), "v": np.ones((3, 2))},
            ShapeError,
            r"batch.* axes do not fit: X has \(4,\)",
        ),
    ],
)
def test_bad_input(change, error, message):
    good = {"X": X, "z": z, "y": y, "v": v}
    with pytest.raises(error, match=message):
        data.Problem(**{**good, **change})


def test_scores_without_a_linear_head():
    with pytest.raises(DataError, match="Token scores need a linear head v"):
        _ = data.Problem(X, z, y).scores


def test_self_attention_takes_the_first_token_as_query():
    p = data.self_attention(X, y, v)
    np.testing.assert_array_equal(p.z, X[:, 0])


def test_random_problem_has_unit_vectors_and_one_seed_per_instance():
    p = data.random_problem(6, 8, 10, batch=3, seed=5)
    for a in (p.X, p.z, p.v):
        np.testing.assert_allclose(np.linalg.norm(a, axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(p.X[2], data.random_problem(6, 8, 10, seed=7).X)
    q = data.random_problem(6, 8, 10, seed=5, self_attention=True)
    np.testing.assert_array_equal(q.z, q.X[:, 0])
    for sizes in ((0, 1, 1), (1, -1, 1), (1, 1, 1.5)):
        with pytest.raises(ShapeError, match="must be a positive integer"):
            data.random_problem(*sizes)


def test_planar_instances_have_the_published_heads_and_queries():
    for which, head, query in (
        (1, (0.9273, 0.3743), (0.845, 0.535)),
        (2, (0.9771, 0.2127), (-0.539, -0.842)),
    ):
        p = data.planar(which)
        np.testing.assert_allclose(p.v, head, atol=5e-5)
        np.testing.assert_allclose(p.z[0], query, atol=5e-4)
    with pytest.raises(DataError, match="which must be 1 or 2, got 3"):
        data.planar(3)


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference numbers are not beside the repository")
def test_planar_instances_are_the_reference_ones():
    for name, want in json.loads(REFERENCE.read_text()).items():
        p = data.planar(int(name[-1]))
        np.testing.assert_array_equal(p.X, want["X"])
        np.testing.assert_allclose(p.z, want["Z"], atol=1e-7)
        assert p.optimal.tolist() == want["best_ids"]


def test_planted_solution_has_margin_one_everywhere():
    p, W = data.planted_problem(3, 4, 5, batch=4)
    got = compare.margins(W, p.X, p.z, p.optimal)
    np.testing.assert_allclose(got[np.isfinite(got)], 1.0, rtol=1e-12)
    others = np.sort(p.scores, -1)[..., :-1]
    np.testing.assert_allclose(others, 0.0, atol=1e-14)
    with pytest.raises(ShapeError, match=r"needs d >= max\(n, T-1\) = 4, got d=3"):
        data.planted_problem(4, 2, 3)
    single = data.planted_problem(2, 1, 2)[1]
    assert not single.any()


def test_an_index_stays_within_the_batch():
    p = data.random_problem(3, 4, 5, batch=6)
    q = data.Problem(
        p.X.reshape(2, 3, 3, 4, 5), p.z.reshape(2, 3, 3, 5), p.y.reshape(2, 3, 3), p.v.reshape(2, 3, 5)
    )
    assert q[1].batch_shape == (3,)
    np.testing.assert_array_equal(q[1, 2].X, p.X[5])
    np.testing.assert_array_equal(q[:, 0].X, p.X[[0, 3]])
    np.testing.assert_array_equal(p[np.array([True, False] * 3)].X, p.X[::2])
    assert [b.batch_shape for b in p] == [()] * 6
    assert len(p) == 6
    assert p[:0].batch_shape == (0,)
    for key in ((slice(None), 0), 6, np.ones(4, dtype=bool), "a"):
        with pytest.raises(IndexError, match=r"The batch of this problem has shape \(6,\)"):
            p[key]
    with pytest.raises(ShapeError, match="may only pick from the batch axes"):
        p[None]
    with pytest.raises(ShapeError, match="has no length"):
        len(p[0])


def test_self_attention_with_a_mask():
    padded = X.copy()
    padded[0, 2] = np.nan
    mask = [[True, True, False], [True, True, True]]
    np.testing.assert_array_equal(data.self_attention(padded, y, v, mask=mask).z, X[:, 0])
    with pytest.raises(DataError, match="mask hides a first token"):
        data.self_attention(X, y, v, mask=[[False, True, True], [True, True, True]])
    with pytest.raises(ShapeError, match="at least one token"):
        data.self_attention(np.zeros((2, 0, 2)), y, v)


@pytest.mark.parametrize("make", [data.random_problem, data.planted_problem])
def test_bad_sizes_and_seeds(make):
    for sizes in ((2.0, 2, 3), (None, 2, 3), (True, 2, 3), (2, "a", 3)):
        with pytest.raises(ShapeError, match="must be a positive integer, got"):
            make(*sizes)
    for seed in (-1, 1.5, None, "a", 2**70):
        with pytest.raises(ShapeError, match="seed must be a whole number >= 0, got"):
            make(2, 2, 3, seed=seed)
    with pytest.raises(ShapeError, match="batch must be a positive integer, got 0"):
        make(2, 2, 3, batch=0)
    make(2, 2, 3, seed=np.int64(3))


def test_keys_are_the_tokens_unless_given():
    p = data.Problem(X, z, y, v)
    assert p.keys is p.X
    assert (p.key_dim, p.query_dim) == (2, 2)
    keys = np.arange(18.0).reshape(2, 3, 3)
    other = data.Problem(X, np.ones((2, 5)), y, v, keys=keys)
    assert (other.d, other.key_dim, other.query_dim) == (2, 3, 5)
    np.testing.assert_array_equal(other.differences([1, 2])[0, 2], keys[0, 1] - keys[0, 2])
    np.testing.assert_array_equal(other.scores, p.scores)
    assert repr(other) == "Problem(n=2, T=3, d=2, linear head, keys of width 3, queries of width 5)"
    with pytest.raises(ValueError, match="read-only"):
        other.keys[0] = 0.0


def test_masked_keys_may_hold_anything():
    keys = np.ones((2, 3, 1))
    keys[0, 2] = np.inf
    p = data.Problem(X, z, y, v, keys=keys, mask=[[True, True, False], [True, True, True]])
    assert p.keys[0, 2] == 0.0
    assert not p.differences([0, 0])[0, 2].any()


def test_picking_and_repeating_keep_every_array():
    rng = np.random.default_rng(0)
    mask = np.array([[True, True, False], [True, True, True]])
    p = data.Problem(rng.normal(size=(4, 2, 3, 2)), z, y, v, keys=rng.normal(size=(4, 2, 3, 5)), mask=mask)
    np.testing.assert_array_equal(p[2].keys, p.keys[2])
    many = p[2].expand(3, 2)
    assert many.batch_shape == (3, 2)
    for name in ("X", "z", "y", "v", "mask", "keys"):
        np.testing.assert_array_equal(getattr(many, name)[2, 1], getattr(p, name)[2])
    flat = many.flat()
    assert flat.batch_shape == (6,)
    np.testing.assert_array_equal(flat.keys[5], p.keys[2])
    assert data.planar(1).expand(2).keys.shape == (2, 2, 3, 2)
    assert data.planar(1).flat().batch_shape == (1,)
    with pytest.raises(ShapeError, match="Each length of shape"):
        p.expand(0)


def test_prompt_problem_has_the_scores_that_it_is_given():
    rng = np.random.default_rng(1)
    keys, scores = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 4))
    for label in (None, [1, -1, -1]):
        p = data.prompt_problem(keys, scores, label)
        np.testing.assert_array_equal(p.scores, scores)
        np.testing.assert_array_equal(p.keys, keys)
        assert (p.d, p.key_dim, p.query_dim) == (1, 2, 1)
    with pytest.raises(ShapeError, match=r"scores must end in axes of sizes \(3, 4\)"):
        data.prompt_problem(keys, scores[:, :3])
