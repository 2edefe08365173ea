"""The chapter on attention as a selector: answers of its exercises, and claims that must be able to fail."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import svmlib as sv
from svmlib.checks import registry


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_margin_under_a_fading_score_gap(beta: float) -> None:
    budget = {0.5: lambda t: 2 * (np.sqrt(1 + t) - 1), 1.0: np.log1p, 2.0: lambda t: t / (1 + t)}[beta]
    flow = solve_ivp(
        lambda t, u: (1 + t) ** -beta / (2 + 2 * np.cosh(u)), (0, 1e3), [0.0], rtol=1e-10, atol=1e-12
    )
    exact = brentq(lambda u: 2 * np.sinh(u) + 2 * u - budget(1e3), 0, 100)
    assert flow.y[0, -1] == pytest.approx(exact, rel=1e-8)


def test_the_head_separates_one_sequence() -> None:
    p = sv.data.random_problem(n=1, T=6, d=3, batch=50)
    ordered = np.sort(p.scores[:, 0], axis=-1)
    scale = (ordered[:, -1] - ordered[:, -2]) * (p.z[:, 0] ** 2).sum(-1)
    V = p.y[:, 0, None, None] * p.v[:, :, None] * p.z / scale[:, None, None]
    margins = sv.compare.margins(V, p.X, p.z, p.optimal)
    assert margins.min() == pytest.approx(1.0, abs=1e-12)
    assert sv.svm.feasible(p).all()


def test_the_head_separates_independent_queries() -> None:
    p = sv.data.random_problem(n=5, T=4, d=5, batch=20)
    ordered = np.sort(p.scores, axis=-1)
    targets = (p.y / (ordered[..., -1] - ordered[..., -2]))[..., None] * p.v[:, None]
    V = np.swapaxes(targets, -1, -2) @ np.linalg.inv(np.swapaxes(p.z, -1, -2))
    assert sv.compare.margins(V, p.X, p.z, p.optimal).min() > 1 - 1e-9


def test_conflicting_sequences_have_a_finite_minimiser() -> None:
    p = sv.data.Problem([[[1.0], [-1.0]]] * 2, [[1.0], [1.0]], [1, -1], [1.0])
    w = np.linspace(-5, 5, 1001)
    loss = sv.attention.loss(p, w[:, None, None])
    assert w[loss.argmin()] == pytest.approx(0.0, abs=1e-12)
    assert loss.min() == pytest.approx(np.log(2))
    assert not sv.svm.feasible(p)


@pytest.mark.parametrize("label", ["prop-gradients", "prop-flow-invariant"])
def test_claims_notice_a_wrong_gradient(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = sv.attention.gradient

    def wrong(
        problem: sv.data.Problem, weights: sv.attention.Weights, loss: str = "logistic"
    ) -> sv.attention.Weights:
        return weights._make(1e-6 + block for block in right(problem, weights, loss))

    monkeypatch.setattr(sv.attention, "gradient", wrong)
    with pytest.raises(registry.CheckFailed):
        registry.run(label, trials=2)


def test_claims_notice_a_wrong_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sv.attention.smoothness
    monkeypatch.setattr(sv.attention, "smoothness", lambda *a, **k: right(*a, **k) / 100)
    with pytest.raises(registry.CheckFailed):
        registry.run("prop-smooth", trials=3)


def test_claims_notice_a_wrong_infimum(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sv.dynamics.gap
    monkeypatch.setattr(sv.dynamics, "gap", lambda *a, **k: right(*a, **k) + 1e-9)
    with pytest.raises(registry.CheckFailed):
        registry.run("prop-infimum", trials=3)


def test_claims_notice_weights_that_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sv.attention.smoothness
    monkeypatch.setattr(sv.attention, "smoothness", lambda *a, **k: right(*a, **k) * 1e4)
    with pytest.raises(registry.CheckFailed):
        registry.run("prop-no-stationary", trials=2)


def test_claims_notice_a_wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sv.data.Problem.differences
    monkeypatch.setattr(sv.data.Problem, "differences", lambda self: 1.1 * right(self))
    with pytest.raises(registry.CheckFailed):
        registry.run("prop-log-growth", trials=2)


def test_scores_as_logits_give_a_direction_of_descent_everywhere() -> None:
    p = sv.data.random_problem(n=2, T=6, d=3, batch=30)
    targets = np.swapaxes(p.y[..., None] * p.v[:, None], -1, -2)
    V = targets @ np.linalg.pinv(np.swapaxes(p.z, -1, -2))
    assert np.einsum("bntd,bde,bne->bnt", p.X, V, p.z) == pytest.approx(p.scores, abs=1e-10)
    for scale in (0.0, 0.3, 3.0, 30.0):
        W = scale * np.random.default_rng(0).normal(size=(30, 3, 3))
        slope = (sv.attention.gradient(p, sv.attention.Direct(W)).W * V).sum((-1, -2))
        assert slope.max() < 0.0


def test_matrices_of_one_norm_can_differ_in_their_loss() -> None:
    p = sv.data.planar(2)
    V = sv.svm.attention_svm(p).W
    good, plain = 10 * V / np.linalg.norm(V), 10 * np.eye(2) / np.sqrt(2)
    assert sv.dynamics.gap(p, plain) > 100 * sv.dynamics.gap(p, good)
