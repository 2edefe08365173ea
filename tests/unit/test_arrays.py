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


@pytest.mark.parametrize(
    "bad",
    ["words", ["1"], [[1.0], [2.0, 3.0]], [1j], object(), None, [10**400], np.array(["2026-01-01"], "M8")],
)
def test_as_float_refuses_what_is_not_real_numbers(bad):
    with pytest.raises(DataError, match="X must be an array of real numbers with rows of equal length, got"):
        arrays.as_float(bad, "X")


def test_as_float_speaks_of_padding_only_where_rows_may_be_ragged():
    for bad, padded in (([[1.0], [2.0, 3.0]], True), (None, False), ("words", False)):
        with pytest.raises(DataError) as caught:
            arrays.as_float(bad, "X")
        assert ("Pad sequences" in str(caught.value)) == padded


def test_as_float_asks_for_a_number_where_one_is_meant():
    for bad in ("3", None):
        with pytest.raises(DataError, match=r"^p must be a real number, got \w+\.$"):
            arrays.as_float(bad, "p", ndim=0)
    with pytest.raises(ShapeError, match=r"p must be a single number, got shape \(1,\)"):
        arrays.as_float([3.0], "p", ndim=0)
    with pytest.raises(DataError, match=r"^p must be finite, got nan\.$"):
        arrays.as_float(np.nan, "p", ndim=0)
    assert arrays.as_float(3, "p", ndim=0) == 3.0


def test_as_float_names_axes_and_sizes():
    with pytest.raises(ShapeError, match=r"E must have 3 axes, \(G, V, V\), got shape \(2, 2\)"):
        arrays.as_float(np.eye(2), "E", ndim=3, meaning="(G, V, V)")
    with pytest.raises(ShapeError, match=r"s must have at least 2 axes, n and T, got shape \(2,\)"):
        arrays.as_float(np.zeros(2), "s", last=(2, 3), meaning="n and T")
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
    with pytest.raises(
        DataError, match='device must be None, "cpu", "cuda", "cuda:N" or "auto", got \'tpu\''
    ):
        arrays.resolve_device("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert arrays.resolve_device("auto", 999) == "cpu"
    assert arrays.resolve_device("auto", 1000) == "cuda"
    monkeypatch.setenv("SVMLIB_DEVICE", "cuda")
    assert arrays.resolve_device(None) == "cuda"
    assert arrays.resolve_device("cpu") == "cpu"


def test_tensors_of_every_real_kind_and_masked_arrays():
    assert arrays.as_float(torch.ones(2, dtype=torch.bfloat16), "X").tolist() == [1.0, 1.0]
    for bad in (torch.eye(2).to_sparse(), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(DataError, match="X must be an array of real numbers"):
            arrays.as_float(bad, "X")
    with pytest.raises(DataError, match="X is a masked array"):
        arrays.as_float(np.ma.array([1.0, 2.0], mask=[True, False]), "X")


@pytest.mark.parametrize("bad", [0, -1, 1.0, "1", None, True, np.nan, [1], 2**70])
def test_sizes_must_be_positive_integers(bad):
    with pytest.raises(ShapeError, match="n must be a positive integer, got"):
        arrays.check_integer(bad, "n")
    assert arrays.check_integer(np.int64(3), "n") == 3


@pytest.mark.parametrize("good", [0.1, np.float32(0.1), torch.tensor(0.1), 1])
def test_positive_numbers_of_every_kind(good):
    assert arrays.check_positive(good, "rate") == float(good)
    with pytest.raises(DataError, match="rate must be a positive number, got True"):
        arrays.check_positive(True, "rate")


def test_the_default_type_of_torch_does_not_change_the_data():
    want = arrays.torch_normals(3, (4, 5))[0]
    torch.set_default_dtype(torch.float64)
    try:
        np.testing.assert_array_equal(arrays.torch_normals(3, (4, 5))[0], want)
    finally:
        torch.set_default_dtype(torch.float32)
    assert want.dtype == np.float32
