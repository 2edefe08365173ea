"""Live figures, Python's side: states are checked, modules joined, pictures made."""

from __future__ import annotations

import json
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

import svmlib as sv
from svmlib.errors import DataError, ShapeError
from svmlib.widgets import live

mpl.use("Agg")
FIGURES = [
    figure
    for name in sv.widgets.__all__
    if isinstance(figure := getattr(sv.widgets, name), type)
    and issubclass(figure, live.LiveFigure)
    and figure.figure
]
TOY = {
    "title": "Toy",
    "preset": "a",
    "presets": {"a": {"label": "A"}, "b": {"label": "B", "state": {"rate": 5}}},
    "fields": [
        {"name": "rate", "kind": "number", "min": 0.1, "max": 10, "default": 1},
        {"name": "steps", "kind": "integer", "min": 1, "max": 100, "default": 10},
        {"name": "loss", "kind": "choice", "options": {"log": "x", "exp": "y"}, "default": "log"},
        {"name": "open", "kind": "flag", "default": False},
        {"name": "X", "kind": "array", "shape": [[1, 3], [2, 2]], "min": -5, "max": 5, "default": [[0, 0]]},
    ],
}


def test_a_preset_gives_what_is_not_given():
    assert live.checked_state(TOY, {})["rate"] == 1
    state = live.checked_state(TOY, {"preset": "b", "steps": np.int64(7), "X": np.ones((2, 2))})
    assert state == {
        "rate": 5, "steps": 7, "loss": "log", "open": False, "X": [[1.0, 1.0], [1.0, 1.0]], "preset": "b"
    }  # fmt: skip
    json.dumps(state)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"colour": 1}, DataError, "Toy has no field 'colour': it has preset, rate"),
        ({"preset": "c"}, DataError, "preset must be one of 'a', 'b', got 'c'"),
        ({"rate": 11}, DataError, r"rate must lie between 0.1 and 10, got 11"),
        ({"rate": float("nan")}, DataError, "rate must lie between"),
        ({"rate": "3"}, DataError, "rate must be a number, got '3'"),
        ({"rate": True}, DataError, "rate must be a number"),
        ({"steps": 2.5}, DataError, "steps must be a whole number, got 2.5"),
        ({"loss": "mse"}, DataError, "loss must be one of 'log', 'exp', got 'mse'"),
        ({"open": 1}, DataError, "open must be True or False, got 1"),
        ({"X": []}, ShapeError, "X must be a list of 1 to 3 entries, got 0"),
        ({"X": [[1, 2, 3]]}, ShapeError, r"X\[0\] must be a list of 2 entries, got 3"),
        ({"X": [[1, 2], 3]}, ShapeError, r"X\[1\] must be a list of 2 entries, got 3"),
        ({"X": [[1, "a"]]}, DataError, r"X\[0\]\[1\] must be a number, got 'a'"),
        ({"X": [[1, 9]]}, DataError, r"X\[0\]\[1\] must lie between -5 and 5, got 9"),
    ],
)
def test_what_is_out_of_bounds_is_named(values, error, words):
    with pytest.raises(error, match=words):
        live.checked_state(TOY, values)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__name__)
def test_every_figure_has_a_picture_of_every_preset(figure):
    for preset in live.specification(figure.figure)["presets"]:
        made = figure(preset=preset)
        data, _ = made._repr_mimebundle_()
        assert {"application/vnd.jupyter.widget-view+json", "image/png"} <= set(data), preset
    assert plt.get_fignums() == []  # or a notebook would show the picture once more


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__name__)
def test_a_wrong_state_is_refused_and_the_old_one_stays(figure):
    made = figure()
    before = dict(made.state)
    with pytest.raises(DataError, match="has no field"):
        made.state = {"nonsense": 1}
    assert made.state == before
    made.state = {}
    assert made.state == before


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__name__)
def test_a_bundle_is_one_module_that_asks_for_nothing(figure):
    text = live.bundle(figure.figure)
    assert not re.search(r'^(import .* from "|export (?!default))', text, re.MULTILINE)
    assert text.count("export default") == 1
    assert "</script" not in text
    # each module stands in it once, after those that it uses
    names = re.findall(r"^const (\w+_mjs) = \(", text, re.MULTILINE)
    assert len(names) == len(set(names))
    for name in names:
        used = [m.start() for m in re.finditer(rf"\}} = {name};", text)]
        assert all(at > text.index(f"const {name} = (") for at in used)


def test_planar_presets_are_the_librarys_instances():
    for which in (1, 2):
        p = sv.data.planar(which)
        shown = sv.widgets.TokenPlane(preset=f"planar-{which}").problem()
        np.testing.assert_array_equal(shown.keys, p.X)
        np.testing.assert_array_equal(shown.z, p.z)
        np.testing.assert_allclose(shown.scores, p.scores, rtol=1e-15)
    start = sv.attention.Factored.random(sv.data.planar(1), seed=0)
    state = sv.widgets.TokenPlane().state
    np.testing.assert_array_equal([state["K0"], state["Q0"]], [start.K, start.Q])


def test_the_token_plane_says_what_does_not_fit():
    with pytest.raises(ShapeError, match="z must have one query for each of the 2 sequences of X, got 1"):
        sv.widgets.TokenPlane(z=[[1, 0]])
    with pytest.raises(ShapeError, match=r"scores must have one number for each token: \[3, 3\] numbers"):
        sv.widgets.TokenPlane(scoring="own", scores=[[1, 0, 0], [1, 0]])


def test_token_plane_presets_are_what_their_names_say():
    plane = {name: sv.widgets.TokenPlane(preset=name) for name in ("local", "wrong-limit", "infeasible")}
    p = plane["local"].problem()
    runs = plane["local"].train()
    assert (runs["W"].selected != p.optimal).any() and (runs["KQ"].selected == p.optimal).all()
    wrong = plane["wrong-limit"].train()["W"]
    assert wrong.selected.tolist() == [0, 1] and plane["wrong-limit"].problem().optimal.tolist() == [1, 1]
    with pytest.raises(sv.errors.InfeasibleError):
        sv.svm.attention_svm(plane["infeasible"].problem())


def test_the_landscape_is_that_of_its_instance():
    wrong = sv.widgets.Landscape()
    starts, ends = wrong.ends()
    assert starts[0].tolist() == [-8, 8] and len(starts) == 41**2
    right = (ends == wrong.problem().optimal).all(1).mean()
    assert 0.6 < right < 0.7  # 64.4 per cent on a coarser grid
    with pytest.raises(
        ShapeError, match=r"scores must have one number for each token of X: \[2, 2\] numbers"
    ):
        sv.widgets.Landscape(scores=[[1, 0]])


def test_what_does_not_fit_is_said_by_every_figure():
    with pytest.raises(ShapeError, match="common must have 2 rows of one length"):
        sv.widgets.ScanAndSnap(preset="syn-small", common=[[1, 1], [1]])
    with pytest.raises(DataError, match="own must hold positive frequencies"):
        sv.widgets.ScanAndSnap(preset="syn-small", own=[[1, 0], [1, 1]])
    with pytest.raises(DataError, match="vocabulary is 10, but these classes need 34 tokens"):
        sv.widgets.ScanAndSnap(preset="syn-small", vocabulary=10)
    with pytest.raises(DataError, match="shown must be one of the 2 classes, got 3"):
        sv.widgets.ScanAndSnap(preset="syn-small", shown=3)
    with pytest.raises(DataError, match="good must be one of the 5 tokens, got 8"):
        sv.widgets.Selector(good=8)
    with pytest.raises(ShapeError, match="start must have at most 4 logits"):
        sv.widgets.Composition(start=[0] * 5)


def test_the_phase_diagrams_examples_have_the_fate_they_stand_for():
    table = sv.widgets.PhaseDiagram().table
    seen = set()
    for row in table["examples"]:
        for cell in row[::6]:
            for fate, example in cell.items():
                if example is None:
                    continue
                plane = sv.widgets.TokenPlane(scoring="own", show="W", **example)
                p, run = plane.problem(), plane.train()["W"]
                sure = run.top_probability[-1].min() > 0.99
                right = (run.selected == p.optimal).all()
                assert fate == ("open" if not sure else "global" if right else "local")
                seen.add(fate)
    assert seen == {"global", "local", "open"}
    shares = np.array([table["W"][f] for f in ("global", "local", "open")])
    np.testing.assert_allclose(shares.sum(0), 100, atol=0.2)
