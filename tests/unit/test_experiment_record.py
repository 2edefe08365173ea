from __future__ import annotations

import json

import numpy as np
import pytest

from svmlib.experiments import Record, RecordError, load
from svmlib.experiments.record import versions


def test_save_and_load_give_the_same_record(squares, tmp_path, same):
    r = squares(4, seed=2, power=np.int64(3), sides=[0, 2])
    assert r.save(tmp_path / "a" / "b") == tmp_path / "a" / "b" / "t_squares.npz"
    for name in ("t_squares", "t_squares.npz", "t_squares.json"):
        again = load(tmp_path / "a" / "b" / name)
        same(again, r)
        for field in ("name", "trials", "seed", "device", "options", "seconds", "versions"):
            assert getattr(again, field) == getattr(r, field)
    assert load(str(tmp_path / "a" / "b" / "t_squares"))["label"].tolist() == ["k=0", "k=2"]
    with pytest.raises(ValueError, match="read-only"):
        again["values"][0] = 0
    with np.load(tmp_path / "a" / "b" / "t_squares.npz") as stored:  # an ordinary file of numpy
        assert stored.files == ["values", "cell", "label", "wide"]
    about = json.loads((tmp_path / "a" / "b" / "t_squares.json").read_text())
    assert about["experiment"] == "t_squares"
    assert about["arrays"]["values"] == [2, 4]
    assert about["options"] == {"power": 3, "sides": [0, 2]}
    assert about["versions"] == versions()


def test_saving_that_stops_leaves_the_old_record(squares, tmp_path, monkeypatch, same):
    old = squares(4)
    old.save(tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    for broken in ("svmlib.experiments.record.write_arrays", "pathlib.Path.write_text"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            with pytest.raises(RecordError, match=r"cannot store .*No space left"):
                squares(5).save(tmp_path)
        same(load(tmp_path / "t_squares"), old)
        assert len(list(tmp_path.iterdir())) == 2


def test_awkward_arrays_are_stored(tmp_path, same):
    arrays = {
        "file": np.arange(3),  # reserved in numpy's own function
        "empty": np.zeros((0, 4)),
        "scalar": np.float32(2.5),
        "complex": np.array([1j]),
        "special": np.array([np.nan, np.inf, -0.0]),
        "texts": np.array(["ä", "longer"]),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    r = Record("t", arrays, 1, 0, "cpu", {"low": float("inf"), "none": None, "map": {"a": [1]}}, 0.5, {})
    r.save(tmp_path)
    again = load(tmp_path / "t")
    same(again, r)
    assert again.options == r.options == {"low": float("inf"), "none": None, "map": {"a": (1,)}}
    assert np.signbit(again["special"][2])
    arrays["file"][0] = 99
    assert r["file"][0] == 0


def test_errors_of_load_say_what_is_wrong(squares, tmp_path):
    squares(4).save(tmp_path)
    data, about = tmp_path / "t_squares.npz", tmp_path / "t_squares.json"
    whole, text = data.read_bytes(), about.read_text()
    with pytest.raises(RecordError, match=r"no file .*t_cubes\.npz\. Records in .*: t_squares\."):
        load(tmp_path / "t_cubes")
    with pytest.raises(RecordError, match=r"Records in .*: t_squares\."):
        load(tmp_path)
    with pytest.raises(RecordError, match=r"The folder .*nowhere does not exist"):
        load(tmp_path / "nowhere" / "t_squares")
    again = "Run the experiment again: svmlib reproduce t_squares --out"
    for content, message in (
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is no record: experiment, trials, seed"),
        (text.replace('"seed": 0', '"seed": "0"'), "is no record: seed missing or of a wrong type"),
        (text.replace('"t_squares"', '"t_cubes"'), "are not of one run"),
        (text.replace('"arrays": {', '"arrays": {"more": [1],'), "are not of one run"),
    ):
        about.write_text(content)
        with pytest.raises(RecordError, match=f"t_squares.* {message}.*{again}"):
            load(data)
    about.write_text(text)
    for content in (whole[:-40], b"", b"no zip file"):
        data.write_bytes(content)
        with pytest.raises(RecordError, match=f"t_squares.npz is damaged .*{again}"):
            load(about)
    data.write_bytes(whole)
    about.unlink()
    with pytest.raises(RecordError, match=r"no file .*t_squares\.json"):
        load(data)
    about.write_text(text)
    squares(4, seed=9).save(tmp_path / "other")  # same shapes, other numbers
    (tmp_path / "other" / "t_squares.npz").replace(data)
    with pytest.raises(RecordError, match="are not of one run"):
        load(data)
