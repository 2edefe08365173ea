"""The two parts of the log loss, their minimiser and path, and the experiments on sequences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import svmlib as sv
from svmlib.errors import DataError, ShapeError, SolverError
from svmlib.experiments.sequences import finite_minimum, priority_data, priority_path, split_loss


@pytest.fixture(scope="module")
def text():
    p, keys, edges, inside = priority_data(5, 2, 8, 3, 6, levels=2, batch=2, seed=4)
    return p[1], keys[1], edges[1], inside[1]


def penalised(p, c):
    shape = (p.key_dim, p.query_dim)

    def value(w):
        W = w.reshape(shape)
        G = sv.attention.gradient(p, sv.attention.Direct(W), "log").matrix()
        return float(sv.attention.loss(p, W, "log")) + c / 2 * w @ w, G.ravel() + c * w

    return minimize(
        value, np.zeros(np.prod(shape)), jac=True, method="BFGS", options={"gtol": 1e-10}
    ).x.reshape(shape)


def test_path_against_a_general_minimiser(text):
    p, _, _, inside = text
    found = priority_path(p, inside, [1e-3, 1e-1])  # in any order
    for c, W in zip((1e-3, 1e-1), found.W, strict=True):
        assert pytest.approx(penalised(p, c), abs=1e-6) == W
    assert found.radius[0] > found.radius[1]
    outside = split_loss(p, found.W, inside)[1]
    assert np.exp(found.log_outside) == pytest.approx(outside)


def test_finite_minimum_against_a_general_minimiser(text):
    p, _, _, inside = text
    W, least = finite_minimum(p, inside)
    shape = W.shape
    numeric = minimize(
        lambda w: float(split_loss(p, w.reshape(shape), inside)[0]), np.zeros(W.size), options={"gtol": 1e-9}
    )  # from 0 the gradient stays in the span
    assert least == pytest.approx(numeric.fun, abs=1e-8)
    assert pytest.approx(numeric.x.reshape(shape), abs=1e-4) == W
    assert np.linalg.norm(W) > 0.1


def test_parts_are_accurate_where_the_second_is_tiny(text):
    p, keys, edges, inside = text
    goal = sv.svm.graph_svm(keys, keys[:2], edges)
    W, least = finite_minimum(p, inside)
    within, outside = split_loss(p, W + np.array([0.0, 50.0, 300.0])[:, None, None] * goal.W, inside)
    assert within == pytest.approx(least)
    assert np.log(outside[1] / outside[2]) == pytest.approx(250.0, rel=1e-6)
    assert within[0] + outside[0] == pytest.approx(float(sv.attention.loss(p, W, "log")))


def test_without_cycles_the_finite_part_is_zero():
    p, _, _, inside = priority_data(5, 2, 8, 3, 6, batch=1)
    W, least = finite_minimum(p[0], inside[0])
    assert not W.any()
    assert least == 0.0


def test_errors(text):
    p, _, _, inside = text
    with pytest.raises(ShapeError, match="One problem"):
        finite_minimum(p.expand(2), inside)
    with pytest.raises(ShapeError, match="inside"):
        split_loss(p, np.zeros((6, 6)), inside[:3])
    # tokens that do not balance have no minimiser
    alone = sv.data.next_token_problem([[0, 1]], [0], np.eye(2))
    with pytest.raises(SolverError, match=r"settle.*balance"):
        finite_minimum(alone, [[True, True]])
    for decay in ([1e-2, -1.0], [0.0], []):
        with pytest.raises(DataError, match="positive strengths"):
            priority_path(p, inside, decay)
    with pytest.raises(DataError, match="width"):
        sv.experiments.ntp_priority(trials=1, width=4)
    with pytest.raises(DataError, match="T >= 2"):
        sv.experiments.p1_causal(trials=1, T=1)
    with pytest.raises(DataError, match="at least one width"):
        sv.experiments.p1_causal(trials=1, widths=())


def test_tokens_that_are_written_twice_change_the_counts_alone():
    once, twice = (priority_data(5, 2, 8, 3, 6, levels=2, repeats=r, batch=2, seed=4) for r in (0, 2))
    assert twice[0].T == once[0].T + 2
    assert (twice[2] == once[2]).all()
    assert (twice[1] == once[1]).all()
    assert (twice[3][..., 2:] == once[3]).all()
    assert (twice[0].X[..., 0].sum(-1) > 1).any()
    assert (twice[0].X[..., 2:, :] == once[0].X).all()
    # a repeated token counts once for each place
    W = np.random.default_rng(0).normal(size=(6, 6))
    for q, own in zip(twice[0].X[1, ..., 0], twice[3][1], strict=True):
        assert own[q > 0].all()
    within, outside = split_loss(twice[0][1], W, twice[3][1])
    assert within + outside == pytest.approx(float(sv.attention.loss(twice[0][1], W, "log")))


def test_experiments_have_the_shapes_they_promise():
    r = sv.experiments.p1_causal(trials=3, steps=50, widths=(2, 4))
    assert r["correlation_csl"].shape == (3, len(r["steps_csl"]))
    assert r["share_seq_drawn"].shape == (2, 3)
    assert (r["margin_csl"] > 0).all()
    t = sv.experiments.ntp_priority(trials=3, steps=50, plain_steps=100)
    assert t["cyclic_correlation"].shape == t["cyclic_finite_error"].shape == (3, len(t["cyclic_steps"]))
    assert (t["cyclic_inside_gap"][:, -1] >= -1e-12).all()
    assert (t["cyclic_finite_error"][:, -1] < t["cyclic_finite_error"][:, 0]).all()
    again = sv.experiments.ntp_priority(trials=3, steps=50, plain_steps=100)
    assert np.array_equal(again["factored_nuc"], t["factored_nuc"], equal_nan=True)
