"""Helpers of the claims on global convergence: derivatives, certificates, prescribed logits."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.checks import global_convergence as votes
from svmlib.checks import global_convergence_level as level
from svmlib.checks import global_convergence_pair as pair
from svmlib.checks import global_convergence_stationary as stationary


def test_derivatives_of_the_mean_score() -> None:
    p, h = np.array([[0.3, -0.7], [2.0, 1.0]]), 1e-5
    shape = stationary.mean_score(*stationary.TRAP, p)
    for i, e in enumerate(h * np.eye(2)):
        up, down = (stationary.mean_score(*stationary.TRAP, p + s * e) for s in (1, -1))
        np.testing.assert_allclose(shape.slope[:, i], (up.value - down.value) / (2 * h), atol=1e-9)
        np.testing.assert_allclose(shape.curvature[:, i], (up.slope - down.slope) / (2 * h), atol=1e-9)


def test_the_third_derivative_stays_below_its_bound() -> None:
    keys, scores = (np.array(a) for a in stationary.TRAP)
    reach = max(np.linalg.norm(a - b) for a in keys for b in keys)
    bound = 19 / 16 * np.ptp(scores) * reach**3
    rng = np.random.default_rng(0)
    points, h = rng.normal(size=(2000, 2)), 1e-4
    along = rng.normal(size=(2000, 2))
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    up, down = (stationary.mean_score(keys, scores, points + s * h * along).curvature for s in (1, -1))
    third = np.einsum("rij,ri,rj->r", up - down, along, along) / (2 * h)
    assert np.abs(third).max() < bound


def test_the_certificate_refuses_a_point_that_is_none() -> None:
    point = stationary.stationary_points(*stationary.SADDLE)[0]
    assert stationary.enclosure(*stationary.SADDLE, point)[0] < 1e-9
    assert stationary.enclosure(*stationary.SADDLE, point + np.array([0.05, 0.0]))[0] > 1.0


def test_stationary_points_are_those_of_the_library_loss() -> None:
    found = stationary.stationary_points(*stationary.TRAP)
    assert len(found) == 2
    p = stationary.one_sequence(*stationary.TRAP)
    for q in found:
        G = sv.attention.gradient(p, sv.attention.Direct(q[:, None])).W
        assert np.linalg.norm(G) < 1e-12


def test_prescribed_logits() -> None:
    p = sv.data.random_problem(3, 5, 8, seed=1)
    wanted = np.random.default_rng(0).normal(size=(3, 5))
    W = votes.prescribed(p, wanted)
    got = np.einsum("nte,ef,nf->nt", p.keys, W, p.z)
    np.testing.assert_allclose(got - got[:, :1], wanted - wanted[:, :1], atol=1e-9)


def test_two_tokens_cannot_disagree() -> None:
    p = sv.data.random_problem(3, 2, 6)
    assert votes.contrary_pair(p, sv.svm.attention_svm(p).W)[3] == 0.0


def test_below_level_is_the_first_power_of_two() -> None:
    p = sv.data.random_problem(3, 4, 6, batch=4)
    W = level.below_level(p, sv.svm.attention_svm(p).W)
    assert (sv.dynamics.gap(p, W) < level.cheapest_mistake(p)).all()
    assert (sv.dynamics.gap(p, W / 2) >= level.cheapest_mistake(p)).all()


def test_the_proved_length_is_long_enough_and_not_absurd() -> None:
    p = sv.data.random_problem(3, 4, 12, batch=10)
    V = sv.svm.attention_svm(p)
    unit = V.W * V.margin[:, None, None]
    R = level.radius(p, unit)
    assert (sv.dynamics.gap(p, R[:, None, None] * unit) < level.cheapest_mistake(p)).all()
    assert (sv.dynamics.gap(p, 0.3 * R[:, None, None] * unit) > level.cheapest_mistake(p)).any()


@pytest.mark.parametrize(("point", "inside"), [((4.0, 0.0), True), ((0.0, 0.0), False), ((1.0, 0.0), False)])
def test_the_proved_set(point: tuple[float, float], inside: bool) -> None:
    assert pair.trapped(np.array([-2.0, 1.0]), np.array([1.0, 0.0]), np.array(point)) == inside
