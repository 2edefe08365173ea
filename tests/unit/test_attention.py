from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import attention, data
from svmlib.errors import DataError, ShapeError

RNG = np.random.default_rng(0)
P = data.random_problem(4, 5, 6, batch=3)
V = RNG.normal(size=(6, 7))
HEADS = {"linear": None, "quadratic": attention.quadratic(P.v[0], 0.3), "mlp": attention.mlp(V)}


def _reference(problem, head, matrix, loss):
    X, z, y = (torch.tensor(a) for a in (problem.X, problem.z, problem.y))
    a = torch.einsum("...ntd,...de,...ne->...nt", X, matrix, z)
    u = torch.einsum("...nt,...ntd->...nd", a.softmax(-1), X)
    f = y * ((u * torch.tensor(problem.v)[..., None, :]).sum(-1) if head is None else head(u))
    value = {"logistic": torch.nn.functional.softplus(-f), "exponential": torch.exp(-f), "linear": -f}[loss]
    return value.mean(-1)


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
@pytest.mark.parametrize("head", HEADS)
def test_gradients_equal_autograd(head, loss):
    problem = P if HEADS[head] is None else data.Problem(P.X, P.z, P.y, head=HEADS[head])
    K, Q = (torch.tensor(RNG.normal(size=(3, 6, 3)), requires_grad=True) for _ in range(2))
    value = _reference(P, HEADS[head], K @ Q.mT, loss)
    value.sum().backward()
    got = attention.gradient(problem, attention.Factored(K, Q), loss)
    np.testing.assert_allclose(got.K, K.grad, atol=2e-14)
    np.testing.assert_allclose(got.Q, Q.grad, atol=2e-14)
    W = (K @ Q.mT).detach().requires_grad_(True)
    _reference(P, HEADS[head], W, loss).sum().backward()
    np.testing.assert_allclose(attention.gradient(problem, attention.Direct(W), loss).W, W.grad, atol=2e-14)
    np.testing.assert_allclose(attention.loss(problem, W, loss), value.detach(), rtol=1e-13)


def test_gradient_agrees_with_finite_differences():
    problem, W = P[0], RNG.normal(size=(6, 6))
    G = attention.gradient(problem, attention.Direct(W)).W
    D, h = RNG.normal(size=(6, 6)), 1e-5
    slope = (attention.loss(problem, W + h * D) - attention.loss(problem, W - h * D)) / (2 * h)
    assert float(slope) == pytest.approx(float((G * D).sum()), rel=1e-8)


def test_gradient_after_saturation_keeps_its_direction():
    # one sequence, two tokens: the gradient is a positive multiple of -(x_0 - x_1) z' whatever the margin
    p = data.Problem([[[1.0, 0.0], [0.0, 1.0]]], [[1.0, 0.0]], [1], [1.0, 0.0])
    for scale in (1.0, 40.0, 300.0):
        G = attention.gradient(p, attention.Direct(scale * np.eye(2))).W
        np.testing.assert_allclose(G / G[0, 0], [[1.0, 0.0], [-1.0, 0.0]], atol=1e-15)
        assert G[0, 0] < 0


def test_masked_tokens_have_no_influence():
    mask = np.ones((4, 5), dtype=bool)
    mask[0, 3:] = False
    X, garbage = P[0].X.copy(), P[0].X.copy()
    garbage[0, 3:] = 7.0
    a, b = (data.Problem(x, P[0].z, P[0].y, P[0].v, mask=mask) for x in (X, garbage))
    short = data.Problem(X[:1, :3], P[0].z[:1], P[0].y[:1], P[0].v)
    W = attention.Direct(RNG.normal(size=(6, 6)))
    np.testing.assert_array_equal(attention.gradient(a, W).W, attention.gradient(b, W).W)
    np.testing.assert_allclose(
        attention.probabilities(a, W)[0, :3], attention.probabilities(short, W)[0], rtol=1e-13
    )
    assert not attention.probabilities(a, W)[0, 3:].any()


def test_shapes_with_batch_and_iterates():
    W = RNG.normal(size=(3, 9, 6, 6))
    assert attention.logits(P, W).shape == (3, 9, 4, 5)
    assert attention.outputs(P, W).shape == (3, 9, 4, 6)
    assert attention.predictions(P, W).shape == (3, 9, 4)
    assert attention.loss(P, W).shape == (3, 9)
    one = attention.loss(P[1], W[1, 2])
    np.testing.assert_allclose(attention.loss(P, W)[1, 2], one, rtol=1e-13)
    np.testing.assert_allclose(attention.probabilities(P, W).sum(-1), 1.0, rtol=1e-13)


def test_softmax_jacobian_is_the_derivative():
    a = torch.tensor(RNG.normal(size=5), dtype=torch.float64)
    want = torch.autograd.functional.jacobian(lambda t: t.softmax(-1), a)
    np.testing.assert_allclose(attention.softmax_jacobian(a.softmax(-1)), want, atol=1e-16)


def test_weights_start_where_they_say():
    assert not attention.Direct.zeros(P).matrix().any()
    uniform = attention.Direct.random(P, seed=1).matrix()
    assert np.abs(uniform).max() < 6**-0.5
    factors = attention.Factored.random(P, m=2)
    assert factors.K.shape == (3, 6, 2)
    assert not factors.matrix().any()


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (
            attention.Direct(np.zeros((5, 5))),
            ShapeError,
            r"W must end in axes of sizes \(6, 6\), as keys of width 6 and ",
        ),
        (attention.Direct(np.zeros((2, 6, 6))), ShapeError, r"W must have the batch axes .*, \(3,\)"),
        (attention.Direct(np.full((6, 6), np.nan)), DataError, "W must be finite"),
        (
            attention.Factored(np.zeros((6, 2)), np.zeros((6, 3))),
            ShapeError,
            "K and Q must have one width m",
        ),
        (np.zeros((6, 6)), DataError, r"weights must be Direct\(W\) or Factored\(K, Q\), got ndarray"),
    ],
)
def test_bad_weights(weights, error, message):
    with pytest.raises(error, match=message):
        attention.gradient(P, weights)


def test_bad_heads_and_losses():
    bare = data.Problem(P.X, P.z, P.y)
    with pytest.raises(DataError, match="need a head"):
        attention.predictions(bare, np.zeros((6, 6)))
    with pytest.raises(DataError, match="need a head"):
        attention.gradient(bare, attention.Direct.zeros(bare))
    vector = data.Problem(P.X, P.z, P.y, head=lambda u: u)
    with pytest.raises(ShapeError, match=r"head must map a tensor of shape \(..., d\)"):
        attention.gradient(vector, attention.Direct.zeros(vector))
    with pytest.raises(
        DataError, match=r"loss must be one of \['expo.*', 'linear', 'log', 'logistic'\], got 'hinge'"
    ):
        attention.loss(P, np.zeros((6, 6)), "hinge")


@pytest.mark.parametrize(
    ("head", "error", "message"),
    [
        (torch.nn.Linear(6, 1).double(), ShapeError, r"head must map .* it returned shape \(3, 4, 1\)"),
        (torch.nn.Linear(6, 1), DataError, "head failed on a float64 tensor .* call .double"),
        (lambda u: u @ torch.ones(2), DataError, r"head failed on a float64 tensor of shape \(3, 4, 6\)"),
        (lambda u: u.mean(), ShapeError, r"expected shape \(3, 4\)"),
    ],
)
def test_heads_that_do_not_fit(head, error, message):
    p = data.Problem(P.X, P.z, P.y, head=head)
    for call in (
        attention.predictions,
        attention.loss,
        lambda q, W: attention.gradient(q, attention.Direct(W)),
    ):
        with pytest.raises(error, match=message):
            call(p, np.zeros((6, 6)))


def test_heads_without_a_gradient():
    detached = data.Problem(P.X, P.z, P.y, head=lambda u: u.detach().sum(-1))
    with pytest.raises(DataError, match="does not depend on its input for autograd"):
        attention.gradient(detached, attention.Direct.zeros(detached))
    broken = data.Problem(P.X, P.z, P.y, head=lambda u: u.sum(-1) * float("nan"))
    with pytest.raises(DataError, match="The gradient is not finite: the head"):
        attention.gradient(broken, attention.Direct.zeros(broken))
    with pytest.raises(
        ShapeError, match="head reads outputs of width 2, but the tokens of X have width d = 6"
    ):
        data.Problem(P.X, P.z, P.y, head=attention.linear([1.0, 2.0]))
    with pytest.raises(ShapeError, match=r"axes do not fit: X has \(3,\), .* head has \(2,\)"):
        data.Problem(P.X, P.z, P.y, head=attention.mlp(np.ones((2, 6, 4))))
    with pytest.raises(ShapeError, match=r"v and lam must have shapes \(..., d\) and \(...\)"):
        attention.quadratic(np.ones((2, 6)), np.ones(3))
    with pytest.raises(DataError, match="lam must be an array of real numbers"):
        attention.quadratic([1.0], "a")


def test_weights_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"K and Q must have shapes \(..., e, m\) and \(..., q, m\), got"):
        attention.logits(P, attention.Factored(np.zeros((6, 2)), np.zeros((6, 3))))
    with pytest.raises(ShapeError, match=r"W must have shape \(..., e, q\) or \(..., r, e, q\)"):
        attention.loss(P, np.zeros((2, 5, 3, 6, 6)))
    with pytest.raises(DataError, match="logits overflow float64"):
        attention.probabilities(P, np.full((6, 6), 1e308))
    for call in (attention.logits, attention.loss, attention.smoothness):
        with pytest.raises(DataError, match=r"problem must be a svmlib.data.Problem"):
            call(None, np.zeros((6, 6))) if call is not attention.smoothness else call(None)
    for bad in ({"m": 0}, {"m": 1.5}, {"seed": -1}, {"seed": None}):
        with pytest.raises(ShapeError, match="must be"):
            attention.Factored.random(P, **bad)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_keys_and_queries_of_their_own_width(head):
    # logits k' W z with keys, values and queries of three widths, against autograd of the plain formula
    rng = np.random.default_rng(0)
    X, keys, z = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5, 6)), rng.normal(size=(4, 2))
    y, v, V = np.array([1.0, -1.0, -1.0, 1.0]), rng.normal(size=3), rng.normal(size=(3, 7))
    psi = (lambda u: u @ torch.tensor(v)) if head == "linear" else attention.mlp(V)
    reads = {"v": v} if head == "linear" else {"head": psi}
    p = data.Problem(X, z, y, keys=keys, **reads)
    K, Q = rng.normal(size=(6, 4)), rng.normal(size=(2, 4))
    tK, tQ = torch.tensor(K, requires_grad=True), torch.tensor(Q, requires_grad=True)
    a = torch.einsum("ntd,de,ne->nt", torch.tensor(keys), tK @ tQ.T, torch.tensor(z))
    u = torch.einsum("nt,ntd->nd", a.softmax(-1), torch.tensor(X))
    value = torch.nn.functional.softplus(-torch.tensor(y) * psi(u)).mean()
    value.backward()
    weights = attention.Factored(K, Q)
    np.testing.assert_allclose(attention.loss(p, weights), value.item(), rtol=1e-13)
    got = attention.gradient(p, weights)
    np.testing.assert_allclose(got.K, tK.grad.numpy(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(got.Q, tQ.grad.numpy(), rtol=1e-10, atol=1e-13)
    W = attention.gradient(p, attention.Direct(K @ Q.T)).W
    np.testing.assert_allclose(W @ Q, got.K, rtol=1e-10, atol=1e-13)
