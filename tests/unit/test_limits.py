"""The experiment on where runs end, and the tools of its chapter: selections, clearance, lead, safe angle."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.checks import local_global, local_global_basin, local_global_plateau
from svmlib.experiments import limits


def test_outcome_names_all_four_classes() -> None:
    # one sequence on a line: token 1 best, token 2 hides behind it, token 0 on the other side
    p = sv.data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[1.0, 0.0, 0.5]])
    tokens = np.array([[0], [2], [1], [0]])
    probability = np.array([[1.0], [1.0], [1.0], [0.5]])
    classes, solution = limits.outcome(p.expand(4), tokens, probability)
    assert [limits.OUTCOMES[c] for c in classes] == ["global", "local", "neither", "unsaturated"]
    assert solution.solved.tolist() == [True, True, False, True]  # token 1 lies between the others


def test_experiment_agrees_with_a_run_by_hand() -> None:
    r = sv.experiments.p1_limits(trials=6, seed=2, arms=("W", "KQ"), horizons=(50, 400))
    assert r["outcome"].shape == (2, 6, 2) and r["tokens"].shape == (2, 6, 2, 6)
    p = sv.data.random_problem(n=6, T=8, d=10, batch=6, seed=2)
    run = sv.dynamics.train(
        p, sv.attention.Direct.zeros(p), sv.dynamics.normalized(0.1), 400, record=[50, 400]
    )
    assert (run.top_token == r["tokens"][0]).all()
    sure = run.top_probability.min(-1) >= 0.99
    assert ((r["outcome"][0] == 3) == ~sure).all()
    assert ((r["outcome"][0] == 0) == ((run.selected == p.optimal).all(-1)[:, None] & sure))[:, 1].all()


@pytest.mark.parametrize("name", list(limits.ARMS))
def test_every_arm_starts_as_it_says(name: str) -> None:
    arm = limits.ARMS[name]
    p = sv.data.random_problem(n=2, T=3, d=4, batch=3)
    start = limits._start(p, arm, 0)
    assert isinstance(start, sv.attention.Factored) == arm.factored
    sizes = [float(np.abs(np.asarray(block)).max()) for block in start]
    if arm.factored:
        assert sizes[0] > 0 and (sizes[1] > 0) == (arm.query > 0)
        assert not arm.query or not np.array_equal(start[0], start[1])
    else:
        assert sizes[0] <= arm.scale / 2 + 1e-12 and (sizes[0] > 0) == (arm.scale > 0)


def test_selections_are_all_and_in_order() -> None:
    p = sv.data.random_problem(n=2, T=3, d=3, seed=1)
    copies, solution, local = local_global.selections(p)
    assert copies.batch_shape == (9,) and solution.tokens.tolist()[1] == [0, 1]
    assert local[int(3 * p.optimal[0] + p.optimal[1])]


def test_reduced_program_ignores_better_tokens_and_keeps_a_mask() -> None:
    mask = [[True, True, True, False]]
    keys = [[[0.0, 0.0], [-1.0, 0.0], [-0.5, -1.0], [5.0, 5.0]]]
    p = sv.data.prompt_problem(keys, [[0.5, 0.0, 1.0, 0.2]], mask=mask)
    U, clear = local_global.reduced_svm(p, np.array([0]))
    np.testing.assert_allclose(U.W[:, 0], [1.0, 0.0], atol=1e-9)
    assert clear[0, 2] == pytest.approx(0.5) and np.isinf(clear[0, [0, 1, 3]]).all()
    best = local_global.reduced_svm(p, np.array([2]))[1]
    assert np.isinf(best).all()


def test_lead_of_runs_without_a_better_token_and_without_a_hold() -> None:
    p = sv.data.prompt_problem([[[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]], [[1.0, 0.0, 0.5]])
    W = np.array([[10.0], [10.0]])
    assert local_global_plateau.lead(p, np.array([0]), W) == local_global_plateau.STAYS
    assert local_global_plateau.lead(p, np.array([1]), W).steps == 0.0  # nothing scores worse than token 1


def test_rise_joins_its_three_regimes() -> None:
    rise = local_global_plateau._rise
    assert rise(1.0, 2.0, 0.5) == pytest.approx(2 * np.exp(2.0))
    assert rise(1.0 - 1e-7, 2.0, 0.5) == pytest.approx(rise(1.0, 2.0, 0.5), rel=1e-5)
    assert rise(1.1, np.log(5.0) + 0.01, 0.5) == np.inf  # e^u above force / (clearance - 1)
    assert 0 < rise(1.1, np.log(5.0) - 0.01, 0.5) < np.inf


def test_exact_rise_is_continuous_at_the_edge() -> None:
    edge = local_global_plateau.plateau_rise(1.0, 1.0, 2.0, 5.0)
    assert edge == pytest.approx(4.0 - np.log(5.0))
    assert local_global_plateau.plateau_rise(1.0, 1.0 - 1e-6, 2.0, 5.0) == pytest.approx(edge, rel=1e-4)


def test_safe_angle_of_one_worse_and_one_better_token() -> None:
    p = local_global_plateau.pair(1.0, 1.2, 2.0)
    s = sv.svm.attention_svm(p, [0])
    angle, near = local_global_basin.safe_angle(p, s)
    A = p.differences([0])[0, 1:]
    assert A[0] @ near[:, 0] == pytest.approx(A[1] @ near[:, 0])
    D = A[1] - A[0]
    assert np.sin(angle) == pytest.approx(D[0] / np.linalg.norm(D))
    assert local_global_basin.safe_angle(p, sv.svm.attention_svm(p, [2]))[0] == pytest.approx(np.pi / 2)


def test_rise_of_a_pull_within_the_support_is_infinite() -> None:
    for clearance in (0.9, 1.0, 1.1):
        assert local_global_plateau._rise(clearance, 2.0, 0.0) == np.inf


def test_random_and_directed_shares_are_those_of_single_starts() -> None:
    p = local_global_plateau.pair(1.0, 1.2, 2.0).expand(1)
    s = sv.svm.attention_svm(p, np.array([[0]]))
    one = local_global_basin.safe_angle(p[0], sv.svm.attention_svm(p[0], [0]))
    b = local_global_basin.Basins(p, s, np.array([one[0]]), one[1][None], np.zeros(1))
    assert local_global_basin.directed_shares(b, (0.5, 0.9, 2.0), 200.0).tolist() == [1.0, 1.0, 0.0]
    assert local_global_basin.random_shares(p, s, (1.0, 2.0), 50.0, copies=2).shape == (2,)
