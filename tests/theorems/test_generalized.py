"""What the published figure on composing heads says, against the stored records (ledger A38 to A41)."""

import numpy as np
import pytest

from svmlib import experiments

PUBLISHED = {  # read off the figure: one minus the correlation at step 2000, d = 4, 6, 8, 10
    "eq": (0.034, 0.0165, 0.011, 0.0055),
    "mm": (0.072, 0.043, 0.015, 0.0088),
    "one": (0.155, 0.145, 0.135, 0.12),
}


def means(name):
    r = experiments.stored(name)
    return {key: r[key][:, :, -1].astype(float).mean(1) for key in PUBLISHED}


@pytest.mark.parametrize("name", ["p1_composition", "p1_composition_published"])
def test_order_of_the_predictions(name):
    m = means(name)
    assert (m["eq"] < m["mm"]).all()
    assert (m["mm"] < m["one"]).all()
    assert (m["one"] > 0.1).all()


def test_published_arithmetic_agrees_with_the_published_figure():
    m = means("p1_composition_published")
    for key, tolerance in (("eq", 0.006), ("mm", 0.012), ("one", 0.012)):
        np.testing.assert_allclose(m[key], PUBLISHED[key], atol=tolerance, err_msg=key)
    assert m["eq"][3] < m["eq"][0] / 4


def test_exact_gradients_go_elsewhere():
    exact, stopped = means("p1_composition")["eq"], means("p1_composition_published")["eq"]
    assert (exact > 2 * stopped).all()
    assert exact[3] > exact[0] / 4  # the published fall with d is not seen
    r = experiments.stored("p1_composition")
    awake = (r["silent"] == 0).all(-1)
    for j in range(4):
        assert r["rest"][j][awake[j]].mean() < 5e-3
        silent = (r["silent"][j] == 1).any(-1)
        assert r["rest"][j][silent].mean() > 0.05
        assert np.nanmedian(r["awake"][j][silent]) < 5e-3


def test_the_disagreement_comes_from_sequences_that_are_off():
    exact, stopped = (experiments.stored(n) for n in ("p1_composition", "p1_composition_published"))
    for j in range(4):
        groups = experiments.composition.paired(exact, stopped, j)
        error = {
            name: [r["eq"][j, k, -1].astype(float).mean() for r, k in zip((exact, stopped), of, strict=True)]
            for name, of in groups.items()
        }
        assert len(groups["same"][0]) > 300
        assert error["same"][0] == pytest.approx(error["same"][1], abs=2e-3)
        assert error["changed"][0] > 2 * error["changed"][1]
        assert error["alone"][0] > 5 * error["alone"][1]
        for name in ("changed", "alone"):
            for r, k in zip((exact, stopped), groups[name], strict=True):
                assert (r["silent"][j, k] > 0).any(-1).mean() > 0.9


@pytest.mark.parametrize("name", ["p1_composition", "p1_composition_published"])
def test_labels_decide_how_many_tokens(name):
    r = experiments.stored(name)
    size, labels = (r["probability"] > 1e-3).sum(-1), r["labels"]
    for j in range(4):
        assert size[j][labels[j] > 0].mean() < 1.3
    assert size[1][labels[1] < 0].mean() > 2.5


@pytest.mark.parametrize("name", ["p1_composition", "p1_composition_published"])
def test_parts_are_orthogonal(name):
    assert np.abs(experiments.stored(name)["cosine"]).max() < 1e-8


def test_acceptance_rates():
    r = experiments.stored("p1_composition_published")
    np.testing.assert_allclose(500 / r["tried"][:3], (0.18, 0.12, 0.04), atol=0.03)
    assert 35_000 < r["tried"].sum() < 60_000
