"""Transformers: forward pass against loops, one-layer problems of their heads, and bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import svmlib as sv
from svmlib.attention import Architecture, Direct, Factored, TransformerWeights
from svmlib.errors import DataError, ShapeError

KINDS = [
    {"layers": 3, "heads": 2},
    {"layers": 2, "heads": 1, "residual": False},
    {"layers": 2, "heads": 3, "mlp": False, "causal": True},
    {"layers": 2, "heads": 2, "layer_norm": True, "causal": True},
]


def masked_problem() -> sv.data.Problem:
    raw = sv.data.random_problem(4, 5, 6, batch=2)
    mask = np.ones((4, 5), dtype=bool)
    mask[0, 3:] = mask[1, 0] = mask[2, 2] = False
    return sv.data.Problem(raw.X, raw.z, raw.y, raw.v, mask=mask)


def normed(a: Architecture, x: np.ndarray) -> np.ndarray:
    if not a.layer_norm:
        return x
    centred = x - x.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-12)


def slow(p: sv.data.Problem, a: Architecture, w: TransformerWeights, b: int, i: int) -> tuple[float, list]:
    """Prediction and attention of one sequence, stream by stream."""
    streams = [*p.X[b, i], p.z[b, i]]
    maps = []
    for j in range(a.layers):
        seen = [normed(a, x) for x in streams]
        maps.append(np.zeros((a.heads, p.T + 1, p.T)))
        after = []
        for k, x in enumerate(streams):
            shown = [t for t in range(p.T) if p.visible[b, i, t] and (k == p.T or not a.causal or t <= k)]
            if k < p.T and not p.visible[b, i, k]:
                shown = sorted({*shown, k})
            out = x.copy() if a.residual else np.zeros(p.d)
            for h in range(a.heads):
                logit = np.array([seen[t] @ w.W[b, j, h] @ seen[k] for t in shown])
                s = np.exp(logit - logit.max())
                maps[j][h, k, shown] = s / s.sum()
                out = out + w.V[b, j, h] @ sum(q * seen[t] for q, t in zip(s / s.sum(), shown, strict=True))
            if a.mlp:
                inner = w.F[b, j] @ np.maximum(0.0, w.E[b, j] @ normed(a, out))
                out = out + inner if a.residual else inner
            after.append(out)
        streams = after
    return float(w.v[b] @ normed(a, streams[-1])), maps


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(k))
def test_forward_pass_agrees_with_loops(kind: dict) -> None:
    p, a = masked_problem(), Architecture(**kind)
    w = TransformerWeights.random(p, a, scale=2.0)
    out = sv.attention.transformer(p, a, w)
    for b, i in itertools.product(range(2), range(4)):
        f, maps = slow(p, a, w, b, i)
        assert out.predictions[b, i] == pytest.approx(f, rel=1e-12, abs=1e-13)
        np.testing.assert_allclose(out.probabilities[b, :, :, i], maps, atol=1e-13)
    assert out.inputs.shape == (2, a.layers, 4, 6, 6)
    assert "3 layers" in repr(out) or a.layers == 2


def test_one_layer_is_the_layer_of_the_package() -> None:
    p = sv.data.random_problem(4, 5, 6, batch=3)
    W = Direct.random(p).W
    a = Architecture(layers=1, residual=False, mlp=False)
    w = TransformerWeights(Direct(W[:, None, None]), np.eye(6)[None, None], None, None, p.v)
    out = sv.attention.transformer(p, a, w)
    np.testing.assert_allclose(out.predictions, sv.attention.predictions(p, W), rtol=1e-13, atol=1e-14)
    own = sv.attention.layer_problem(p, a, w, 0, 0, loss="linear")
    np.testing.assert_allclose(own.scores, p.scores, rtol=1e-12)
    np.testing.assert_array_equal(own.keys, p.X)
    np.testing.assert_array_equal(own.z, p.z)


def test_the_readout_stream_is_a_copy_of_a_last_token() -> None:
    raw = sv.data.random_problem(3, 4, 5)
    p = sv.data.Problem(raw.X, raw.X[:, -1], raw.y, raw.v)
    for kind in KINDS:
        a = Architecture(**kind)
        out = sv.attention.transformer(p, a, TransformerWeights.random(p, a))
        np.testing.assert_allclose(out.inputs[..., -1, :], out.inputs[..., -2, :], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_head_gradient_is_the_layer_gradient(loss: str) -> None:
    p, a = masked_problem(), Architecture(layers=3, heads=2, causal=True)
    w = TransformerWeights.random(p, a)
    step = 1e-3
    plain = sv.dynamics.gradient_descent(step)
    moved = sv.dynamics.train_layers(p, a, w, plain, 1, loss=loss, record=[1])
    for j, h in itertools.product(range(3), range(2)):
        own = sv.attention.layer_problem(p, a, w, j, h, loss=loss)
        G = sv.attention.gradient(own, Direct(w.W[:, j, h]), loss="linear").W
        np.testing.assert_allclose((w.W[:, j, h] - moved.W[:, 0, j, h]) / step, G, atol=1e-12)


def test_positions_read_and_masks_of_the_layer_problem() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a = Architecture(layers=3, heads=2)
    w = TransformerWeights.random(p, a)
    sharp = w._replace(attention=Direct(200.0 * w.W))
    out = sv.attention.transformer(p, a, sharp)
    read = sv.attention.positions_read(out, a)
    assert read[:, 2].sum() == 2 * 3 and read[:, 2, :, -1].all()
    assert read[:, :, :, -1].all() and (read[:, 0] >= read[:, 1]).all() and not read[:, 0].all()
    attended = (out.probabilities[:, 2, :, :, -1] > 1e-3).any(1)
    np.testing.assert_array_equal(read[:, 1, :, :-1], attended)
    assert not sv.attention.positions_read(out, Architecture(3, 2, residual=False))[:, 0, :, -1].any()
    own = sv.attention.layer_problem(p, a, sharp, 0, 1, matters=read[:, 0])
    np.testing.assert_array_equal(own.visible.sum(-1) == 4, read[:, 0].reshape(2, -1))
    chosen = sv.selection.selected_tokens(own, sharp.W[:, 0, 1])
    np.testing.assert_array_equal(chosen, out.probabilities[:, 0, 1].argmax(-1).reshape(2, -1))
    # what is not read does not matter: other tokens there change nothing that can be seen
    unread = own.visible.sum(-1) == 1
    whole = sv.attention.layer_problem(p, a, sharp, 0, 1)
    assert np.abs(whole.scores[unread]).max() < 1e-2 * np.abs(whole.scores).max()


def test_local_scores_that_underflow_keep_their_ratios() -> None:
    p = sv.data.random_problem(3, 4, 5)
    a = Architecture(layers=2, mlp=False, residual=False)
    w = TransformerWeights.random(p, a)
    near = sv.attention.layer_problem(p, a, w, 0, 0)
    tiny = sv.attention.layer_problem(p, a, w._replace(v=1e-70 * np.asarray(w.v)), 0, 0, loss="linear")
    exact = sv.attention.layer_problem(p, a, w, 0, 0, loss="linear")
    ratio = tiny.scores / exact.scores
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-10)
    assert 1e-3 < np.abs(tiny.scores).max() <= 1.0
    assert near.optimal.tolist() == exact.optimal.tolist()


def test_random_weights_do_not_depend_on_the_batch() -> None:
    a = Architecture(layers=2, heads=2)
    whole = TransformerWeights.random(sv.data.random_problem(3, 4, 5, batch=4), a, seed=7)
    one = TransformerWeights.random(sv.data.random_problem(3, 4, 5, seed=2), a, seed=9)
    for big, small in zip((whole.W, *whole[1:4]), (one.W, *one[1:4]), strict=True):
        np.testing.assert_array_equal(big[2], small)
    headless = sv.data.Problem(np.ones((2, 3, 4)), np.ones((2, 4)), [1, -1])
    assert np.linalg.norm(TransformerWeights.random(headless, a).v) == pytest.approx(1.0)
    both = TransformerWeights.random(headless, a, factored=True)
    assert both.W.shape == (2, 2, 4, 4) and isinstance(both.attention, Factored)


def test_bad_input_is_named() -> None:
    p = sv.data.random_problem(3, 4, 5, batch=2)
    a = Architecture(layers=2, heads=2)
    w = TransformerWeights.random(p, a)
    run = sv.attention.transformer
    with pytest.raises(ShapeError, match="W must end in axes of sizes"):
        run(p, Architecture(layers=3, heads=2), w)
    with pytest.raises(ShapeError, match="has MLPs, but E or F is None"):
        run(p, a, w._replace(E=None))
    with pytest.raises(ShapeError, match="weights have an MLP, but the architecture has none"):
        run(p, Architecture(2, 2, mlp=False), w)
    with pytest.raises(ShapeError, match="one width h"):
        run(p, a, w._replace(E=np.ones((2, 3, 5))))
    with pytest.raises(ShapeError, match="batch axes of the problem"):
        run(p, a, w._replace(V=np.ones((3, 2, 2, 5, 5))))
    with pytest.raises(ShapeError, match="one width m"):
        run(p, a, w._replace(attention=Factored(np.ones((2, 2, 5, 3)), np.ones((2, 2, 5, 4)))))
    with pytest.raises(DataError, match="must be finite"):
        run(p, a, w._replace(v=np.full(5, np.nan)))
    with pytest.raises(DataError, match="attention must be Direct"):
        run(p, a, w._replace(attention=w.W))
    with pytest.raises(DataError, match="weights must be"):
        run(p, a, w.attention)
    with pytest.raises(DataError, match="architecture must be"):
        run(p, "two layers", w)
    with pytest.raises(DataError, match="Streams overflow"):
        run(p, a, w._replace(V=1e200 * np.asarray(w.V)))
    with pytest.raises(ShapeError, match="needs their width d = 5"):
        run(sv.data.Problem(p.X, np.ones((3, 2)), p.y), a, w)
    with pytest.raises(DataError, match="keys of its own"):
        run(sv.data.Problem(p.X, p.z, p.y, keys=p.X + 1), a, w)
    with pytest.raises(ShapeError, match=r"head must lie in 0\.\.1, got 2"):
        sv.attention.layer_problem(p, a, w, 0, 2)
    with pytest.raises(DataError, match="read-out stream alone"):
        sv.attention.layer_problem(p, a, w, 1, 0, matters=np.ones((3, 5)))
    with pytest.raises(DataError, match="matters must be boolean"):
        sv.attention.layer_problem(p, a, w, 0, 0, matters=np.full((3, 5), 0.5))
    with pytest.raises(ShapeError, match="but architecture 3 of"):
        sv.attention.positions_read(run(p, a, w), Architecture(3, 2))
    with pytest.raises(DataError, match="mlp must be True or False"):
        Architecture(mlp=3)
    with pytest.raises(DataError, match="activation must be one of"):
        Architecture(activation="tanh")
    with pytest.raises(ShapeError, match="heads must be a positive integer"):
        Architecture(heads=0)
