from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import arrays
from svmlib.errors import DataError, ShapeError


def test_as_float_takes_lists_arrays_and_tensors():
    for given in ([[1, 2]], np.array([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]], requires_grad=True)):
        out = arrays.as_float(given, "X")
        assert out.dtype == np.float64
        assert out.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("bad", ["words", [[1.0], [2.0, 3.0]], [1j], object()])
def test_as_float_refuses_what_is_not_real_numbers(bad):
    with pytest.raises(DataError, match="X must be an array of real numbers, got"):
        arrays.as_float(bad, "X")


def test_as_float_names_axes_and_sizes():
    with pytest.raises(ShapeError, match=r"X must have 2 axes, got shape \(3,\)"):
        arrays.as_float(np.zeros(3), "X", ndim=2)
    with pytest.raises(ShapeError, match=r"X must have at least 3 axes, got shape \(3, 2\)"):
        arrays.as_float(np.zeros((3, 2)), "X", min_ndim=3)
    with pytest.raises(ShapeError, match=r"X must end in axes of sizes \(any, 4\), got shape \(3, 2\)"):
        arrays.as_float(np.zeros((3, 2)), "X", last=(None, 4))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_as_float_counts_and_locates_bad_entries(value):
    a = np.zeros((2, 3))
    a[1, 2] = value
    with pytest.raises(DataError, match=r"X must be finite, but 1 of its 6 entries .* index \(1, 2\)"):
        arrays.as_float(a, "X")
    assert np.shape(arrays.as_float(a, "X", finite=False)) == (2, 3)


def test_frozen_arrays_are_copies_that_cannot_be_written():
    a = np.zeros(2)
    b = arrays.frozen(a)
    a[0] = 1.0
    assert b[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        b[0] = 1.0


def test_device_choice(monkeypatch):
    monkeypatch.delenv("SVMLIB_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert arrays.resolve_device(None) == "cpu"
    assert arrays.resolve_device("auto", 10**6) == "cpu"
    with pytest.raises(DataError, match="sees no CUDA device"):
        arrays.resolve_device("cuda")
    with pytest.raises(DataError, match='device must be None, "cpu", "cuda" or "auto", got \'tpu\''):
        arrays.resolve_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert arrays.resolve_device("auto", 999) == "cpu"
    assert arrays.resolve_device("auto", 1000) == "cuda"
    monkeypatch.setenv("SVMLIB_DEVICE", "cuda")
    assert arrays.resolve_device(None) == "cuda"
    assert arrays.resolve_device("cpu") == "cpu"
