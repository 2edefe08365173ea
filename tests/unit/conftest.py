"""An experiment of the tests' own, for the framework and for its records."""

from __future__ import annotations

import numpy as np
import pytest

from svmlib.experiments import Task, experiment, framework


@pytest.fixture
def registry(monkeypatch):
    """A registry of the test's own."""
    own: dict = {}
    monkeypatch.setattr(framework, "EXPERIMENTS", own)
    return own


@pytest.fixture
def squares(registry):
    """An experiment of four parts that counts how often each was computed, and can be stopped in one."""
    calls: list[int] = []
    stop: list[int] = []

    def one(k, trials, seed, power):
        if k in stop:
            raise KeyboardInterrupt
        calls.append(k)
        draws = np.random.default_rng([seed, k]).normal(size=trials)
        return {"values": draws**power, "cell": k, "label": f"k={k}", "wide": draws > 0}

    @experiment("t_squares", about="powers of numbers", source="a table", trials=50, cost="1 s")
    def t_squares(task: Task, *, power: int = 2, sides: tuple[int, ...] = (0, 1, 2, 3)):
        """Powers of random numbers.

        More text.

        Parameters
        ----------
        task : Task
            Trials are numbers,
            as said.
        power : int
            The exponent.
        sides : tuple of int
            The cells.

        Returns
        -------
        values : ndarray
            (sides, trials) powers.
        label : ndarray
            (sides,) texts.

        Notes
        -----
        A note.
        """
        rows = [task.part(f"k{k}", one, k, task.trials, task.seed, power) for k in task.progress(sides)]
        return {key: np.stack([row[key] for row in rows]) for key in ("values", "cell", "label", "wide")}

    t_squares.calls, t_squares.stop = calls, stop
    return t_squares


@pytest.fixture
def same():
    """Compare two records."""

    def compare(a, b):
        assert list(a.arrays) == list(b.arrays)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])
            assert a[key].dtype == b[key].dtype
            assert a[key].shape == b[key].shape

    return compare
