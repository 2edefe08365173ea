"""The trajectory panel: it recomputes on change, says what fails, and is a picture in the book's build."""

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
from svmlib.errors import InfeasibleError, SvmlibError
from svmlib.widgets.trajectories import Settings, view

mpl.use("Agg")


@pytest.fixture
def panel(monkeypatch):
    monkeypatch.delenv("SVMLIB_BOOK", raising=False)
    plt.close("all")  # of other tests
    box = sv.widgets.trajectory_panel()
    controls = {control.description: control for control in box.children[0].children}
    return controls, box.children[1], box.children[2]


def test_every_control_changes_what_is_shown(panel):
    controls, status, picture = panel
    changes = {
        "Instance": "2",
        "Seed (random data, start of K)": 5,
        "Loss": "exponential",
        "Steps are": "plain",
        "Step size": 0.5,
        "Number of steps": 300,
        "Train": "W",
    }
    assert set(changes) | {"SVM of"} == set(controls)
    for name, value in changes.items():
        before = (picture.value, status.value)
        controls[name].value = value
        assert (picture.value, status.value) != before, name
        shown = re.fullmatch(
            r'<img alt="[^"]{80,}" src="data:image/png;base64,([^"]+)" style=.*>', picture.value
        )
        assert Image.open(io.BytesIO(base64.b64decode(shown[1]))).format == "PNG"
    assert "(K, Q)" not in status.value
    assert plt.get_fignums() == []  # or the notebook would show the figure once more


def test_the_status_tells_the_numbers(panel):
    controls, status, _ = panel
    controls["Train"].value = "W"
    p = sv.data.planar(1)
    run = sv.dynamics.train(p, sv.attention.Direct.zeros(p), sv.dynamics.normalized(0.1), 1000)
    expected = sv.compare.correlation(run.W[-1], sv.svm.attention_svm(p).W)
    assert re.search(r"correlation (0\.\d+) with the Frobenius", status.value)[1] == f"{expected:.4f}"
    assert "W selects tokens 1, 3 (all optimal)" in status.value


def test_bad_settings_are_said_in_the_panel(panel):
    controls, status, picture = panel
    before = picture.value
    for value in (0.0, -1.0, float("nan"), 1e300, 1e-300):
        controls["Step size"].value = value
        assert (
            "Not computed." in status.value and "step size (rate) must be one finite number" in status.value
        )
        assert picture.value == before
    controls["Step size"].value = 0.1
    assert "Not computed" not in status.value


def test_optimal_tokens_that_cannot_be_separated_are_said_in_the_panel(panel):
    def infeasible(seed):
        try:
            sv.svm.attention_svm(sv.data.random_problem(3, 4, 2, seed=seed))
        except InfeasibleError:
            return True
        return False

    seed = next(s for s in range(50) if infeasible(s))
    controls, status, picture = panel
    controls["Number of steps"].value = 100
    controls["Instance"].value = "random"
    controls["Seed (random data, start of K)"].value = seed
    assert "correlation" in status.value  # the tokens that training selects can always be separated
    before = picture.value
    controls["SVM of"].value = "optimal"
    assert "There is no SVM direction to compare with." in status.value
    assert picture.value != before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"instance": "3"}, "instance must be one of '1', '2', 'random', got '3'"),
        ({"parametrisation": "x"}, "parametrisation must be one of 'both', 'W', 'KQ', got 'x'"),
        ({"loss": "hinge"}, "loss must be one of 'logistic', .* got 'hinge'"),
        ({"rule": "normalized"}, "rule must be one of 'normalised', 'plain', got 'normalized'"),
        ({"tokens": ["optimal"]}, r"tokens must be one of 'selected', 'optimal', got \['optimal'\]"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"rate": 1e300}, "rate.* must be one finite number from 1e-06 to 1e\\+06, got 1e\\+300"),
        ({"rate": 1e-300}, "rate.* must be one finite number"),
        ({"rate": None}, "rate.* must be one finite number .* got None"),
    ],
)
def test_settings_that_are_not_allowed_are_named(setting, message):
    with pytest.raises(SvmlibError, match=message):
        Settings(**setting)


@pytest.mark.parametrize("rule", ["normalised", "plain"])
@pytest.mark.parametrize("rate", [1e-6, 1e6])
def test_the_ends_of_the_step_sizes_can_be_drawn(rule, rate):
    shown = view(Settings(rule=rule, rate=rate, steps=100))
    for sentence in shown.status:
        assert 0 < float(re.search(r"its norm is ([^;.]+(?:\.\d+)?(?:e[+-]\d+)?)", sentence)[1]) < np.inf


def test_the_book_gets_a_picture_with_alternative_text(monkeypatch):
    monkeypatch.setenv("SVMLIB_BOOK", "1")
    still = sv.widgets.trajectory_panel()
    assert isinstance(still, sv.widgets.StaticPanel)
    page = still._repr_mimebundle_()["text/html"]
    assert re.search(r'<img alt="[^"]{80,}" src="data:image/png;base64,', page)
    assert "JupyterLab" in page and "Colab" in page
    assert len(page) < 160_000
    assert "correlation" in repr(still)


def test_one_state_has_one_picture():
    first, second = (view(Settings(steps=100)) for _ in range(2))
    assert first.png == second.png and first.status == second.status
    assert np.asarray(Image.open(io.BytesIO(first.png)).convert("RGB"))[0, 0].tolist() == [255, 255, 255]
