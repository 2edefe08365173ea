from __future__ import annotations

import json

import numpy as np
import pytest

from svmlib import cli, experiments
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


def test_reproduce_stores_numbers_with_their_origin(tmp_path, capsys):
    assert (
        cli.main(
            ["reproduce", "p1_local_convergence", "--trials", "2", "--seed", "5", "--out", str(tmp_path)]
        )
        == 0
    )
    assert "p1_local_convergence.npz" in capsys.readouterr().out
    with np.load(tmp_path / "p1_local_convergence.npz") as stored:
        assert stored["W_fro"].shape[0] == 2
        W, _ = experiments.local_convergence(2, seed=5)
        np.testing.assert_array_equal(stored["W_fro"], W.fro)
    about = json.loads((tmp_path / "p1_local_convergence.json").read_text())
    assert about["seed"] == 5
    assert about["arrays"]["W_fro"] == list(W.fro.shape)
    assert not list(tmp_path.glob("*.partial*"))


def test_reproduce_lists_and_refuses(capsys, tmp_path):
    assert cli.main(["reproduce", "--list"]) == 0
    assert set(experiments.EXPERIMENTS) <= set(capsys.readouterr().out.split())
    assert cli.main(["reproduce", "p9"]) == 2
    assert "there is no experiment 'p9'. Choose one of: p1_planar_1" in capsys.readouterr().err
    assert cli.main(["reproduce"]) == 2
    assert "no experiment was named" in capsys.readouterr().err
    assert cli.main(["reproduce", "p1_planar_1", "--trials", "0"]) == 2
    assert "--trials must be at least 1" in capsys.readouterr().err
    assert cli.main(["reproduce", "p1_planar_1", "--seed", "-1"]) == 2
    assert "--seed must be a whole number >= 0, got -1" in capsys.readouterr().err
    assert cli.main(["reproduce", "p1_planar_1", "--device", "gpu"]) == 2
    assert "device must be None" in capsys.readouterr().err
    occupied = tmp_path / "file"
    occupied.write_text("")
    assert cli.main(["reproduce", "p1_planar_1", "--out", str(occupied)]) == 2
    assert "cannot write to the folder" in capsys.readouterr().err


def test_planar_records_are_stored_too(tmp_path):
    for which in (1, 2):
        assert cli.main(["reproduce", f"p1_planar_{which}", "--out", str(tmp_path)]) == 0
        with np.load(tmp_path / f"p1_planar_{which}.npz") as stored:
            assert stored["W_path"].shape[1:] == (2, 2)
