"""The experiment on a hierarchy of SVMs: its task, its measures, its stored record."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, ShapeError
from svmlib.experiments import heads, hierarchy, induction


def test_the_induction_task_asks_for_the_value_after_the_symbol() -> None:
    p = induction.induction_problem(n=30, batch=2, seed=3)
    assert (p.n, p.T, p.d) == (30, 6, 15)
    for b in range(2):
        for X, z, y in zip(p.X[b], p.z[b], p.y[b], strict=True):
            at = int(np.flatnonzero(X[:, :4] @ z[:4])[0])
            values = X[:, 8]
            assert at % 2 == 0 and values[at + 1] == y
            assert sorted(values[1::2] * y) == [-1.0, -1.0, 1.0] and not values[::2].any()
    again = induction.induction_problem(n=30, batch=1, seed=4)
    np.testing.assert_array_equal(again.X[0], p.X[1])
    with pytest.raises(ShapeError, match="144 different"):
        induction.induction_problem(n=145)


def test_two_ideal_layers_solve_it() -> None:
    p = induction.induction_problem(n=24)
    a = sv.attention.Architecture(layers=2, mlp=False, causal=True)
    W = np.zeros((2, 1, 15, 15))
    W[0, 0, 9 + np.arange(5), 9 + np.arange(1, 6)] = 50.0  # attend to the position before
    W[1, 0, 4 + np.arange(4), np.arange(4)] = 50.0  # attend to the buffer with the query's symbol
    W[1, 0, 9, :4] = -25.0  # not at position 1, which sees itself only and copies its own symbol
    w = sv.attention.TransformerWeights(
        sv.attention.Direct(W), induction.induction_values(p), None, None, np.asarray(p.v)
    )
    seen = sv.attention.transformer(p, a, w)
    assert (p.y * seen.predictions > 3.9).all()
    found = induction.prefix_sharing(seen)
    assert found["previous"] == pytest.approx(1.0) and found["match"] == pytest.approx(1.0)


def test_measures_of_a_head_that_is_its_svm() -> None:
    p = sv.data.random_problem(4, 5, 10, batch=3)
    a = sv.attention.Architecture(layers=2, mlp=False)
    w = sv.attention.TransformerWeights.random(p, a)
    seen = sv.attention.transformer(p, a, w)
    own, _, s = heads._own_problem(p, a, w, seen, 1, 0)
    best = sv.svm.attention_svm(own, s.argmax(-1))
    W = np.array(w.W)
    W[:, 1, 0] = 60 * best.W / best.value[:, None, None]
    there = w._replace(attention=sv.attention.Direct(W))
    found = heads.head_measures(p, a, there, 1, 0, start=w)
    for name in ("corr", "span", "margin", "general", "equation"):
        np.testing.assert_allclose(found[name], 1.0, rtol=1e-7)
    assert (found["size"] == pytest.approx(60)) and (found["single"] == 1).all()
    np.testing.assert_array_equal(found["rank"], best.rank)
    x, y = heads.suppression(p, a, there, 1, 0)
    np.testing.assert_allclose(x, y, rtol=1e-3)
    assert len(x) == 3 * 4 * 4
    control = heads.head_measures(p, a, there, 1, 0, tokens="random", seed=1)
    assert (np.abs(control["corr"]) < 0.6).all()


def test_a_head_with_one_token_has_nothing_to_compare() -> None:
    p, a = sv.data.random_problem(2, 1, 4, batch=2), sv.attention.Architecture(layers=2)
    found = heads.head_measures(p, a, sv.attention.TransformerWeights.random(p, a), layer=0, head=0)
    assert np.isnan(found["corr"]).all() and np.isnan(found["span"]).all()
    assert (found["single"] == 1).all() and (found["rank"] == 0).all()


def test_the_stored_record_agrees_with_a_part_that_is_run_again() -> None:
    stored = sv.experiments.stored("p1_hierarchy")
    assert stored.trials >= 20 and set(stored.options["heads"]) == {1, 2, 4}
    again = sv.experiments.p1_hierarchy(
        trials=2, variants=("attention",), layers=(2,), heads=(1,), induction=False
    )
    for field in ("corr", "control", "random", "size"):
        name = f"attention_2x1_{field}"
        np.testing.assert_allclose(again[name], stored[name][:2], rtol=1e-5)


def test_record_helpers() -> None:
    stored = sv.experiments.stored("p1_hierarchy")
    last = hierarchy.pooled_heads(stored, "relu", "corr", "last")
    lower = hierarchy.pooled_heads(stored, "relu", "corr")
    assert last.size == stored.trials * 14 and lower.size == stored.trials * 21
    assert hierarchy.hypotheses(stored, "relu").shape == lower.shape
    with pytest.raises(DataError, match="no 'speed'"):
        hierarchy.pooled_heads(stored, "relu", "speed")
    with pytest.raises(DataError, match="layer must be"):
        hierarchy.pooled_heads(stored, "relu", "corr", "first")
    with pytest.raises(DataError, match="variants must be out of"):
        sv.experiments.p1_hierarchy(trials=1, variants=("linear",))
