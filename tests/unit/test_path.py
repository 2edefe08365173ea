"""Regularisation paths: certificates recomputed elsewhere, derivatives, special problems and bad input."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import oracle
import pytest
import torch

import svmlib as sv
from svmlib.dynamics._path_newton import Ball
from svmlib.dynamics._path_objective import Objective
from svmlib.errors import DataError, InfeasibleError, ShapeError, SolverError

path = sv.dynamics.regularization_path
R = [5.0, 10.0, 20.0, 40.0, 80.0, 160.0]


@pytest.fixture(scope="module")
def small():
    return sv.data.random_problem(2, 3, 3, seed=11)


def test_the_reference_table(small):
    expected = {
        ("fro", "fro"): (0.9221, 0.9826, 0.9955, 0.9985, 0.9995, 0.9998),
        ("nuc", "nuc"): (0.7970, 0.9703, 0.9892, 0.9975, 0.9995, 0.9999),
        ("fro", "nuc"): (0.787, 0.858, 0.878, 0.882, 0.882, 0.883),
        ("nuc", "fro"): (0.853, 0.854, 0.859, 0.873, 0.879, 0.881),
    }
    paths = {norm: path(small, R, norm) for norm in ("fro", "nuc")}
    for (a, b), values in expected.items():
        solution = sv.svm.attention_svm(small, norm=b)
        assert sv.compare.correlation(paths[a].W, solution.W) == pytest.approx(values, abs=6e-4)
    assert (
        pytest.approx(paths["nuc"].K @ np.swapaxes(paths["nuc"].Q, -1, -2), abs=1e-12 * 160) == paths["nuc"].W
    )
    assert (paths["fro"].log_gap <= paths["nuc"].log_gap).all()  # the nuclear ball is the smaller one


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_certificates_by_an_independent_gradient(loss):
    p = sv.data.random_problem(3, 4, 4, batch=4, seed=5)
    for norm, dual in (("fro", sv.norms.FRO), ("nuc", sv.norms.SPEC)):
        found = path(p, [4.0, 30.0], norm, loss=loss)
        assert (found.stationarity <= 1e-10).all()
        for k, radius in enumerate(found.radii):
            W = found.W[:, k]
            assert sv.norms.get(norm)(W) == pytest.approx(radius, rel=1e-10)
            G = sv.attention.gradient(p, sv.attention.Direct(W), loss).W
            gap = 1 + (G * W).sum((-2, -1)) / (radius * dual(G))
            assert np.abs(gap).max() <= 1e-9
            assert found.log_gap[:, k] == pytest.approx(np.log(sv.dynamics.gap(p, W, loss)), abs=1e-10)


def test_certificate_in_extended_precision_where_the_excess_is_below_1e_60(small):
    W = path(small, [300.0]).W[0]
    with mp.workdps(250):
        G = oracle.gradient(
            small.X.tolist(), small.z.tolist(), small.y.tolist(), small.v.tolist(), W.tolist()
        )
        top = max(abs(g) for row in G for g in row)
        G = np.array([[float(g / top) for g in row] for row in G])
    assert sv.compare.angle(-G, W) <= 1e-7


def test_derivatives_agree_with_differences():
    p = sv.data.random_problem(3, 4, 4, batch=2, seed=1)
    v = torch.tensor(np.eye(4)[1])
    mixed = sv.data.Problem(p.X, p.z, p.y, head=lambda u: torch.tanh(2.0 * (u @ v)) + 0.3 * (u * u).sum(-1))
    for q, tokens in ((p, p.optimal), (mixed, np.zeros((2, 3), dtype=int))):
        objective = Objective(q, tokens, "logistic")
        rng = np.random.default_rng(0)
        for width in (None, 3):
            ball = Ball(objective, np.arange(2), np.full(2, 3.0), width)
            a, b = objective.shape
            x = rng.normal(size=(2, a * b if width is None else (a + b) * width))
            here = ball._look(np.arange(2), x)
            assert (ball.plain == ball.plain[0]).all()
            g, H = here.g * here.unit[:, None], here.H * here.unit[:, None, None]
            h = 1e-5
            for k in range(x.shape[1]):
                e = np.eye(x.shape[1])[k] * h
                ahead, behind = ball._look(np.arange(2), x + e), ball._look(np.arange(2), x - e)
                slope = (ahead.value - behind.value) / (2 * h)
                assert slope == pytest.approx(g[:, k], rel=1e-5, abs=1e-7)
                bend = (ahead.g * ahead.unit[:, None] - behind.g * behind.unit[:, None]) / (2 * h)
                assert bend == pytest.approx(H[:, k], rel=1e-5, abs=1e-6)


def test_a_linear_head_in_disguise_has_the_same_path(small):
    v = torch.tensor(np.array(small.v))
    hidden = sv.data.Problem(small.X, small.z, small.y, head=lambda u: u @ v)
    for norm in ("fro", "nuc"):
        a = path(small, [10.0, 160.0, 2000.0], norm)
        b = path(hidden, [10.0, 160.0, 2000.0], norm, tokens=small.optimal)
        assert pytest.approx(a.W, rel=1e-6, abs=1e-6) == b.W
        assert b.log_gap == pytest.approx(a.log_gap, rel=1e-9)
        assert np.isneginf(b.log_floor).all()


def test_batch_equals_single_and_copies(small):
    p = sv.data.random_problem(3, 4, 4, batch=3)
    together = path(p, [10.0, 100.0], "nuc", starts=1)
    for b in range(3):
        alone = path(p[b], [10.0, 100.0], "nuc", starts=1)
        assert alone.log_gap == pytest.approx(together.log_gap[b], rel=1e-9)
    twice = path(small.expand(2), [20.0])
    assert twice.W[0] == pytest.approx(twice.W[1], abs=1e-9)
    assert twice.W.shape == (2, 1, 3, 3)
    assert twice.start.shape == (2, 1)


def test_masked_tokens_do_not_matter(small):
    X = np.concatenate([small.X, 7.0 * np.ones((2, 1, 3))], axis=1)
    mask = np.array([[True] * 3 + [False]] * 2)
    wide = sv.data.Problem(X, small.z, small.y, small.v, mask=mask)
    assert pytest.approx(path(small, [30.0]).W, abs=1e-7) == path(wide, [30.0]).W


@pytest.mark.parametrize("factor", [1e-8, 1.0, 1e8])
def test_scale_of_the_keys(small, factor):
    p = sv.data.Problem(small.X * factor, small.z, small.y, small.v / factor)
    for norm in ("fro", "nuc"):
        scaled = path(p, np.array([10.0, 160.0]) / factor, norm)
        assert scaled.W * factor == pytest.approx(path(small, [10.0, 160.0], norm).W, rel=1e-6, abs=1e-6)


def test_enormous_radii_and_the_bound_from_below():
    p = sv.data.random_problem(3, 5, 4, batch=5)
    for norm in ("fro", "nuc"):
        found = path(p, [1e2, 1e6], norm, starts=0)
        solution = sv.svm.attention_svm(p, norm=norm)
        assert (found.log_gap >= found.log_floor).all()
        assert (found.log_gap - found.log_floor)[:, -1].max() < 1e-3
        assert (found.excess[:, -1] == 0).all()
        assert np.isfinite(found.log_gap).all()
        assert sv.compare.angle(found.W[:, -1], solution.W).max() < 1e-4


def test_one_query_is_a_vector_problem():
    p = sv.data.prompt_problem([[[1.0, 0.3], [0.0, 0.0], [-0.5, 1.0]]], [[1.0, 0.0, 0.5]])
    a, b = path(p, [5.0, 500.0]), path(p, [5.0, 500.0], "nuc")
    assert a.p == pytest.approx(b.p, rel=1e-6)
    assert sv.compare.correlation(a.W[-1], sv.svm.attention_svm(p).W) > 1 - 1e-5
    with pytest.raises(ShapeError, match="width 1"):
        _ = path(sv.data.planar(1), [5.0]).p


def test_an_infeasible_problem_has_a_finite_limit_and_says_so():
    p = sv.data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[0.0, 1.0, 0.0]])
    for norm in ("fro", "nuc"):
        found = path(p, [0.1, 1.0, 100.0], norm)
        assert not found.feasible
        assert found.interior.all()
        assert np.abs(found.W).max() < 1e-9
        assert found.excess + sv.dynamics.infimum(p) == pytest.approx(0.5403, abs=1e-4)


@pytest.mark.parametrize(("norm", "loss"), [("nuc", "exponential"), ("nuc", "linear"), ("fro", "logistic")])
def test_a_larger_ball_has_no_larger_minimum(norm, loss):
    """Infeasible instances have saturated plateaus on which a start may end."""
    p = sv.data.random_problem(5, 6, 2, batch=8)
    found = path(p, [20.0, 100.0, 1000.0], norm, loss=loss, starts=1)
    assert not found.feasible.all()
    assert (np.diff(found.log_gap, axis=-1) <= 1e-9).all()
    assert (found.stationarity <= 1e-8).all()


def test_a_best_selection_that_is_saturated():
    """Scalar weights, compared with a grid; in some instances the infimum is at infinity and not optimal."""
    p = sv.data.random_problem(3, 10, 1, batch=6)
    grid = np.concatenate([-np.geomspace(1000, 1e-3, 4000), np.geomspace(1e-3, 1000, 4000)])
    found = path(p, [1.0, 1000.0])
    for b in range(6):
        lowest = sv.attention.loss(p[b], grid[:, None, None]).min() - sv.dynamics.infimum(p[b])
        assert found.excess[b, -1] <= lowest + 1e-12


def test_radii_beyond_double_precision_say_so(small):
    with pytest.raises(SolverError, match="double precision"):
        path(small, [1e20])


def test_a_head_for_which_composing_pays():
    p = sv.data.Problem([[[1.0], [-1.0]]], [[1.0]], [1], head=lambda u: -(u[..., 0] ** 2))
    found = path(p, [0.5, 50.0], tokens=[0])
    assert np.abs(found.W).max() < 1e-9
    assert (found.excess < 0).all()
    assert np.isnan(found.log_gap).all()
    assert found.interior.all()


def test_ties_select_the_best_representative():
    keys = [[[0.5, 0.2], [0.5, -0.1], [0.0, 0.0]], [[0.4, -0.3], [0.0, 0.0], [-0.5, -0.2]]]
    p = sv.data.prompt_problem(keys, [[1.0, 1.0, 0.0], [1.0, 0.0, 0.3]])
    found = path(p, [100.0, 1e4])
    direction = found.p[-1] / 1e4
    # by hand: the nearest point to 0 of the segment between the differences (0.5, -0.1) and (0.4, -0.3)
    assert direction == pytest.approx(np.array([2.0, -1.0]) / np.sqrt(5.0), abs=1e-3)


def test_sequences_that_ask_for_nothing():
    """One visible token, a query of 0, and a copy of the best token."""
    keys = np.array([[1.0, 0.3], [0.2, -1.0], [0.0, 0.0]])
    scores = np.array([1.0, 0.0, 0.5])
    goal = path(sv.data.prompt_problem(keys[None], scores[None]), [50.0]).p
    mask = np.array([[True] * 3, [True, False, False]])
    lone = sv.data.prompt_problem([keys, 7.0 * keys], [scores, scores], mask=mask)
    assert path(lone, [50.0]).p == pytest.approx(goal, abs=1e-6)
    z = np.array([[1.0], [0.0]])
    deaf = sv.data.Problem(lone.X, z, lone.y, lone.v, keys=np.stack([keys, keys]))
    found = path(deaf, [50.0])
    assert found.p == pytest.approx(goal, abs=1e-6)
    assert not found.feasible
    copied = sv.data.prompt_problem([np.vstack([keys, keys[:1]])], [np.append(scores, 1.0)])
    assert sv.compare.angle(path(copied, [50.0]).W, goal[..., None]) < 0.05


def test_local_path_stays_in_its_cone_or_ends_on_the_edge(small):
    good, bad = [1, 0], [2, 2]
    assert sv.selection.locally_optimal(small, sv.svm.attention_svm(small, good))
    solution = sv.svm.attention_svm(small, good)
    found = path(small, [160.0, 640.0], tokens=good, cone=0.01)
    assert not found.edge.any()
    fall = 1 - sv.compare.correlation(found.W, solution.W)
    assert fall[1] < fall[0] / 8 < 1e-4
    away = path(small, [160.0, 640.0], tokens=bad, cone=0.01)
    assert away.edge.all()
    assert sv.compare.correlation(away.W, sv.svm.attention_svm(small, bad).W) == pytest.approx(0.99, abs=1e-6)


def test_input_kinds_record_and_progress(small, capsys):
    found = path(small, torch.tensor([5, 10]), starts=np.int64(1), progress=True)
    assert "radius" in capsys.readouterr().err
    assert "Path" in repr(found)
    assert found.K is None
    assert found.attempts.shape == (2, 3)
    assert not found.W.flags.writeable
    assert found.log_gap == pytest.approx(np.nanmin(found.attempts, -1), abs=1e-9)
    narrow = sv.data.Problem(small.X.astype(np.float32), small.z, small.y, small.v)
    assert path(narrow, [5.0]).log_gap == pytest.approx(found.log_gap[:1], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"radii": []}, DataError, "positive and increasing"),
        ({"radii": [1.0, 1.0]}, DataError, "positive and increasing"),
        ({"radii": [-1.0]}, DataError, "positive and increasing"),
        ({"radii": [np.nan]}, DataError, "finite"),
        ({"radii": 3.0}, ShapeError, "radii must have 1 axes"),
        ({"radii": [1e200]}, DataError, "between 1e-100 and 1e100"),
        ({"norm": "spec"}, DataError, "norm must be"),
        ({"norm": None}, DataError, "norm must be"),
        ({"loss": "hinge"}, DataError, "loss must be"),
        ({"starts": -1}, ShapeError, "starts"),
        ({"seed": 0.5}, ShapeError, "seed"),
        ({"tokens": [0, 0]}, DataError, "leave out tokens"),
        ({"cone": 0.1}, DataError, "cone needs tokens"),
        ({"cone": 1.5, "tokens": [0, 0]}, DataError, "between 0 and 1"),
        ({"cone": 0.1, "tokens": [0, 0], "norm": "nuc"}, DataError, "Frobenius"),
        ({"cone": 0.1, "tokens": [0, 5]}, ShapeError, "tokens must lie"),
    ],
)
def test_bad_arguments_are_named(small, arguments, error, message):
    with pytest.raises(error, match=message):
        path(small, **{"radii": [5.0], **arguments})


def test_bad_problems_are_named(small):
    with pytest.raises(DataError, match="needs a head"):
        path(sv.data.Problem(small.X, small.z, small.y), [5.0])
    bent = sv.data.Problem(small.X, small.z, small.y, head=lambda u: u[..., 0])
    with pytest.raises(DataError, match="tokens="):
        path(bent, [5.0])
    with pytest.raises(DataError, match="no logit depends"):
        path(sv.data.Problem(np.ones((1, 1, 2)), np.ones((1, 2)), [1], [1.0, 0.0]), [5.0])
    with pytest.raises(DataError, match="loss is constant"):
        path(sv.data.prompt_problem([[[1.0], [0.0]]], [[2.0, 2.0]]), [5.0])
    with pytest.raises(DataError, match="svmlib"):
        path("data", [5.0])
    inner = sv.data.prompt_problem([[[-1.0], [0.0], [1.0]]], [[0.0, 1.0, 0.0]])
    with pytest.raises(InfeasibleError):
        path(inner, [5.0], tokens=[1], cone=0.1)


def test_a_start_that_ends_nowhere_is_an_error(small, monkeypatch):
    monkeypatch.setattr("svmlib.dynamics._path_newton.ITERATIONS", 1)
    with pytest.raises(SolverError, match=r"At radius 50 .* instance 0"):
        path(small, [50.0], starts=0)
