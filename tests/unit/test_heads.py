"""Heads with parameters for every instance, their closed forms, and the loss of a probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import attention, data, dynamics
from svmlib.errors import DataError, ShapeError, SolverError

RNG = np.random.default_rng(0)
B, N, T, D, H = 7, 3, 4, 5, 6
P = data.random_problem(N, T, D, batch=B, seed=3)
HEADS = {
    "linear": attention.linear(RNG.normal(size=(B, D))),
    "quadratic": attention.quadratic(RNG.normal(size=(B, D)), RNG.uniform(0.1, 2.0, B)),
    "mlp": attention.mlp(RNG.normal(size=(B, D, H))),
}
W0 = RNG.normal(size=(B, D, D))


def with_head(head, p=P):
    return data.Problem(p.X, p.z, p.y, head=head, mask=p.mask)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_an_instance_of_a_batch_is_the_instance_alone(head):
    p = with_head(head)
    together = attention.gradient(p, attention.Direct(W0)).W
    for b in range(B):
        assert p[b].head.batch_shape == ()
        alone = attention.gradient(p[b], attention.Direct(W0[b])).W
        np.testing.assert_allclose(together[b], alone, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(attention.loss(p, W0)[b], attention.loss(p[b], W0[b]), rtol=1e-13)
    picked = with_head(head)[np.arange(B) % 2 == 1]
    np.testing.assert_allclose(attention.loss(picked, W0[1::2]), attention.loss(p, W0)[1::2], rtol=1e-13)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_closed_forms_are_what_autograd_finds(head):
    known = with_head(head)
    foreign = with_head(lambda u: head(u))  # no closed form: autograd
    for loss in ("logistic", "exponential", "linear"):
        got = attention.gradient(known, attention.Direct(W0), loss).W
        want = attention.gradient(foreign, attention.Direct(W0), loss).W
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-15)
    rule = dynamics.gradient_descent(0.5)  # normalised steps never settle at a finite minimum
    runs = [dynamics.train(q, attention.Direct.zeros(q), rule, 100).W for q in (known, foreign)]
    np.testing.assert_allclose(*runs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", HEADS)
def test_a_shared_head_is_the_same_head_for_all(name):
    v, V = RNG.normal(size=D), RNG.normal(size=(D, H))
    make = {
        "linear": attention.linear,
        "quadratic": lambda a: attention.quadratic(a, 0.4),
        "mlp": attention.mlp,
    }
    own = V if name == "mlp" else v
    shared, repeated = make[name](own), make[name](np.broadcast_to(own, (B, *own.shape)))
    got, want = (attention.gradient(with_head(h), attention.Direct(W0)).W for h in (shared, repeated))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
    assert with_head(shared).head is shared


def test_iterates_and_repeated_problems():
    p = with_head(HEADS["mlp"])
    several = np.stack([W0, 2 * W0], axis=1)
    got = attention.predictions(p, several)
    np.testing.assert_allclose(got[:, 1], attention.predictions(p, 2 * W0), rtol=1e-13)
    wide = p.expand(2)
    assert wide.head.batch_shape == (2, B)
    np.testing.assert_allclose(attention.loss(wide, np.stack([W0, 2 * W0])), attention.loss(p, several).T)
    flat = wide.flat()
    np.testing.assert_array_equal(flat.head.V[B], p.head.V[0])


def test_one_problem_with_many_heads():
    lam = np.array([0.0, 0.5, 3.0])
    p = data.Problem(P.X[0], P.z[0], np.ones(N), head=attention.quadratic(P.v[0], lam))
    assert p.batch_shape == (3,)
    straight = data.Problem(P.X[0], P.z[0], np.ones(N), P.v[0])
    np.testing.assert_allclose(attention.loss(p, W0[0])[0], attention.loss(straight, W0[0]))
    assert "batch (3,)" in repr(p.head)


def test_chunks_do_not_matter(monkeypatch):
    p = with_head(HEADS["mlp"])
    whole = dynamics.train(p, attention.Direct.zeros(p), dynamics.normalized(0.1), 50)
    monkeypatch.setattr(dynamics.training, "CPU_WORKSPACE", 200)
    pieces = dynamics.train(p, attention.Direct.zeros(p), dynamics.normalized(0.1), 50)
    np.testing.assert_allclose(whole.W, pieces.W, rtol=1e-11, atol=1e-13)


def test_a_path_takes_heads_of_every_instance():
    head = attention.quadratic(P.v[:3], [0.01, 0.02, 0.03])
    p = data.Problem(P.X[:3, :2], P.z[:3, :2], np.ones((3, 2)), head=head)
    tokens = np.stack([data.Problem(P.X[:3, :2], P.z[:3, :2], np.ones((3, 2)), P.v[:3]).optimal])[0]
    together = dynamics.regularization_path(p, [1.0, 5.0], tokens=tokens)
    for b in range(3):
        alone = dynamics.regularization_path(p[b], [1.0, 5.0], tokens=tokens[b])
        np.testing.assert_allclose(together.excess[b], alone.excess, rtol=1e-6, atol=1e-12)


def next_token(n=4, tokens=5, T=3, seed=0):
    rng = np.random.default_rng(seed)
    E = np.eye(tokens)
    ids = np.stack([rng.permutation(tokens)[:T] for _ in range(n)])
    hit = np.eye(T)[rng.integers(T, size=n)]
    return data.Problem(hit[..., None], E[ids[:, -1]], np.ones(n), [1.0], keys=E[ids]), hit


def test_the_log_loss_is_cross_entropy():
    p, hit = next_token()
    W = RNG.normal(size=(5, 5))
    want = -np.log((attention.probabilities(p, W) * hit).sum(-1)).mean()
    assert attention.loss(p, W, "log") == pytest.approx(want, rel=1e-13)
    leaf = torch.tensor(W, requires_grad=True)
    logits = torch.einsum("nte,eq,nq->nt", torch.tensor(p.keys), leaf, torch.tensor(p.z))
    label = torch.tensor(hit.argmax(-1))
    torch.nn.functional.cross_entropy(logits, label).backward()
    np.testing.assert_allclose(
        attention.gradient(p, attention.Direct(W), "log").W, leaf.grad.numpy(), rtol=1e-12, atol=1e-16
    )
    assert dynamics.infimum(p, "log") == 0.0
    big = 40.0 * W
    logs = np.log1p(-((1 - hit) * attention.probabilities(p, W)).sum(-1))
    assert dynamics.gap(p, W, "log") == pytest.approx(-logs.mean(), rel=1e-12)
    assert dynamics.gap(p, big, "log") >= 0


def test_the_log_loss_of_a_path_and_of_a_run():
    p, _ = next_token(n=2, seed=1)
    path = dynamics.regularization_path(p, [1.0, 10.0], loss="log")
    np.testing.assert_allclose(np.exp(path.log_gap), attention.loss(p, path.W, "log"), rtol=1e-8)
    run = dynamics.train(p, attention.Direct.zeros(p), dynamics.gradient_descent(0.5), 200, loss="log")
    assert (np.diff(run.loss) < 0).all()
    assert path.log_gap[1] < np.log(attention.loss(p, path.W[1] * 0.99, "log"))


def test_the_log_loss_needs_probabilities():
    for call in (
        lambda: attention.loss(P, W0, "log"),
        lambda: attention.gradient(P, attention.Direct(W0), "log"),
        lambda: dynamics.train(P, attention.Direct(W0), dynamics.normalized(0.1), 3, loss="log"),
        lambda: dynamics.infimum(P, "log"),
        lambda: dynamics.gap(P, W0, "log"),
        lambda: dynamics.regularization_path(P, [1.0], loss="log"),
    ):
        with pytest.raises(DataError, match=r'The loss "log" needs positive margins: .* smallest score is -'):
            call()
    with pytest.raises(DataError, match='The loss "log" is defined for positive margins only'):
        attention.smoothness(P, "log")
    negative = with_head(attention.quadratic(P.v, 5.0))
    with pytest.raises(SolverError, match=r'left the finite numbers .* loss "log" needs margins above 0'):
        dynamics.train(negative, attention.Direct.zeros(negative), dynamics.normalized(0.1), 3, loss="log")
    with pytest.raises(DataError, match='loss "log" needs positive margins, but the smallest here is -'):
        attention.loss(negative, W0, "log")


def test_heads_that_do_not_fit_a_problem():
    with pytest.raises(
        ShapeError, match="head reads outputs of width 3, but the tokens of X have width d = 5"
    ):
        with_head(attention.mlp(np.ones((3, 2))))
    with pytest.raises(ShapeError, match=r"axes do not fit: .* head has \(2,\)"):
        with_head(attention.linear(np.ones((2, D))))
    module = torch.nn.Sequential(torch.nn.Linear(D, 1), torch.nn.Flatten(-2)).double()
    module.width = 64  # a name that means nothing here
    assert attention.loss(with_head(module), W0).shape == (B,)


def test_gradients_that_cancel_between_sequences_leave_the_recorded_matrix_right():
    # Two sequences with one query pull at a and b with equal and opposite forces. The sum of their steps is
    # small, while the share of each sequence in it grows like one over the other pulls.
    keys = np.eye(3)[[[0, 1], [0, 1], [0, 2], [1, 2]]]
    hit = np.eye(2)[[0, 1, 0, 0]]
    p = data.Problem(hit[..., None], np.ones((4, 1)), np.ones(4), [1.0], keys=keys)
    column = np.array([[0.5], [-1.0], [0.2]])
    for weights in (attention.Direct(column), attention.Factored(np.eye(3), column.T)):
        run = dynamics.train(p, weights, dynamics.normalized(0.05), 3000, record=[2000, 3000], loss="log")
        assert np.abs(run.W[:, 0] - run.W[:, 1]).max() < 0.1
        np.testing.assert_allclose(attention.loss(p, run.W, "log"), run.loss, rtol=1e-9)


@pytest.mark.parametrize("c", [0.5, 5.0, 20.0, 30.0, 40.0, 700.0])
def test_the_gap_of_the_log_loss_where_the_label_has_next_to_no_attention(c):
    p = data.next_token_problem([[0, 1]], [1], np.eye(2), z=[[1.0]])
    W = np.array([[c], [0.0]])  # the label has probability 1 / (1 + e^c), and the infimum is 0
    want = np.logaddexp(0.0, c)
    assert dynamics.gap(p, W, "log") == pytest.approx(want, rel=1e-13)
    run = dynamics.train(p, attention.Direct(W), dynamics.normalized(0.1), 0, loss="log")
    assert run.gap[0] == pytest.approx(want, rel=1e-13)
    assert run.loss[0] == pytest.approx(want, rel=1e-13)


@pytest.mark.parametrize("name", HEADS)
def test_heads_called_by_hand(name):
    head = HEADS[name]
    u = torch.ones(B, N, D, dtype=torch.float64)
    assert head(u).shape == (B, N) and head(u[:1]).shape == (B, N)
    assert head(u.float()).dtype == torch.float32
    for bad, error in (
        (u.numpy(), DataError),
        (u.long(), DataError),
        (u[..., 1:], ShapeError),
        (u[:2], ShapeError),
    ):
        with pytest.raises(error, match="maps tensors of"):
            head(bad)


def test_heads_need_parameters():
    for make in (lambda: attention.linear([]), lambda: attention.mlp(np.ones((3, 0)))):
        with pytest.raises(ShapeError, match="at least one entry"):
            make()
    with pytest.raises(ShapeError, match=r"v must have at least one entry, got shape \(0,\)"):
        attention.quadratic([], 1.0)
    with pytest.raises(ShapeError, match=r"V must have at least 2 axes, \(\.\.\., d, h\)"):
        attention.mlp([1.0])
