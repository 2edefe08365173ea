"""Entropy and change of attention maps, and the onset of a freeze: by hand, and on speeds made to order."""

import numpy as np
import pytest
import torch

from svmlib.errors import DataError, ShapeError
from svmlib.language import (
    ScanLayer,
    Transformer,
    attention_change,
    attention_entropy,
    change_speed,
    freeze_onset,
)


def uniform(T: int, own: bool) -> np.ndarray:
    mask = np.tril(np.ones((T, T)), 0 if own else -1)
    return mask / np.maximum(mask.sum(1, keepdims=True), 1)


def test_entropy_of_uniform_attention() -> None:
    own = uniform(4, True)[None, None]
    assert attention_entropy(own).shape == (1,)
    # the first position has no choice; the others can read 2, 3 and 4
    np.testing.assert_allclose(attention_entropy(own), np.log([2, 3, 4]).mean())
    before = uniform(4, False)[None, None]
    np.testing.assert_allclose(attention_entropy(before), np.log([2, 3]).mean())
    for maps in (own, before):
        np.testing.assert_allclose(attention_entropy(maps, relative=True), 1)


def test_entropy_keeps_snapshots_and_heads() -> None:
    sharp = np.zeros((3, 3))
    sharp[[1, 2], 0] = 1  # reads the first token alone
    flat = uniform(3, False)
    maps = np.array([[[flat, sharp], [sharp, flat]], [[sharp, sharp], [sharp, flat]]])  # (2, P=2, H=2, 3, 3)
    np.testing.assert_allclose(attention_entropy(maps), np.log(2) / 2 * np.array([[1, 1], [0, 1]]))
    np.testing.assert_allclose(attention_entropy(maps, relative=True), [[0.5, 0.5], [0, 0.5]])


@pytest.mark.parametrize("model", [ScanLayer(8), Transformer(8, heads=2, width=8, hidden=0)])
def test_entropy_of_models(model: torch.nn.Module) -> None:
    maps = model(torch.arange(12).reshape(2, 6) % 8).attention[0].detach()
    relative = attention_entropy(maps, relative=True)
    assert relative.shape == (maps.shape[1],) and (relative > 0.9).all() and (relative <= 1 + 1e-6).all()


def test_change_by_hand() -> None:
    one = np.array([[0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])
    two = np.array([[0, 0, 0], [1, 0, 0], [0.8, 0.2, 0]])
    maps = np.array([one, two, two, one])[:, None, None]
    np.testing.assert_allclose(attention_change(maps), [[0.3], [0], [0.3]])
    middle, speed = change_speed([0, 10, 40, 90], maps)
    np.testing.assert_allclose(middle, [5, 20, 60])
    np.testing.assert_allclose(speed, [[0.03], [0], [0.006]])
    full = np.array([np.eye(2), [[1, 0], [1, 0]]])[:, None, None]
    np.testing.assert_allclose(attention_change(full), [[1]])  # all of it moves


@pytest.mark.parametrize(
    "maps, error, match",
    [
        (np.eye(3), ShapeError, "at least 4 axes"),
        (np.ones((1, 1, 2, 3)), ShapeError, r"none empty, got shape \(1, 1, 2, 3\)"),
        (np.ones((1, 1, 3, 3)) / 3, DataError, "no position reads a later one"),
        (2 * uniform(3, True)[None, None], DataError, "Rows of maps must be probabilities"),
        (-uniform(3, True)[None, None], DataError, "Rows of maps must be probabilities"),
        (np.stack([uniform(3, True), uniform(3, False)])[:, None], DataError, "do not mix models"),
        (uniform(2, False)[None, None], ShapeError, "use longer probes"),
        (np.full((1, 1, 2, 2), np.nan), DataError, "must be finite"),
    ],
)
def test_entropy_errors(maps: np.ndarray, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        attention_entropy(maps)


def test_change_errors() -> None:
    maps = np.stack([uniform(3, True)] * 2)[:, None, None]
    with pytest.raises(ShapeError, match="needs two snapshots"):
        attention_change(maps[:1])
    with pytest.raises(ShapeError, match="5 axes"):
        attention_change(maps[0])
    with pytest.raises(ShapeError, match="one for each snapshot"):
        change_speed([1, 2, 3], maps)
    for steps in ([2, 2], [3, 1], [-1, 4]):
        with pytest.raises(DataError, match="must rise, from 0 or later"):
            change_speed(steps, maps)


def kinked(t: np.ndarray, knot: float, before: float, after: float) -> np.ndarray:
    return 0.02 * np.where(t < knot, (t / knot) ** before, (t / knot) ** after)


def test_onset_of_exact_data() -> None:
    t = np.geomspace(10, 10_000, 20)
    onset = freeze_onset(t, kinked(t, t[11], 0.3, -1.2))
    assert onset.found and onset.left_out == 0
    assert onset.step == pytest.approx(t[11]) == onset.low == onset.high
    assert (onset.before, onset.after) == pytest.approx((0.3, -1.2))
    assert onset.height == pytest.approx(0.02) and onset.share == pytest.approx(1)
    np.testing.assert_allclose(onset.curve(t), kinked(t, t[11], 0.3, -1.2))


def test_onset_between_points_and_under_noise() -> None:
    t = np.geomspace(10, 10_000, 16)
    off = [freeze_onset(t, kinked(t, k, -0.1, -1.0)).step / k for k in np.geomspace(60, 1500, 15)]
    np.testing.assert_allclose(off, 1, rtol=0.05)
    rng = np.random.default_rng(0)
    noisy = [freeze_onset(t, kinked(t, 300, -0.1, -1.0) * np.exp(rng.normal(0, 0.1, 16))) for _ in range(200)]
    assert np.mean([o.found for o in noisy]) > 0.98
    assert np.median([o.step for o in noisy]) == pytest.approx(300, rel=0.1)
    assert np.mean([o.low <= 300 <= o.high for o in noisy]) > 0.85


def test_no_onset_in_a_power_law_with_or_without_noise() -> None:
    t = np.geomspace(10, 10_000, 20)
    exact = freeze_onset(t, 3 * t**-0.7)
    assert not exact.found and exact.improvement < 0 and exact.before == pytest.approx(-0.7)
    rng = np.random.default_rng(1)
    false = [freeze_onset(t, t**-0.7 * np.exp(rng.normal(0, 0.2, 20))).found for _ in range(400)]
    assert np.mean(false) < 0.03


def test_a_speed_that_picks_up_is_no_freeze() -> None:
    t = np.geomspace(10, 10_000, 20)
    onset = freeze_onset(t, kinked(t, t[8], -1.0, 0.5))
    assert not onset.found and onset.improvement > 6 and onset.after > onset.before


def test_speeds_of_zero_are_left_out_and_counted() -> None:
    t = np.geomspace(10, 10_000, 20)
    speed = kinked(t, t[9], 0.0, -1.0)
    speed[[3, 18, 19]] = 0
    onset = freeze_onset(t, speed)
    assert onset.found and onset.left_out == 3 and onset.step == pytest.approx(t[9])
    with pytest.raises(DataError, match=r"at least 7 positive speeds, got 6 \(and 14 of 0\)"):
        freeze_onset(t, np.where(np.arange(20) < 6, speed + 1, 0))


def test_onset_errors() -> None:
    t = np.arange(1.0, 11)
    with pytest.raises(DataError, match="at least 7 positive speeds, got 5"):
        freeze_onset(t[:5], t[:5])
    with pytest.raises(DataError, match="steps must be positive, got 0"):
        freeze_onset(t - 1, t)
    with pytest.raises(DataError, match="steps must rise"):
        freeze_onset(t[::-1], t)
    with pytest.raises(DataError, match="must not be negative, got -1"):
        freeze_onset(t, -t / 10)
    with pytest.raises(ShapeError, match="one for each step"):
        freeze_onset(t, t[:-1])
    with pytest.raises(DataError, match="steps must be positive"):
        freeze_onset(t, t).curve(0)
