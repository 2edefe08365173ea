"""The solvers against numbers that were computed independently, and against the second opinion."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import InfeasibleError

DATA = Path(__file__).parents[1] / "data"
BANK = json.loads((DATA / "svm_bank.json").read_text())
PLANAR = json.loads((DATA / "svm_planar.json").read_text())
FEASIBLE = [key for key, row in BANK.items() if row["feasible"]]


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "svm_bank.npz") as stored:
        return dict(stored)


def problem(arrays, key):
    return sv.data.Problem(*(arrays[f"{key}_{name}"] for name in "Xzyv"))


def test_the_bank_is_whole():
    assert len(BANK) == 33
    assert len(FEASIBLE) == 32


@pytest.mark.parametrize("key", FEASIBLE)
def test_bank(arrays, key):
    p, row = problem(arrays, key), BANK[key]
    np.testing.assert_array_equal(p.optimal, row["ids"])
    fro, nuc = sv.svm.attention_svm(p), sv.svm.attention_svm(p, norm="nuc")
    np.testing.assert_allclose(fro.value, row["fro"], rtol=1e-10)
    assert np.linalg.norm(fro.W - arrays[f"{key}_W_fro"]) <= 1e-8 * row["fro"]
    np.testing.assert_allclose(nuc.value, row["nuc"], rtol=1e-9)
    assert (int(fro.rank), int(nuc.rank)) == (row["fro_rank"], row["nuc_rank"])
    assert fro.certificate.worst <= 1e-11
    assert nuc.certificate.worst <= 1e-11


@pytest.mark.parametrize("key", [key for key in BANK if key not in FEASIBLE])
def test_bank_infeasible(arrays, key):
    p = problem(arrays, key)
    assert not sv.svm.feasible(p)
    for norm in ("fro", "nuc"):
        with pytest.raises(
            InfeasibleError, match=r"No W separates .*\(n=8, T=6, d=4\).*contradict each other"
        ):
            sv.svm.attention_svm(p, norm=norm)
    with pytest.raises(InfeasibleError, match=r"Clarabel reports"):
        sv.svm.attention_svm_conic(p)


@pytest.mark.parametrize("which", [1, 2])
def test_planar_instances(which):
    row = PLANAR[f"vis{which}"]
    p = sv.data.Problem(row["X"], row["Z"], [1, 1], row["v"])
    np.testing.assert_array_equal(p.optimal, row["best_ids"])
    fro, nuc = sv.svm.attention_svm(p), sv.svm.attention_svm(p, norm="nuc")
    # these numbers come from a conic solver at its default accuracy
    np.testing.assert_allclose(fro.W, row["fro"], rtol=2e-5)
    np.testing.assert_allclose(nuc.W, row["nuc"], rtol=2e-4)
    np.testing.assert_allclose(fro.value, row["fro_obj"], rtol=1e-5)
    np.testing.assert_allclose(nuc.value, row["nuc_obj"], rtol=1e-5)
    assert int(nuc.rank) == row["nuc_rank"]
    np.testing.assert_allclose(fro.margin * fro.value, 1.0)


@pytest.mark.parametrize("norm", ["fro", "nuc"])
@pytest.mark.parametrize("sizes", [(1, 4, 3), (3, 2, 4), (4, 5, 5), (5, 3, 3), (2, 6, 8)])
def test_second_opinion(norm, sizes):
    p = sv.data.random_problem(*sizes, seed=11)
    ours, conic = sv.svm.attention_svm(p, norm=norm), sv.svm.attention_svm_conic(p, norm=norm)
    np.testing.assert_allclose(ours.value, conic.value, rtol=1e-7)
    assert sv.compare.angle(ours.W, conic.W) < 1e-3
    np.testing.assert_array_equal(ours.support, conic.support)
    np.testing.assert_allclose(ours.multipliers.sum(), conic.multipliers.sum(), rtol=1e-6)
    assert conic.certificate.worst <= 1e-6


@pytest.mark.parametrize("batch", [None, 4])
def test_planted_solution(batch):
    p, W = sv.data.planted_problem(3, 4, 5, batch=batch, seed=2)
    svm = sv.svm.attention_svm(p)
    np.testing.assert_allclose(svm.W, W, atol=1e-13)
    assert (svm.support == svm.constrained).all()
    assert (svm.constrained.sum(-1) == 3).all()


def test_toys_with_exact_answers():
    # two sequences with one query e_1 are a vector problem in W e_1
    def toy(*keys):
        X = [[[0.0, 0.0], [-key[0], -key[1]]] for key in keys]
        return sv.data.Problem(X, [[1.0, 0.0]] * len(keys), [1] * len(keys))

    svm = sv.svm.attention_svm(toy((-2, 1), (1, 0)), [0, 0])
    np.testing.assert_allclose(svm.W, [[1, 0], [3, 0]], atol=1e-13)
    np.testing.assert_allclose(svm.multipliers[:, 1], [3, 7], rtol=1e-12)
    svm = sv.svm.attention_svm(toy((2, -1), (1, 0)), [0, 0])  # the worse token of the first sequence
    np.testing.assert_allclose(svm.W, [[1, 0], [0, 0]], atol=1e-13)
    np.testing.assert_array_equal(svm.support[:, 1], [False, True])

    one = sv.data.Problem([[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]], [[1.0, 0.0]], [1])
    svm = sv.svm.attention_svm(one, [0])
    np.testing.assert_allclose(svm.W[:, 0], np.array([-0.1, 1.0]) / 1.01, rtol=1e-13)
    np.testing.assert_allclose(svm.margin, np.sqrt(1.01), rtol=1e-13)
    np.testing.assert_array_equal(svm.support, [[False, False, True]])
    np.testing.assert_allclose(
        sv.compare.margins(svm.W, one.X, one.z, [0]), [[np.inf, 1.11 / 1.01, 1.0]], rtol=1e-13
    )

    a, b, c = 2.0, 3.0, 1.5  # two constraints with Gram matrix [[a, -c], [-c, b]]
    keys = np.linalg.cholesky([[a, -c], [-c, b]])
    svm = sv.svm.attention_svm(toy(*keys), [0, 0])
    np.testing.assert_allclose(svm.multipliers[:, 1], np.array([b + c, a + c]) / (a * b - c * c), rtol=1e-12)


def test_ranks_at_the_size_of_the_rank_experiment():
    p = sv.data.random_problem(10, 5, 10, batch=12)
    nuc = sv.svm.attention_svm(p, norm="nuc")
    assert (sv.svm.attention_svm(p).rank == 10).all()
    assert 3.1 <= nuc.rank.mean() <= 4.3
    s = np.linalg.svd(nuc.W, compute_uv=False)
    k = np.arange(len(s))
    assert (s[k, nuc.rank] < 1e-12 * s[:, 0]).all()  # a gap that no tolerance can misread
    assert (s[k, nuc.rank - 1] > 1e-4 * s[:, 0]).all()
