from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from svmlib import cli, experiments
from svmlib.experiments import EXPERIMENTS, experiment, load


@pytest.fixture(autouse=True)
def interrupts_arrive():
    """A shell starts jobs in the background with SIGINT ignored, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def cells():
    """An experiment of four parts; ``cells.before`` is called before each with its number."""

    def one(k, trials, seed):
        t_cells.before(k)
        t_cells.calls.append(k)
        return {"values": np.random.default_rng([seed, k]).normal(size=trials)}

    @experiment("t_cells", about="cells of numbers", source="a table", trials=50, cost="about 1 s")
    def t_cells(task):
        rows = [task.part(f"k{k}", one, k, task.trials, task.seed) for k in task.progress(range(4))]
        return {"values": np.stack([row["values"] for row in rows])}

    t_cells.calls, t_cells.before = [], lambda k: None
    yield t_cells
    del EXPERIMENTS["t_cells"]


def test_reproduce_stores_a_record(tmp_path, capsys, cells):
    assert (
        cli.main(["reproduce", "t_cells", "--trials", "3", "--seed", "5", "--out", str(tmp_path / "a")]) == 0
    )
    shown = capsys.readouterr()
    assert shown.out.startswith(f"t_cells: 1 arrays in {tmp_path / 'a' / 't_cells.npz'}, ")
    assert "4/4" in shown.err
    stored = load(tmp_path / "a" / "t_cells")
    np.testing.assert_array_equal(stored["values"], cells(3, 5)["values"])
    assert (stored.trials, stored.seed) == (3, 5)
    assert sorted(f.name for f in (tmp_path / "a").iterdir()) == ["t_cells.json", "t_cells.npz"]


def test_reproduce_takes_the_published_number_of_trials(tmp_path, cells, monkeypatch):
    for scale, number in (("full", 50), ("test", 20)):
        monkeypatch.setenv("SVMLIB_SCALE", scale)
        assert cli.main(["reproduce", "t_cells", "--out", str(tmp_path)]) == 0
        assert load(tmp_path / "t_cells").trials == number


def test_reproduce_runs_an_experiment_of_the_papers(tmp_path):
    assert cli.main(["reproduce", "p1_planar_2", "--out", str(tmp_path)]) == 0
    with np.load(tmp_path / "p1_planar_2.npz") as stored:
        assert stored["W_path"].shape[1:] == (2, 2)
    assert json.loads((tmp_path / "p1_planar_2.json").read_text())["trials"] == 1


def test_list_shows_every_experiment_with_its_cost(capsys, cells):
    assert cli.main(["reproduce", "--list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "TRIALS", "COST", "WHAT"]
    assert [row.split()[0] for row in rows] == sorted(EXPERIMENTS)
    at = head.index("COST")
    row = next(r for r in rows if r.startswith("t_cells"))
    assert row.split()[1] == "50"
    assert row[at:].split("  ", 1)[0] == "about 1 s"
    assert row.endswith("cells of numbers")


def test_wrong_words_are_refused(capsys, tmp_path, cells):
    def complaint(*words):
        assert cli.main(["reproduce", *words]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        return shown.err

    names = ", ".join(sorted(EXPERIMENTS))
    assert complaint("x9") == f"svmlib: there is no experiment 'x9'. Choose one of: {names}.\n"
    assert "no experiment 't_cell'. Did you mean 't_cells'? Choose one of: " in complaint("t_cell")
    assert f"no experiment was named. Choose one of: {names}" in complaint()
    assert "--trials must be at least 1, got 0" in complaint("t_cells", "--trials", "0")
    assert "--seed must be a whole number >= 0, got -1" in complaint("t_cells", "--seed", "-1")
    assert "device must be None" in complaint("t_cells", "--device", "gpu")
    assert "is a single run: trials can only be 1" in complaint("p1_planar_1", "--trials", "3")
    occupied = tmp_path / "file"
    occupied.write_text("")
    message = complaint("t_cells", "--out", str(occupied))
    assert f"cannot write to the folder {occupied}" in message
    assert "--out" in message
    assert cells.calls == []
    for words in (["reproduce", "t_cells", "--trials", "many"], ["measure"], []):
        with pytest.raises(SystemExit) as stopped:
            cli.main(words)
        assert stopped.value.code == 2
        assert "usage: svmlib" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_keeps_finished_parts(tmp_path, capsys, cells, number, code):
    out = str(tmp_path / "my results")
    words = ["reproduce", "t_cells", "--trials", "3", "--out", out]
    before = signal.getsignal(signal.SIGTERM)
    cells.before = lambda k: signal.raise_signal(number) if k == 2 else None
    with pytest.MonkeyPatch.context() as patch:
        # without our handler a signal must end this test, not the whole run
        patch.setattr(signal, "SIG_DFL", signal.default_int_handler)
        assert cli.main(words) == code
    assert signal.getsignal(signal.SIGTERM) is before
    shown = capsys.readouterr().err
    assert f"svmlib: t_cells was interrupted; 2 finished parts are kept in {out}/t_cells.parts.\n" in shown
    assert f"To go on: svmlib reproduce t_cells --trials 3 --out '{out}'\n" in shown
    assert cells.calls == [0, 1]
    cells.before = lambda k: None
    assert cli.main(words) == 0
    assert cells.calls == [0, 1, 2, 3]
    np.testing.assert_array_equal(load(tmp_path / "my results" / "t_cells")["values"], cells(3)["values"])


def test_an_interruption_before_the_first_part_says_so(tmp_path, capsys, cells):
    cells.before = lambda k: signal.raise_signal(signal.SIGINT)
    assert cli.main(["reproduce", "t_cells", "--out", str(tmp_path)]) == 130
    shown = capsys.readouterr().err
    assert "no part was finished yet" in shown
    assert "To go on" not in shown


@pytest.mark.filterwarnings("default")
def test_a_damaged_part_is_one_line_of_warning(tmp_path, capsys, cells):
    cells.before = lambda k: signal.raise_signal(signal.SIGINT) if k == 2 else None
    words = ["reproduce", "t_cells", "--trials", "3", "--out", str(tmp_path)]
    assert cli.main(words) == 130
    (tmp_path / "t_cells.parts" / "k1.npz").write_bytes(b"")
    cells.before = lambda k: None
    capsys.readouterr()
    assert cli.main(words) == 0
    lines = [line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if "damaged" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"svmlib: {tmp_path}/t_cells.parts/k1.npz is damaged and is computed again")
    assert cells.calls == [0, 1, 1, 2, 3]


def test_the_version_needs_no_torch():
    code = (
        "import sys, svmlib.cli as c\n"
        "try: c.main(['--version'])\n"
        "except SystemExit: print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    started = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["svmlib 0.1.0", "False False"]
    assert time.perf_counter() - started < 5


def test_the_functions_of_the_module_are_those_of_the_command():
    for name in EXPERIMENTS:
        assert callable(getattr(experiments, name))
