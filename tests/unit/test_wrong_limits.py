"""Experiments on first steps and wrong limits, and the small problems behind them."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.experiments.wrong_limits import cheapest_mistake, separatrix, small_problem, two_sequences


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_the_cheapest_mistake_is_the_best_of_all_wrong_selections(loss: str) -> None:
    p = sv.data.random_problem(3, 4, 5, seed=2)
    value = {
        "logistic": lambda f: np.log1p(np.exp(-f)),
        "exponential": lambda f: np.exp(-f),
        "linear": lambda f: -f,
    }[loss]
    losses = value(p.scores)
    best = losses[np.arange(3), p.optimal].mean()
    wrong = [
        losses[np.arange(3), list(t)].mean() - best
        for t in np.ndindex(4, 4, 4)
        if list(t) != p.optimal.tolist()
    ]
    assert cheapest_mistake(p, loss) == pytest.approx(min(wrong), rel=1e-12)


def test_mistakes_in_special_cases() -> None:
    p = sv.data.random_problem(2, 3, 4, batch=5)
    each = [float(cheapest_mistake(p[b])) for b in range(5)]
    np.testing.assert_allclose(cheapest_mistake(p), each, rtol=1e-14)
    assert np.isinf(cheapest_mistake(sv.data.random_problem(2, 1, 4)))
    tied = sv.data.prompt_problem([[[1.0], [0.0]]], [[1.0, 1.0]])
    assert cheapest_mistake(tied) == 0.0
    mask = np.array([[True, False, False], [True, True, False]])
    keys, scores = np.zeros((2, 3, 1)), np.array([[1.0, 0.9, 0.8], [1.0, 0.5, 0.9]])
    masked = sv.data.prompt_problem(keys, scores, mask=mask)
    assert cheapest_mistake(masked, "linear") == pytest.approx(0.25)


def test_two_sequences_are_solved_by_hand_and_by_the_library() -> None:
    p = two_sequences()
    solution = sv.svm.attention_svm(p)
    np.testing.assert_allclose(solution.W[:, 0], [1.0, 3.0], atol=1e-9)
    np.testing.assert_allclose(solution.multipliers[:, 1], [3.0, 7.0], atol=1e-8)
    wrong = sv.svm.attention_svm(p, [1, 0])
    np.testing.assert_allclose(wrong.W[:, 0], [1.0, 0.0], atol=1e-9)
    assert sv.selection.locally_optimal(p, wrong)
    many = two_sequences(np.ones((4, 2)), [1.0, 0.0])
    assert many.batch_shape == (4,)


def test_the_border_is_a_trajectory_that_tends_to_the_threshold() -> None:
    border = separatrix(loss="linear")
    u = border @ np.array([[-2.0, 1.0], [1.0, 0.0]]).T
    assert -u[0, 0] - u[0, 1] == pytest.approx(np.log(3.0), abs=1e-9)
    # its two sides part: short runs of plain flow from points beside it
    k = np.abs(border[:, 0] - 2.0).argmin()
    starts = border[k] + np.array([[0.0, 0.1], [0.0, -0.1]])
    p = two_sequences().expand(2)
    run = sv.dynamics.train(
        p,
        sv.attention.Direct(starts[..., None]),
        sv.dynamics.normalized(0.01),
        8000,
        record=[8000],
        loss="linear",
    )
    assert run.selected.tolist() == [[0, 0], [1, 0]]


def test_the_logistic_border_is_moved_by_the_slopes_of_the_loss() -> None:
    u = separatrix()[0] @ np.array([[-2.0, 1.0], [1.0, 0.0]]).T
    expected = np.log(3.0 * (1 + np.e) / 2.0)  # slopes 1/2 and 1/(1 + e)
    assert -u[0] - u[1] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("second", [(3.0, 0.0), (-4.0, 2.0)])
def test_no_border_without_a_second_attractor(second: tuple[float, float]) -> None:
    with pytest.raises(sv.errors.DataError, match="There is a border only if"):
        separatrix(second=second)


def test_the_border_of_the_other_sequence_is_named() -> None:
    with pytest.raises(sv.errors.DataError, match="Exchange first and second"):
        separatrix((1.0, 0.0), (-2.0, 1.0))


def test_small_problems_of_any_batch_shape_and_with_a_mask() -> None:
    p = sv.data.random_problem(2, 3, 40, batch=3)
    each = small_problem(p[1])
    assert each.batch_shape == () and each.key_dim == 6
    np.testing.assert_allclose(small_problem(p.expand(2)).scores[1], small_problem(p).scores, rtol=1e-12)
    mask = np.ones((3, 2, 3), dtype=bool)
    mask[:, 0, 2] = False
    masked = sv.data.Problem(p.X, p.z, p.y, p.v, mask=mask)
    small = small_problem(masked)
    zero, zeros = sv.attention.Direct.zeros(masked), sv.attention.Direct.zeros(small)
    np.testing.assert_allclose(small.scores, masked.scores, rtol=1e-12)
    np.testing.assert_allclose(
        np.linalg.norm(sv.attention.gradient(small, zeros).matrix(), axis=(-2, -1)),
        np.linalg.norm(sv.attention.gradient(masked, zero).matrix(), axis=(-2, -1)),
        rtol=1e-10,
    )


def test_a_small_problem_has_the_same_run() -> None:
    p = sv.data.random_problem(2, 3, 40, batch=3)
    q = small_problem(p)
    assert (q.key_dim, q.query_dim) == (6, 2)
    rule = sv.dynamics.normalized(0.1)
    runs = [sv.dynamics.train(a, sv.attention.Direct.zeros(a), rule, 60, record=[60]) for a in (p, q)]
    np.testing.assert_allclose(runs[0].gap, runs[1].gap, rtol=1e-10)
    sizes = [np.linalg.norm(r.W, axis=(-2, -1)) for r in runs]
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-10)


def test_first_steps_against_a_second_computation() -> None:
    r = sv.experiments.p1_first_step(trials=6, sequences=(2,), widths=(4, 9), steps=40)
    assert r["separates"].shape == r["optimal"].shape == (1, 2, 6)
    p = sv.data.random_problem(2, 5, 9, batch=6)
    for b in range(6):
        G = -sv.attention.gradient(p[b], sv.attention.Direct.zeros(p[b])).W
        low = sv.compare.margins(G, p[b].X, p[b].z, p[b].optimal).min() / np.linalg.norm(G)
        assert r["smallest"][0, 1, b] == pytest.approx(low, rel=1e-9)
        assert r["separates"][0, 1, b] == (low > 0)


def test_the_grid_of_starts() -> None:
    r = sv.experiments.p2_wrong_limit(side=5, half=6.0, steps=1500)
    at = {tuple(s): w for s, w in zip(r["start"].tolist(), r["wrong"].tolist(), strict=True)}
    assert not at[(0.0, 0.0)] and at[(6.0, 0.0)] and not at[(-6.0, 6.0)]
    assert (r["below"] != r["wrong"]).all()
    assert r["wrong_correlation"][r["wrong"]].min() > 0.99
    assert r["global_correlation"][~r["wrong"]].min() > 0.99


def test_equal_scores_have_wrong_limits_above_the_level_only() -> None:
    r = sv.experiments.p2_equal_scores(trials=20, norms=(0.0, 8.0))
    some = r["feasible"]
    assert some.sum() >= 15
    end, below = r["optimal"][:, some], r["below"][:, some]
    assert (end == below).all() and not end.all()
    assert r["correlation"][0, some][end[0]].min() > 0.999
    assert np.isnan(r["correlation"][:, ~some]).all()
    assert r["smallest_excess"][:, some][~end].min() >= 1.0 - 1e-9


def test_parts_resume(tmp_path: object) -> None:
    options = {"trials": 3, "sequences": (1,), "widths": (4, 6), "steps": 10}
    first = sv.experiments.p1_first_step(folder=tmp_path, **options)
    again = sv.experiments.load(next(iter(tmp_path.glob("*.json"))))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(first["smallest"], again["smallest"])
