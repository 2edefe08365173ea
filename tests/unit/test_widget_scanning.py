"""The scanning panel: it recomputes on change, says what fails, and is a picture in the book's build."""

from __future__ import annotations

import base64
import io
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import svmlib as sv
from svmlib.errors import SvmlibError
from svmlib.widgets.scanning import Settings, _words, view

mpl.use("Agg")

SHORT = {"steps": 100}


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.delenv("SVMLIB_BOOK", raising=False)
    plt.close("all")  # of other tests
    box = sv.widgets.scanning_panel()
    controls = {control.description: control for control in box.children[0].children}
    return controls, box.children[1], box.children[2]


def test_every_control_changes_what_is_shown(panel):
    controls, status, picture = panel
    changes = {
        "Steps": 100,
        "Class 1: a, b, own words": "0.4 0.1 0.1 0.15 0.25",
        "Class 2: a, b, own words": "0.1, 0.4, 0.1, 0.2, 0.2",
        "Class 3: a, b, own words": "0.3, 0, 0.1, 0.2, 0.2",
        "Start: a, b, own of class 1": "0, 0, 0.9, 0, 0",
        "Decoder rate": 2.0,
        "Attention rate": 0.5,
        "Follow": "reduced",
        "Show class": 2,
    }
    assert set(changes) == set(controls)
    for name, value in changes.items():
        before = (picture.value, status.value)
        controls[name].value = value
        assert (picture.value, status.value) != before, name
        assert "Not computed" not in status.value, name
        shown = re.fullmatch(
            r'<img alt="[^"]{80,}" src="data:image/png;base64,([^"]+)" style=.*>', picture.value
        )
        assert Image.open(io.BytesIO(base64.b64decode(shown[1]))).format == "PNG"
    assert "Joint flow" not in status.value
    assert plt.get_fignums() == []  # or the notebook would show the figure once more


def test_the_status_tells_the_numbers():
    process, z = Settings().process()
    run = sv.scansnap.reduced_flow(process, [0.0, 100.0], 1.0, 1.0, z=z)
    reduced, joint = view(Settings(**SHORT)).status
    assert "logits rise for own 1, own 2, own 3; they fall for a, b." in reduced
    assert f"own 3 leads, with {run.s[-1, 0, _words(0)[-1]]:.3f} of the attention" in reduced
    assert float(re.search(r"differ by (\S+) %", reduced)[1]) < 0.01
    assert float(re.search(r"differ by (\S+) %", joint)[1]) > 1


def test_a_common_word_that_is_frequent_in_one_class_gains():
    rows = {"first": "0.2 0.4 0.1 0.1 0.2", "second": "0.01 0.4 0.1 0.1 0.2", "third": "0.01 0.4 0.1 0.1 0.2"}
    (text,) = view(Settings(**rows, **SHORT, flows="reduced")).status
    assert "rise for a, own 1, own 2, own 3; they fall for b" in text


def test_bad_settings_are_said_in_the_panel(panel):
    controls, status, picture = panel
    before = picture.value
    first = controls["Class 1: a, b, own words"]
    for value in ("", "1, 2, x, 4, 5", "1, 2, 3", "1, 1, 0, 1, 1", "-1, 1, 1, 1, 1", "nan 1 1 1 1"):
        first.value = value
        assert "Not computed." in status.value and "Class 1" in status.value
        assert picture.value == before
    first.value = Settings().first
    assert "Not computed" not in status.value
    for value in (0.0, -1.0, float("nan"), 1e9):
        controls["Attention rate"].value = value
        assert "Not computed." in status.value and "attention rate (attention_rate) must be" in status.value


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"second": "1 2"}, "Class 2: write 5 numbers .* got '1 2'"),
        ({"third": "1 1 1 1 -1"}, "Class 3: frequencies must not be negative"),
        ({"start": "0 0 0 0 99"}, "Start: logits must lie between"),
        ({"start": "0 0"}, "Start: write 5 numbers"),
        ({"decoder_rate": 1e9}, "decoder rate .* must be one finite number from 0.001 to 100"),
        ({"attention_rate": None}, "attention rate .* got None"),
        ({"steps": 5}, "steps"),
        ({"flows": "x"}, "flows must be one of 'both', 'reduced', 'joint', got 'x'"),
        ({"shown": 4}, "shown must be a class from 1 to 3, got 4"),
    ],
)
def test_settings_that_are_not_allowed_are_named(setting, message):
    with pytest.raises(SvmlibError, match=message):
        Settings(**setting)


@pytest.mark.parametrize("rates", [(1e-3, 100.0), (100.0, 1e-3), (100.0, 100.0)])
def test_the_ends_of_the_rates_can_be_drawn(rates):
    shown = view(Settings(decoder_rate=rates[0], attention_rate=rates[1], steps=100_000))
    assert len(shown.status) == 2 and all("nan" not in text for text in shown.status)


def test_the_book_gets_a_picture_with_alternative_text(monkeypatch):
    monkeypatch.setenv("SVMLIB_BOOK", "1")
    still = sv.widgets.scanning_panel()
    assert isinstance(still, sv.widgets.StaticScanningPanel)
    page = still._repr_mimebundle_()["text/html"]
    assert re.search(r'<img alt="[^"]{80,}" src="data:image/png;base64,', page)
    assert "JupyterLab" in page and "Colab" in page
    assert len(page) < 160_000
    assert "law of growth" in repr(still)


def test_one_state_has_one_picture():
    first, second = (view(Settings(**SHORT)) for _ in range(2))
    assert first.png == second.png and first.status == second.status
    assert np.asarray(Image.open(io.BytesIO(first.png)).convert("RGB"))[0, 0].tolist() == [255, 255, 255]
