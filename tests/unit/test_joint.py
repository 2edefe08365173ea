"""Joint training of head and attention: against extended precision, autograd, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import svmlib as sv
from svmlib.checks.head_query_textbook import descend_jointly
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError
from svmlib.experiments import three_sequences

Direct, Factored = sv.attention.Direct, sv.attention.Factored
RULE = sv.dynamics.normalized(0.1)
JOINT = sv.dynamics.train_jointly


def autograd(p: sv.data.Problem, v: np.ndarray, blocks: tuple, loss: str = "logistic") -> list[np.ndarray]:
    """Gradients of the joint loss in the head and in the blocks of the weights."""
    X, z, y = (torch.from_numpy(np.array(a)) for a in (p.X, p.z, p.y))
    keys = torch.from_numpy(np.array(p.keys))
    free = [torch.from_numpy(np.array(a, dtype=float)).requires_grad_(True) for a in (v, *blocks)]
    W = free[1] if len(free) == 2 else free[1] @ free[2].T
    logits = torch.einsum("nte,eq,nq->nt", keys, W, z)
    logits = logits.masked_fill(torch.from_numpy(~p.visible), -torch.inf)
    f = y * (torch.einsum("nt,ntd->nd", torch.softmax(logits, -1), X) @ free[0])
    value = {"logistic": torch.nn.functional.softplus(-f), "exponential": torch.exp(-f), "linear": -f}[loss]
    return [g.numpy() for g in torch.autograd.grad(value.mean(), free)]


@pytest.mark.parametrize(
    ("v", "p", "digits"),
    [([-1.0, 0.0], [0.0, -1.0], 60), ([0.0, 900.0], [60.0, 20.0], 250), ([-0.5, 300.0], [40.0, -1.0], 160)],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_training_agrees_with_extended_precision(
    v: list[float], p: list[float], digits: int, epsilon: float
) -> None:
    problem = three_sequences(epsilon)
    heads, queries = descend_jointly(problem, v, p, 60, precision=digits)
    run = JOINT(problem, v, Direct(np.array(p)[:, None]), RULE, 60, record=range(61))
    assert np.abs(run.v - heads).max() < 1e-11
    assert np.abs(run.W[..., 0] - queries).max() < 1e-11
    if v[1] == 900.0:  # the loss itself is below the smallest number
        assert run.loss[-1] == 0.0 and -920 < run.log_loss[-1] < -880


def test_a_textbook_run_in_float64_is_not_right_there() -> None:
    problem = three_sequences(0.5)
    heads, _ = descend_jointly(problem, [0.0, 900.0], [60.0, 20.0], 1)
    assert not np.isfinite(heads[-1]).all()


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
@pytest.mark.parametrize("factored", [False, True])
def test_a_plain_step_is_the_gradient(loss: str, factored: bool) -> None:
    rng = np.random.default_rng(3)
    mask = np.ones((3, 4), dtype=bool)
    mask[1, 3] = mask[2, 0] = False
    p = sv.data.Problem(
        rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 2)), [1, -1, 1], mask=mask,
        keys=rng.normal(size=(3, 4, 3)),
    )  # fmt: skip
    blocks = (rng.normal(size=(3, 2)), rng.normal(size=(2, 2))) if factored else (rng.normal(size=(3, 2)),)
    weights = Factored(*blocks) if factored else Direct(*blocks)
    v = rng.normal(size=5)
    rule, head = sv.dynamics.gradient_descent(0.5), sv.dynamics.gradient_descent(0.25)
    run = JOINT(p, v, weights, rule, 1, head_rule=head, loss=loss)
    wanted = autograd(p, v, blocks, loss)
    got = [(v - run.head) / 0.25, *((b - w) / 0.5 for b, w in zip(blocks, run.weights, strict=True))]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert np.isnan(run.log_loss).all() if loss == "linear" else np.allclose(np.exp(run.log_loss), run.loss)


def test_normalised_steps_separately_and_together() -> None:
    p = three_sequences(0.2)
    v, W = np.array([0.3, 0.4]), np.array([[0.5], [-0.2]])
    grad_v, grad_W = autograd(p, v, (W,))
    apart = JOINT(p, v, Direct(W), RULE, 1)
    np.testing.assert_allclose(v - apart.head, 0.1 * grad_v / np.linalg.norm(grad_v), rtol=1e-12)
    np.testing.assert_allclose(W - apart.weights.W, 0.1 * grad_W / np.linalg.norm(grad_W), rtol=1e-12)
    whole = np.hypot(np.linalg.norm(grad_v), np.linalg.norm(grad_W))
    joint = JOINT(p, v, Direct(W), RULE, 1, together=True)
    np.testing.assert_allclose(v - joint.head, 0.1 * grad_v / whole, rtol=1e-12)
    np.testing.assert_allclose(W - joint.weights.W, 0.1 * grad_W / whole, rtol=1e-12)
    plain = sv.dynamics.gradient_descent(0.3)
    one, two = (JOINT(p, v, Direct(W), plain, 3, together=t) for t in (False, True))
    np.testing.assert_allclose(one.head, two.head, rtol=1e-14)
    np.testing.assert_allclose(one.weights.W, two.weights.W, rtol=1e-14)


def test_factors_step_together_with_the_head() -> None:
    rng = np.random.default_rng(0)
    p = sv.data.random_problem(3, 4, 5, seed=1)
    v, K, Q = rng.normal(size=5), rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    grads = autograd(p, v, (K, Q))
    whole = np.sqrt(sum((g**2).sum() for g in grads))
    run = JOINT(p, v, Factored(K, Q), RULE, 1, together=True)
    for before, after, g in zip((v, K, Q), (run.head, *run.weights), grads, strict=True):
        np.testing.assert_allclose(before - after, 0.1 * g / whole, rtol=1e-11, atol=1e-15)


def test_a_fixed_head_is_the_limit_of_a_slow_one() -> None:
    p = sv.data.random_problem(3, 4, 5, seed=2)
    start = Direct.random(p)
    fixed = sv.dynamics.train(p, start, RULE, 50)
    slow = JOINT(p, p.v, start, RULE, 50, head_rule=sv.dynamics.normalized(1e-14))
    np.testing.assert_allclose(slow.W, fixed.W, atol=1e-10)


def test_a_batch_is_its_instances_and_a_run_goes_on() -> None:
    p = three_sequences([[0.0, 0.1, 0.3]], [[1.0], [2.0]])
    v = np.random.default_rng(0).normal(size=(2, 3, 2))
    run = JOINT(p, v, Direct([[0.0], [-1.0]]), RULE, 40, record=[0, 20, 40])
    assert run.v.shape == (2, 3, 3, 2) and run.W.shape == (2, 3, 3, 2, 1) and run.margin.shape == (2, 3, 3, 3)
    one = JOINT(three_sequences(0.3, 2.0), v[1, 2], Direct([[0.0], [-1.0]]), RULE, 40, record=[0, 20, 40])
    np.testing.assert_allclose(run.v[1, 2], one.v, atol=1e-13)
    np.testing.assert_allclose(run.label_margin[1, 2], one.label_margin, atol=1e-13)
    half = JOINT(p, v, Direct([[0.0], [-1.0]]), RULE, 20)
    rest = JOINT(p, half.head, half.weights, RULE, 20)
    np.testing.assert_allclose(rest.head, run.head, atol=1e-12)
    np.testing.assert_allclose(rest.weights.W, run.weights.W, atol=1e-12)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    p = sv.data.random_problem(3, 4, 5, batch=7)
    whole = JOINT(p, np.ones(5), Direct.zeros(p), RULE, 10)
    monkeypatch.setattr("svmlib.dynamics.training.CPU_WORKSPACE", 200)
    pieces = JOINT(p, np.ones(5), Direct.zeros(p), RULE, 10)
    np.testing.assert_allclose(pieces.W, whole.W, atol=1e-14)


def test_values_scaled_are_a_head_that_moves_further() -> None:
    start = Direct([[0.0], [-1.0]])
    fast = JOINT(three_sequences(0.2), [-1, 0], start, RULE, 100, head_rule=sv.dynamics.normalized(0.3))
    scaled = JOINT(three_sequences(0.2, 3.0), [-1 / 3, 0], start, RULE, 100)
    np.testing.assert_allclose(3.0 * scaled.v, fast.v, atol=1e-10)
    np.testing.assert_allclose(scaled.W, fast.W, atol=1e-10)


def test_tensors_float32_and_integers() -> None:
    p = sv.data.Problem([[[0, 1], [1, 0]]], [[1]], [1], keys=[[[0, 1], [1, 0]]])
    runs = [
        JOINT(p, v, Direct(W), RULE, 20)
        for v, W in (
            ([1, 0], [[0], [0]]),
            (torch.tensor([1.0, 0.0]), torch.zeros(2, 1)),
            (np.array([1, 0], dtype=np.float32), np.zeros((2, 1), dtype=np.float32)),
        )
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.W, runs[0].W)
    with pytest.raises(ValueError, match="read-only"):
        runs[0].v[0] = 1.0


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"v": [1.0]}, ShapeError, r"v must end in axes of sizes \(2,\)"),
        ({"v": np.ones((4, 2))}, ShapeError, "batch axes"),
        ({"v": [np.nan, 1.0]}, DataError, "finite"),
        ({"v": None}, DataError, "v must be an array"),
        ({"weights": Direct(np.ones((3, 1)))}, ShapeError, "W must end"),
        ({"weights": np.ones((2, 1))}, DataError, "Direct"),
        ({"rule": 0.1}, DataError, "rule must come from"),
        ({"head_rule": 0.1}, DataError, "head_rule must come from"),
        ({"head_rule": RULE, "together": True}, DataError, "leave head_rule out"),
        ({"loss": "hinge"}, DataError, "loss must be one of"),
        ({"steps": -1}, ShapeError, "steps"),
        ({"record": [20]}, DataError, "record must lie"),
        ({"problem": "p"}, DataError, "Problem"),
        ({"device": "abacus"}, DataError, "device"),
        (
            {"loss": "exponential", "v": [0.0, -8000.0], "rule": sv.dynamics.gradient_descent(1.0)},
            SolverError,
            "finite",
        ),
    ],
)
def test_bad_input_is_named(change: dict, error: type, text: str) -> None:
    given = {
        "problem": three_sequences(0.0),
        "v": [1.0, 0.0],
        "weights": Direct([[0.0], [-1.0]]),
        "rule": RULE,
        "steps": 10,
    }
    given |= change
    args = [given.pop(name) for name in ("problem", "v", "weights", "rule", "steps")]
    with pytest.raises(error, match=text):
        JOINT(*args, **given)


def test_an_empty_batch_is_refused() -> None:
    p = three_sequences([0.0])[np.zeros(1, dtype=bool)]
    with pytest.raises(ShapeError, match="empty"):
        JOINT(p, [1.0, 0.0], Direct([[0.0], [1.0]]), RULE, 3)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_huge_and_tiny_tokens(scale: float) -> None:
    q = three_sequences(0.1)
    p = sv.data.Problem(scale * q.X, q.z, q.y, keys=q.keys)
    run = JOINT(p, [-1.0, 0.0], Direct([[0.0], [-1.0]]), RULE, 300)
    assert np.isfinite(run.v).all() and np.isfinite(run.W).all()
    assert "JointRun(300 steps" in repr(run)


def test_no_label_margin_of_a_zero_head() -> None:
    run = JOINT(three_sequences(0.0), [0.0, 0.0], Direct([[0.0], [-1.0]]), RULE, 5, record=[0, 5])
    assert np.isnan(run.label_margin[0]) and np.isfinite(run.label_margin[1])


# ---- the limit and the path ----


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 3.0, np.inf])
def test_limit_of_three_sequences(epsilon: float, ratio: float) -> None:
    from svmlib.checks.head_query_path import switch

    limit = sv.dynamics.joint_limit(three_sequences(epsilon), ratio, [1, 1, 1])
    angle = np.degrees(np.arctan2(limit.W[1, 0], limit.W[0, 0]))
    assert abs(angle - float(switch(epsilon, ratio))) < 1e-7
    np.testing.assert_allclose(limit.v, [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(limit.slack, [0.0, 0.0, epsilon], atol=1e-9)
    assert abs(np.linalg.norm(limit.W) - 1) < 1e-12
    assert "JointLimit(ratio" in repr(limit)


@pytest.mark.parametrize("epsilon", [1e-6, 5e-4, 2e-3])
def test_a_small_slack_counts_at_a_large_ratio(epsilon: float) -> None:
    from svmlib.checks.head_query_path import switch

    for worth in (0.3, 0.499, 0.6):
        limit = sv.dynamics.joint_limit(three_sequences(epsilon), worth / epsilon, [1, 1, 1])
        angle = np.degrees(np.arctan2(limit.W[1, 0], limit.W[0, 0]))
        assert abs(angle - float(switch(epsilon, worth / epsilon))) < 1e-6
        assert limit.threshold == pytest.approx(0.5 / epsilon, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_limit_does_not_know_the_units(scale: float) -> None:
    q = three_sequences(0.25)
    one = sv.dynamics.joint_limit(q, 1.0, [1, 1, 1])
    keys = sv.data.Problem(q.X, q.z, q.y, keys=scale * q.keys)
    values = sv.data.Problem(scale * q.X, q.z, q.y, keys=q.keys)
    for p, ratio in ((keys, scale), (values, 1 / scale)):
        np.testing.assert_allclose(sv.dynamics.joint_limit(p, ratio, [1, 1, 1]).W, one.W, atol=1e-12)


def test_support_sequences_without_a_second_token() -> None:
    q = three_sequences(0.5)
    X = np.concatenate([q.X, q.X[2:]])
    X[3, 1, 1] += 1.0  # slack 1.5
    keys = np.array(X)
    keys[3, 1] = [1.0, -0.5]
    mask = np.array([[False, True], [False, True], [True, True], [True, True]])
    p = sv.data.Problem(X, np.ones((4, 1)), [1, -1, 1, 1], keys=keys, mask=mask)
    tokens = [1, 1, 1, 1]
    angles = np.linspace(-np.pi, np.pi, 400001)
    two = np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ keys[2:, 1].T
    for c in (0.0, 0.3, 1.0, 50.0):
        limit = sv.dynamics.joint_limit(p, c, tokens)
        assert limit.threshold == np.inf
        joint = np.where((two >= 0).all(-1), (two + c * limit.slack[2:]).min(-1), -np.inf)
        best = angles[joint.argmax()]
        assert limit.margin == pytest.approx(joint.max(), abs=2e-5)  # a grid of directions
        np.testing.assert_allclose(limit.W[:, 0], [np.cos(best), np.sin(best)], atol=5e-5)
    with pytest.raises(DataError, match="take a finite ratio"):
        sv.dynamics.joint_limit(p, np.inf, tokens)


def test_limit_is_the_best_of_its_neighbours() -> None:
    rng = np.random.default_rng(0)
    p = sv.data.random_problem(4, 3, 5, seed=9)
    p = sv.data.Problem(p.X, rng.normal(size=(4, 2)), p.y, p.v, keys=rng.normal(size=(4, 3, 6)))
    limit = sv.dynamics.joint_limit(p, 0.7)
    assert limit.slack.max() > 0 and limit.threshold > 0.7

    def margin(W: np.ndarray) -> float:
        m = sv.compare.margins(W / np.linalg.norm(W), p.keys, p.z, limit.tokens).min(-1)
        return float((m + 0.7 * limit.slack).min()) if m.min() >= 0 else -np.inf

    assert abs(margin(limit.W) - limit.margin) < 1e-9
    for size in (1e-1, 1e-2, 1e-3):
        nearby = [margin(limit.W + size * rng.normal(size=limit.W.shape)) for _ in range(200)]
        assert max(nearby) < limit.margin


def test_limit_with_a_mask_and_bad_input() -> None:
    q = three_sequences(0.2)
    X = np.concatenate([q.X, np.full((3, 1, 2), 9.0)], axis=1)
    masked = sv.data.Problem(X, q.z, q.y, keys=X, mask=[[True, True, False]] * 3)
    a, b = (sv.dynamics.joint_limit(p, 1.0, [1, 1, 1]) for p in (q, masked))
    np.testing.assert_allclose(a.W, b.W, atol=1e-12)
    for ratio in (-1.0, np.nan):
        with pytest.raises(DataError, match="ratio must be"):
            sv.dynamics.joint_limit(q, ratio, [1, 1, 1])
    with pytest.raises(ShapeError, match="one problem"):
        sv.dynamics.joint_limit(three_sequences([0.0, 0.1]), 1.0, [1, 1, 1])
    with pytest.raises(InfeasibleError, match="head"):
        sv.dynamics.joint_limit(q, 1.0, [0, 0, 0])
    alone = sv.data.Problem(q.X[:, 1:], q.z, q.y)
    with pytest.raises(DataError, match="nothing to separate"):
        sv.dynamics.joint_limit(
            sv.data.Problem(alone.X, np.ones((3, 1)), q.y, keys=q.keys[:, 1:]), 1.0, [0] * 3
        )


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_path_minimises_the_loss_over_both_balls(loss: str) -> None:
    p = three_sequences(0.25)
    path = sv.dynamics.joint_path(p, 1.5, [2.0, 4.0], [1, 1, 1], loss=loss)
    assert path.residual.max() < 1e-6 and "2 radii" in repr(path)
    rng = np.random.default_rng(1)

    def value(v: np.ndarray, W: np.ndarray) -> float:
        own = sv.data.Problem(p.X, p.z, p.y, v, keys=p.keys)
        return float(sv.attention.loss(own, W, loss))

    for R, v, W in zip(path.radii, path.v, path.W, strict=True):
        np.testing.assert_allclose([np.linalg.norm(v), np.linalg.norm(W)], [1.5 * R, R], rtol=1e-12)
        for size in (1.0, 0.1, 0.01):
            for _ in range(100):
                a, b = v + size * rng.normal(size=2), W + size * rng.normal(size=(2, 1))
                a *= min(1.0, 1.5 * R / np.linalg.norm(a))
                b *= min(1.0, R / np.linalg.norm(b))
                assert value(a, b) >= value(v, W) - 1e-13


def test_path_far_out_and_bad_input() -> None:
    p = three_sequences(0.25)
    limit = sv.dynamics.joint_limit(p, 10.0, [1, 1, 1])
    path = sv.dynamics.joint_path(p, 10.0, [200.0], [1, 1, 1], starts=1)  # a loss of e^-2000
    assert sv.compare.angle(path.W, limit.W)[0] < 1e-3 and np.isfinite(path.log_excess).all()
    moving = sv.dynamics.joint_path(p, [2.0, 4.0], [10.0, 20.0], [1, 1, 1], starts=1)
    np.testing.assert_allclose(np.linalg.norm(moving.v, axis=-1), [20.0, 80.0], rtol=1e-12)
    for change, text in (
        ({"ratio": 0.0}, "ratio must be > 0"),
        ({"radii": [2.0, 1.0]}, "increasing"),
        ({"radii": []}, "radii"),
        ({"loss": "linear"}, "no label margin"),
        ({"loss": "x"}, "loss must be one of"),
        ({"starts": -1}, "starts must be"),
        ({"starts": 1.5}, "starts must be"),
    ):
        given: dict = {"ratio": 1.0, "radii": [1.0], "tokens": [1, 1, 1]} | change
        with pytest.raises(DataError, match=text):
            sv.dynamics.joint_path(p, **given)
    with pytest.raises(ShapeError, match="one for each of 1 radii"):
        sv.dynamics.joint_path(p, [1.0, 2.0], [1.0], [1, 1, 1])
    alone = sv.data.Problem(p.X[:, 1:], p.z, p.y, keys=p.keys[:, 1:])
    with pytest.raises(DataError, match="nothing to separate"):
        sv.dynamics.joint_path(alone, 1.0, [1.0], [0, 0, 0])
    with pytest.raises(ShapeError, match="one problem"):
        sv.dynamics.joint_path(three_sequences([0.0, 0.1]), 1.0, [1.0], [1, 1, 1])
    with pytest.raises(InfeasibleError):
        sv.dynamics.joint_path(p, 1.0, [1.0], [0, 0, 0])


# ---- the experiment's own pieces ----


def test_pieces_of_the_experiment_name_bad_input() -> None:
    from svmlib.experiments.joint import compared

    with pytest.raises(ShapeError, match="broadcast together"):
        three_sequences([0.1, 0.2], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="ratio must be positive"):
        three_sequences(0.1, [1.0, 0.0])
    p = three_sequences(0.2)
    run = JOINT(p, [-1.0, 0.0], Direct([[0.0], [-1.0]]), RULE, 300)
    with pytest.raises(ShapeError, match="a single problem a batch"):
        compared(p, run)
    one = p.expand(1)
    found = compared(one, JOINT(one, [-1.0, 0.0], Direct([[0.0], [-1.0]]), RULE, 300, record=[300]))
    assert found["joint"].shape == (1, 1) and found["joint"][0, 0] > 0.999 and found["single"].all()
