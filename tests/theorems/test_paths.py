"""The experiment of the chapter on regularisation paths, and claims that fail on wrong mathematics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import svmlib as sv
from svmlib.checks import paths, paths_limits
from svmlib.experiments.paths import feature_weights, path_residual


def passed(found):
    return all(m.passed for m in found)


def test_the_experiment():
    r = sv.experiments.p1_regularization_path(trials=3, radii=(10, 1000))
    assert r["fro_fro"].shape == (3, 2)
    assert (1 - r["fro_fro"][:, 1] < 1e-3).all()
    assert (1 - r["nuc_nuc"][:, 1] < 1e-3).all()
    assert r["fro_nuc"][:, 1] == pytest.approx(r["both"], abs=0.02)
    assert (r["log_gap_fro"] >= r["log_floor_fro"]).all()
    assert r["optimal_nuc"][:, 1].all()
    assert r["table_fro_fro"] == pytest.approx([0.9221, 0.9826, 0.9955, 0.9985, 0.9995, 0.9998], abs=6e-4)
    assert r["table_nuc_nuc"] == pytest.approx([0.7970, 0.9703, 0.9892, 0.9975, 0.9995, 0.9999], abs=6e-4)
    assert r["table_K"] == pytest.approx(np.sqrt(r["table_radii"]))
    assert r["table_norm"] == pytest.approx(r["table_radii"])


@pytest.mark.parametrize("loss", ["logistic", "exponential", "linear"])
def test_the_residual_is_the_limit_of_the_path(loss):
    p = sv.data.random_problem(2, 3, 3, seed=11)
    solution = sv.svm.attention_svm(p)
    rest = path_residual(p, solution, loss)
    assert (rest * solution.W).sum() == pytest.approx(0.0, abs=1e-8)
    B = solution.W / solution.value
    errors = []
    for W in sv.dynamics.regularization_path(p, [1e4, 1e5, 1e6], loss=loss).W:
        errors.append(np.linalg.norm(W - (W * B).sum() * B - rest))
    assert errors[2] < 1e-3
    assert errors[2] < errors[1] / 5 < errors[0] / 25


def test_no_residual_without_general_position():
    dull = sv.data.prompt_problem([[[1, 0], [0, 0]], [[1, 1], [0, 0]]], [[1, 0], [1, 0]])
    assert np.isnan(path_residual(dull, sv.svm.attention_svm(dull))).all()
    p = sv.data.random_problem(2, 3, 3, seed=11)
    wrong = sv.svm.attention_svm(p, [0, 0])
    if (feature_weights(p, [0, 0])[wrong.support] <= 0).any():
        assert np.isnan(path_residual(p, wrong)).all()


def test_a_wrong_residual_is_found(monkeypatch):
    assert passed(paths_limits.rate(6))
    monkeypatch.setattr(paths_limits, "path_residual", lambda *a: 1.1 * path_residual(*a))
    assert not passed(paths_limits.rate(6))


def test_a_bound_that_is_too_high_is_found(monkeypatch):
    assert passed(paths.floor(6))
    original = paths.followed

    def raised(trials, norm):
        p, solution, found = original(trials, norm)
        return p, solution, replace(found, log_floor=found.log_floor + 0.1)

    monkeypatch.setattr(paths, "followed", raised)
    assert not passed(paths.floor(6))


@pytest.mark.parametrize("factors", [(0.2, 1.0), (1.0, 6.0)])
def test_a_wrong_price_is_found(monkeypatch, factors):
    assert passed(paths.price(20))
    original = paths.prices
    monkeypatch.setattr(paths, "prices", lambda p: [c * f for c, f in zip(original(p), factors, strict=True)])
    assert not passed(paths.price(20))
