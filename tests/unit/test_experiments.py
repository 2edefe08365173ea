"""The papers' experiments themselves; the framework and the command line have their own tests."""

from __future__ import annotations

import re

import numpy as np
import pytest

from svmlib import experiments
from svmlib.errors import DataError


def test_trials_follow_the_scale(monkeypatch):
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    assert experiments.trials(100, 8) == 8
    monkeypatch.setenv("SVMLIB_SCALE", "full")
    assert experiments.trials(100, 8) == 100
    monkeypatch.delenv("SVMLIB_SCALE")
    assert experiments.trials(100, 8) == 100
    monkeypatch.setenv("SVMLIB_SCALE", "tiny")
    with pytest.raises(DataError, match='SVMLIB_SCALE must be "full" or "test", got \'tiny\''):
        experiments.trials(100, 8)


def test_planar_paths_bend_to_the_reference_solutions():
    # correlations and solutions re-computed independently for the same two instances
    first = experiments.planar_paths(1, record=[100, 500, 1000, 2000])
    np.testing.assert_allclose(first.correlations["W_fro"], [0.625, 0.994, 0.9987, 0.9997], atol=1e-3)
    np.testing.assert_allclose(first.fro.W, [[2.85369, -2.70294], [5.37124, 5.58053]], atol=1e-4)
    assert int(first.nuc.rank) == 1
    assert float(first.nuc.value) == pytest.approx(9.754809561, rel=1e-8)
    assert first.correlations["KQ_nuc"][-1] > 0.9995
    assert first.correlations["KQ_fro"][-1] == pytest.approx(0.890, abs=2e-3)
    second = experiments.planar_paths(2, 1000, record=[100, 500, 1000])
    np.testing.assert_allclose(second.correlations["W_fro"], [0.993, 0.9992, 0.9999], atol=1e-3)
    np.testing.assert_allclose(second.W_path[-1], second.problem.z @ second.W.W[-1].T)


def test_local_convergence_goes_to_the_svm_of_its_own_norm():
    W, KQ = experiments.local_convergence(8, record=[500, 2000])
    assert W.steps.tolist() == [500, 2000]
    assert W.feasible.all()
    assert (W.fro[:, 1] > W.fro[:, 0]).mean() > 0.8
    assert W.fro[:, 1].mean() > 0.99 > 0.95 > W.nuc[:, 1].mean()
    assert KQ.nuc[:, 1].mean() > 0.94 > 0.9 > KQ.fro[:, 1].mean()
    assert (W.top_probability[:, 1] > 0.99).all()
    again, _ = experiments.local_convergence(3, record=[500, 2000])
    np.testing.assert_array_equal(again.optimal, W.optimal[:3])


def test_records_hold_the_numbers_of_the_functions():
    r = experiments.p1_local_convergence(2, seed=5, steps=200)
    W, KQ = experiments.local_convergence(2, seed=5, steps=200)
    assert set(r) == {f"{what}_{field}" for what in ("W", "KQ") for field in W.__dataclass_fields__}
    for name, found in (("W", W), ("KQ", KQ)):
        for field in W.__dataclass_fields__:
            np.testing.assert_array_equal(r[f"{name}_{field}"], getattr(found, field))
    assert dict(r.options) == {"n": 6, "T": 8, "d": 10, "steps": 200}


@pytest.mark.parametrize("which", [1, 2])
def test_planar_records_hold_the_numbers_of_the_paths(which):
    r = experiments.EXPERIMENTS[f"p1_planar_{which}"](seed=3)
    paths = experiments.planar_paths(which, seed=3)
    np.testing.assert_array_equal(r["KQ_path"], paths.KQ_path)
    np.testing.assert_array_equal(r["W_nuc"], paths.nuc.W)
    np.testing.assert_array_equal(r["correlation_W_fro"], paths.correlations["W_fro"])
    assert r.sizes["W_path"] == (len(r["steps"]), 2, 2)


def test_every_experiment_is_listed_and_documented():
    for name, entry in experiments.EXPERIMENTS.items():
        assert name in experiments.__all__
        assert re.match("p[123]_|beyond_|mirror_|ntp_", name)  # a paper's, or a control or later work
        assert entry.about and entry.source and re.match(r"(about )?[\d.]+ (s|min)", entry.cost), name
        doc = getattr(experiments, name).__doc__
        assert "trials : int, optional" in doc
        assert "    Numbers with their origin, see :class:`Record`. Its arrays:\n\n    " in doc, name
