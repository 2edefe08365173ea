from __future__ import annotations

import subprocess
import sys

import pytest

import svmlib


def test_import_is_light():
    code = (
        "import sys, time; t = time.perf_counter(); import svmlib; "
        "print(time.perf_counter() - t, 'torch' in sys.modules, "
        "'numpy' in sys.modules, 'cvxpy' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert float(out[0]) < 0.2  # seconds
    assert out[1:] == ["False", "False", "False"]


def test_subpackages_load_on_first_use():
    for name in svmlib.__all__[1:]:
        assert getattr(svmlib, name).__name__ == f"svmlib.{name}"
        assert name in dir(svmlib)
    with pytest.raises(AttributeError, match="module 'svmlib' has no attribute 'nothing'"):
        _ = svmlib.nothing


def test_errors_are_the_built_in_ones_too():
    for name, builtin in (
        ("ShapeError", ValueError),
        ("DataError", ValueError),
        ("InfeasibleError", ValueError),
    ):
        assert issubclass(getattr(svmlib.errors, name), (svmlib.errors.SvmlibError, builtin))
    assert issubclass(svmlib.errors.SolverError, RuntimeError)
