from __future__ import annotations

import inspect

import numpy as np
import pytest

from svmlib.errors import DataError, ShapeError
from svmlib.experiments import EXPERIMENTS, Record, RecordError, Task, experiment, load
from svmlib.experiments.record import versions


def test_an_experiment_returns_a_record(squares, registry, same):
    r = squares(3, seed=1, power=3, sides=np.array([1, 4]))
    assert isinstance(r, Record)
    assert (r.name, r.trials, r.seed, r.device) == ("t_squares", 3, 1, "cpu")
    assert dict(r.options) == {"power": 3, "sides": (1, 4)}
    np.testing.assert_array_equal(r["values"][1], np.random.default_rng([1, 4]).normal(size=3) ** 3)
    assert r.sizes == {"values": (2, 3), "cell": (2,), "label": (2,), "wide": (2, 3)}
    assert r["label"].tolist() == ["k=1", "k=4"]
    assert 0 < r.seconds < 60
    assert r.versions["numpy"] == np.__version__
    assert {"python", "svmlib", "numpy", "scipy", "torch", "cvxpy", "clarabel"} == set(r.versions)
    assert repr(r).startswith("<Record of t_squares: 3 trials from seed 1, 0.0 s; values (2, 3), cell (2,)")
    same(r, registry["t_squares"](3, 1, power=3, sides=(1, 4)))


def test_a_record_cannot_be_changed(squares):
    r = squares(2)
    with pytest.raises(ValueError, match="read-only"):
        r["values"][0] = 0
    with pytest.raises(TypeError):
        r.arrays["values"] = np.zeros(2)
    with pytest.raises(TypeError):
        r.options["power"] = 9
    with pytest.raises(AttributeError):
        r.seed = 4
    with pytest.raises(KeyError, match="t_squares has no array 'vallues', it has 4; did you mean 'values'"):
        r["vallues"]


def test_trials_follow_the_scale(squares, monkeypatch):
    monkeypatch.delenv("SVMLIB_SCALE", raising=False)
    assert squares().trials == 50
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    assert squares().trials == 20
    assert squares(30).trials == 30

    @experiment("t_few", about="a", source="b", trials=50, test_trials=7, cost="c")
    def t_few(task):
        return {"a": task.trials}

    assert int(t_few()["a"]) == 7


def test_arguments_are_checked(squares, registry):
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ShapeError, match="trials must be a positive integer"):
            squares(bad)
    with pytest.raises(ShapeError, match="seed must be a whole number >= 0"):
        squares(2, seed=-1)
    with pytest.raises(DataError, match="device must be None"):
        squares(2, device="gpu")
    with pytest.raises(TypeError, match=r"t_squares has no argument 'powr'\. Did you mean 'power'\?"):
        squares(2, powr=3)
    with pytest.raises(DataError, match="power must be made of numbers, texts, lists and arrays"):
        squares(2, power=object())
    assert squares.calls == []

    @experiment("t_single", about="a", source="b", trials=1, cost="c")
    def t_single(task):
        return {"a": task.trials}

    assert t_single().trials == t_single(1).trials == 1
    with pytest.raises(DataError, match="t_single is a single run: trials can only be 1, got 2"):
        t_single(2)
    assert "Only 1: this is a single run." in t_single.__doc__


def test_the_device_is_handed_on(registry, monkeypatch):
    seen = []

    @experiment("t_device", about="a", source="b", trials=5, cost="c")
    def t_device(task):
        seen.append((task.device, task.show_progress))
        return {"a": 1}

    monkeypatch.delenv("SVMLIB_DEVICE", raising=False)
    t_device()
    t_device(device="auto", progress=True)
    monkeypatch.setenv("SVMLIB_DEVICE", "auto")
    assert t_device().device == "auto"
    assert seen == [("cpu", False), ("auto", True), ("auto", False)]


def test_documentation_and_signature_are_the_public_ones(squares):
    assert list(inspect.signature(squares).parameters) == [
        *("trials", "seed", "device", "progress", "folder"),
        *("power", "sides"),
    ]
    assert inspect.signature(squares).parameters["sides"].default == (0, 1, 2, 3)
    doc = squares.__doc__
    assert "task" not in doc
    assert "as said" not in doc
    order = [
        "Powers of random numbers.\n\nMore text.\n\nSource: a table.\n\nParameters\n",
        "trials : int, optional\n    Number of trials: 50 by default, fewer under SVMLIB_SCALE=test.",
        "the record.\npower : int\n    The exponent.\nsides : tuple of int\n    The cells.\n\nReturns\n",
        "Record\n    Numbers with their origin, see :class:`Record`. Its arrays:\n\n",
        "\n\n    values : ndarray\n        (sides, trials) powers.\n    label : ndarray\n",
        "\n\nNotes\n-----\nA note.\n",
    ]
    places = [doc.index(text) for text in order]
    assert places == sorted(places)
    assert squares.__module__.endswith("conftest")  # where the experiment was written, not the framework


def test_bad_definitions_are_refused(registry):
    about = {"about": "a", "source": "b", "trials": 2, "cost": "c"}
    with pytest.raises(DataError, match="name must be made of a-z, 0-9 and _, got 'P1 rank'"):
        experiment("P1 rank", **about)
    with pytest.raises(ShapeError, match="trials must be a positive integer"):
        experiment("t", **{**about, "trials": 0})
    for wrong in (lambda *, task: {}, lambda x: {}, lambda task, a=1: {}, lambda task, *, a: {}):
        with pytest.raises(DataError, match=r"t must be a function \(task, \*, option=default"):
            experiment("t", **about)(wrong)
    with pytest.raises(DataError, match=r"option 'seed', which every experiment has: use task\.seed"):
        experiment("t", **about)(lambda task, *, seed=0: {})

    def first(task):
        return {"a": 1}

    def second(task):
        return {"a": 2}

    experiment("t", **about)(first)
    experiment("t", **about)(first)  # a module that is loaded again
    with pytest.raises(DataError, match="Two experiments are called 't'"):
        experiment("t", **about)(second)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "t must return a dict of arrays, got NoneType 'None'"),
        ({}, "t must return a dict of arrays, got dict"),
        ({"a b": 1}, "an array called 'a b'; use letters, digits and _"),
        ({"_seconds": 1}, "an array called '_seconds'"),
        ({"a": None}, r"t: 'a' is no array of numbers, truth values or texts \(it has dtype object\)"),
        ({"a": [[1], [1, 2]]}, "t: 'a' is no array"),
    ],
)
def test_what_an_experiment_returns_is_checked(registry, result, message):
    run = experiment("t", about="a", source="b", trials=2, cost="c")(lambda task: result)
    with pytest.raises(DataError, match=message):
        run()


def test_progress_is_shown_where_asked(squares, capsys):
    squares(2)
    assert capsys.readouterr().err == ""
    squares(2, progress=True)
    assert "4/4" in capsys.readouterr().err
    assert list(Task(1, show_progress=True).progress(iter("ab"), "letters")) == ["a", "b"]
    assert "letters" in capsys.readouterr().err


def interrupt(squares, folder, **how):
    squares.stop.append(2)
    with pytest.raises(KeyboardInterrupt, match=r"2 finished parts are kept in .*t_squares\.parts"):
        squares(5, folder=folder, **how)
    squares.stop.clear()
    assert squares.calls == [0, 1]
    assert sorted(f.name for f in folder.iterdir()) == ["t_squares.parts"]
    assert sorted(f.name for f in (folder / "t_squares.parts").iterdir()) == ["k0.npz", "k1.npz"]
    squares.calls.clear()


def test_an_interrupted_run_goes_on_where_it_was(squares, tmp_path, same):
    folder = tmp_path / "new" / "results"
    interrupt(squares, folder)
    resumed = squares(5, folder=folder)
    assert squares.calls == [2, 3]
    same(resumed, squares(5))
    assert sorted(f.name for f in folder.iterdir()) == ["t_squares.json", "t_squares.npz"]
    same(load(folder / "t_squares"), resumed)
    squares.calls.clear()
    squares(5, folder=folder)  # a finished run is measured afresh
    assert squares.calls == [0, 1, 2, 3]


def test_time_of_finished_parts_counts(squares, tmp_path, monkeypatch):
    clock = [0.0]

    def tick():
        clock[0] += 10.0
        return clock[0]

    monkeypatch.setattr("time.perf_counter", tick)
    interrupt(squares, tmp_path)  # two parts of 10 s
    record = squares(5, folder=tmp_path)  # five readings of the clock from first to last: 50 s
    assert record.seconds == 70.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed 0, now 1"),
        ({"trials": 6}, "trials 5, now 6"),
        ({"power": 3}, r'options \{"power": 2.*now \{"power": 3'),
        ({"device": "auto"}, 'device "cpu", now "auto"'),
    ],
)
def test_parts_of_another_run_are_computed_again(squares, tmp_path, change, message, same):
    interrupt(squares, tmp_path)
    how = {"trials": 5, **change}
    with pytest.warns(UserWarning, match=f"from another run .{message}") as caught:
        fresh = squares(**how, folder=tmp_path)
    assert len(caught) == 1
    assert squares.calls == [0, 1, 2, 3]
    same(fresh, squares(**how))
    assert not (tmp_path / "t_squares.parts").exists()


def test_parts_of_other_code_or_versions_are_computed_again(squares, tmp_path, monkeypatch):
    interrupt(squares, tmp_path)
    monkeypatch.setattr("svmlib.experiments._parts._code", lambda: "0")
    monkeypatch.setattr("svmlib.experiments._parts.versions", lambda: {**versions(), "torch": "1.0"})
    with pytest.warns(UserWarning, match=r"torch .*, now \"1.0\"; the library's code has changed"):
        squares(5, folder=tmp_path)
    assert squares.calls == [0, 1, 2, 3]


def test_parts_of_another_scale_are_computed_again(squares, tmp_path, monkeypatch):
    monkeypatch.delenv("SVMLIB_SCALE", raising=False)
    interrupt(squares, tmp_path)
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    with pytest.warns(UserWarning, match='scale "full", now "test"'):
        squares(5, folder=tmp_path)
    assert squares.calls == [0, 1, 2, 3]


def test_a_part_under_another_name_is_not_taken(squares, tmp_path):
    interrupt(squares, tmp_path)
    parts = tmp_path / "t_squares.parts"
    (parts / "k0.npz").replace(parts / "k1.npz")
    with pytest.warns(UserWarning, match="from another run"):
        record = squares(5, folder=tmp_path)
    assert record["cell"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", ["short", "flipped", "text", "empty", "foreign"])
def test_a_damaged_part_is_computed_again(squares, tmp_path, damage, same):
    interrupt(squares, tmp_path)
    part = tmp_path / "t_squares.parts" / "k1.npz"
    whole = part.read_bytes()
    middle = whole.index(b"values.npy") + 60
    if damage == "foreign":
        np.savez(part, values=np.zeros(5))
    else:
        part.write_bytes(
            {
                "short": whole[:-30],
                "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
                "text": b"no zip file",
                "empty": b"",
            }[damage]
        )
    with pytest.warns(UserWarning, match=r"k1\.npz is damaged and is computed again"):
        record = squares(5, folder=tmp_path)
    assert squares.calls == [1, 2, 3]
    same(record, squares(5))


def test_a_part_that_stops_while_it_is_written_leaves_nothing(squares, tmp_path, monkeypatch):
    def full(file, _):
        file.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("svmlib.experiments._parts.write_arrays", full)
    with pytest.raises(RecordError, match=r"cannot store .*k0\.npz.*No space left.*parts are kept"):
        squares(5, folder=tmp_path)
    assert list((tmp_path / "t_squares.parts").iterdir()) == []


def test_keys_of_parts_are_checked():
    task = Task(1)
    for bad in ("", "a/b", "..", ".a", "a b", "é"):
        with pytest.raises(DataError, match="A part's key must be made of letters"):
            task.part(bad, dict)
    assert task.part("n=2_T-1.5", lambda x, y: {"a": x + y}, 1, y=2)["a"] == 3
    with pytest.raises(DataError, match=r"Two parts have the key 'N=2_T-1\.5'"):
        task.part("N=2_T-1.5", lambda: {"a": 1})
    with pytest.raises(DataError, match="Part 'x' must return a dict of arrays, got list"):
        task.part("x", lambda: [1])


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(squares, tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("")
    for folder in (occupied, occupied / "below"):
        with pytest.raises(RecordError, match=r"cannot write to the folder .*file.*Choose another one"):
            squares(2, folder=folder)
    assert squares.calls == []
    assert isinstance(RecordError("x"), OSError)


def test_a_folder_without_permission_is_refused_before_the_work(squares, tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.touch", denied)
    with pytest.raises(RecordError, match=r"cannot write to the folder .*: Permission denied\. Choose"):
        squares(2, folder=tmp_path)
    assert squares.calls == []


def test_the_library_registers_its_own(registry):
    assert {"p1_planar_1", "p1_planar_2", "p1_local_convergence"} <= set(EXPERIMENTS)
    assert not registry
