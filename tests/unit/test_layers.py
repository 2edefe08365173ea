"""Training of several layers: against the one-layer engine, resumption, rules, saturation, bad input."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.attention import Architecture, Direct, TransformerWeights
from svmlib.errors import DataError, ShapeError, SolverError

RULE = sv.dynamics.normalized(0.1)
TRAIN = sv.dynamics.train_layers
ONE = Architecture(layers=1, residual=False, mlp=False)


def single(p: sv.data.Problem, W: np.ndarray) -> TransformerWeights:
    return TransformerWeights(Direct(W[:, None, None]), np.eye(p.d)[None, None], None, None, p.v)


@pytest.mark.parametrize("rule", [RULE, sv.dynamics.gradient_descent(0.5)], ids=["normalised", "plain"])
@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_one_head_agrees_with_the_pivoted_engine(rule, loss) -> None:
    p = sv.data.random_problem(4, 5, 6, batch=3)
    W = Direct.random(p)
    deep = TRAIN(p, ONE, single(p, W.W), rule, 200, loss=loss, record=[10, 200])
    plain = sv.dynamics.train(p, W, rule, 200, loss=loss, record=[10, 200])
    np.testing.assert_allclose(deep.W[:, :, 0, 0], plain.W, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(deep.loss, plain.loss, rtol=1e-12)


def test_directions_survive_saturation() -> None:
    p = sv.data.random_problem(4, 5, 6, batch=2)
    svm = sv.svm.attention_svm(p)
    W = 300.0 * svm.W / svm.value[:, None, None]  # the top probabilities round to 1
    deep = TRAIN(p, ONE, single(p, W), RULE, 5, record=[0, 5])
    exact = sv.dynamics.train(p, Direct(W), RULE, 5, record=[0, 5])
    assert (exact.top_probability == 1.0).all()
    step, right = (r[:, 1] - r[:, 0] for r in (deep.W[:, :, 0, 0], exact.W))
    assert (sv.compare.correlation(step, right) > 1 - 1e-9).all()


def test_a_loss_that_underflows_still_has_a_direction() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a = Architecture(layers=2)
    w = TransformerWeights.random(p, a)
    big = w._replace(v=5e4 * p.y.mean() * np.ones(5) + 5e4 * np.asarray(w.v))
    run = TRAIN(p, a, big, RULE, 3, trainable=("v",), record=[0, 3])
    assert np.isfinite(run.log_loss).all() and (run.log_loss[:, 1] != run.log_loss[:, 0]).all()
    np.testing.assert_allclose(np.linalg.norm(run.history[1].v - run.history[0].v, axis=-1) > 0.05, True)


def test_resuming_and_batches_change_nothing() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=3)
    a = Architecture(layers=2, heads=2)
    w = TransformerWeights.random(p, a)
    whole = TRAIN(p, a, w, RULE, 40, trainable=("W", "V", "E", "F", "v"), record=[0, 20, 40])
    again = TRAIN(p, a, whole.history[1], RULE, 20, trainable=("W", "V", "E", "F", "v"), record=[20])
    np.testing.assert_allclose(again.W[:, 0], whole.W[:, 2], rtol=1e-12)
    alone = TRAIN(p[1], a, TransformerWeights(Direct(w.W[1]), *(b[1] for b in w[1:])), RULE, 40, record=[40])
    batch = TRAIN(p, a, w, RULE, 40, record=[40])
    np.testing.assert_allclose(alone.W[0], batch.W[1, 0], rtol=1e-9, atol=1e-12)
    assert alone.weights.v.shape == (5,) and not whole.W.flags.writeable
    assert "accuracy" in repr(whole) and whole.accuracy.shape == (3, 3)
    np.testing.assert_allclose(whole.loss, np.logaddexp(0, -whole.margin).mean(-1), rtol=1e-12)


def test_only_what_is_trainable_moves_and_steps_have_their_length() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a = Architecture(layers=2, heads=2)
    w = TransformerWeights.random(p, a)
    for names in (("W",), "V", ("E", "v"), ("F",)):
        run = TRAIN(p, a, w, RULE, 1, trainable=names, record=[1])
        for name in ("W", "V", "E", "F", "v"):
            moved = np.asarray(getattr(run.weights, name)) - np.asarray(getattr(w, name))
            lengths = np.linalg.norm(moved, axis=(-1,) if name == "v" else (-2, -1))
            np.testing.assert_allclose(lengths, 0.1 if name in names else 0.0, rtol=1e-10)
    run = TRAIN(p, a, w, RULE, 1, trainable=("W", "v"), together=True, record=[1])
    total = ((run.weights.W - w.W) ** 2).sum((-4, -3, -2, -1)) + ((run.weights.v - w.v) ** 2).sum(-1)
    np.testing.assert_allclose(np.sqrt(total), 0.1, rtol=1e-10)


def test_factors_follow_the_chain_rule() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a = Architecture(layers=2, heads=2)
    w = TransformerWeights.random(p, a, factored=True)
    eta = 1e-3
    plain = sv.dynamics.gradient_descent(eta)
    run = TRAIN(p, a, w, plain, 1, record=[1])
    same = w._replace(attention=Direct(w.W))
    G = (same.W - TRAIN(p, a, same, plain, 1, record=[1]).W[:, 0]) / eta
    K, Q = w.attention
    np.testing.assert_allclose((K - run.weights.attention.K) / eta, G @ Q, atol=1e-11)
    np.testing.assert_allclose((Q - run.weights.attention.Q) / eta, np.swapaxes(G, -1, -2) @ K, atol=1e-11)
    np.testing.assert_allclose(run.W[:, 0], run.weights.W, rtol=1e-13)


def test_bad_input_is_named() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a, bare = Architecture(layers=2), Architecture(layers=2, mlp=False)
    w, plain = TransformerWeights.random(p, a), TransformerWeights.random(p, bare)
    with pytest.raises(DataError, match="trainable must name blocks out of W, V, E, F, v"):
        TRAIN(p, a, w, RULE, 1, trainable=("K",))
    with pytest.raises(DataError, match="trainable must name"):
        TRAIN(p, a, w, RULE, 1, trainable=())
    with pytest.raises(DataError, match="names E, but the architecture has no MLP"):
        TRAIN(p, bare, plain, RULE, 1, trainable=("W", "E"))
    with pytest.raises(DataError, match="rule must come from"):
        TRAIN(p, a, w, 0.1, 1)
    with pytest.raises(DataError, match="loss must be one of"):
        TRAIN(p, a, w, RULE, 1, loss="hinge")
    with pytest.raises(ShapeError, match="W must end in axes"):
        TRAIN(p, Architecture(layers=3), w, RULE, 1)
    with pytest.raises(SolverError, match="left the finite numbers by step"):
        TRAIN(p, a, w, sv.dynamics.gradient_descent(1e200), 20, trainable=("W", "V", "E", "F", "v"))


def test_odd_arguments_are_named():
    p = sv.data.random_problem(3, 4, 5)
    net = sv.attention.Architecture(layers=2, mlp=False)
    weights = sv.attention.TransformerWeights.random(p, net)
    rule = sv.dynamics.normalized(0.1)
    for bad in (None, 3, ()):
        with pytest.raises(DataError, match="trainable must name blocks out of W, V, E, F, v; got"):
            sv.dynamics.train_layers(p, net, weights, rule, 1, trainable=bad)
    with pytest.raises(DataError, match="together must be True or False, got 'yes'"):
        sv.dynamics.train_layers(p, net, weights, rule, 1, together="yes")
    seen = sv.attention.transformer(p, net, weights)
    with pytest.raises(DataError, match=r"transformed must come from .*transformer, got Problem"):
        sv.attention.positions_read(p, net)
    for bad in (-1.0, 1.0):
        with pytest.raises(DataError, match=r"threshold must lie in \[0, 1\), got"):
            sv.attention.positions_read(seen, net, bad)
    every = sv.attention.positions_read(seen, net)
    with pytest.raises(ShapeError, match=r"matters has shape \(2, 3, 5\), but must broadcast to \(3, 5\)"):
        sv.attention.layer_problem(p, net, weights, 0, 0, matters=every)
