"""The claim registry: what counts as passed, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import svmlib as sv
from svmlib.checks import CheckFailed, Measured, claim, reason, registry
from svmlib.errors import DataError, ShapeError, SvmlibError

HEAD = {"title": "A title with $x<y$", "source": "here", "chapter": "foundations/selector"}


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    monkeypatch.setattr(registry, "_CLAIMS", {})
    monkeypatch.setattr(registry, "_loaded", True)
    monkeypatch.delenv("SVMLIB_SCALE", raising=False)
    monkeypatch.delenv("SVMLIB_BOOK", raising=False)


def add(label="thm-a", *rows, **options):
    @claim(label, **{**HEAD, **options})
    def check(trials):
        return list(rows) or Measured("trials", trials, ">=", 1)

    return check


@pytest.mark.parametrize(
    ("relation", "bound", "good", "bad"),
    [
        ("<", 1.0, 0.5, 1.0),
        ("<=", 1.0, 1.0, 1.1),
        (">", 1.0, 1.5, 1.0),
        (">=", 1.0, 1.0, 0.9),
        ("==", 1.0, 1.0, 1.0 + 1e-12),
        ("in", (1.0, 2.0), 2.0, 2.1),
        ("in", (1.0, 2.0), 1.0, 0.9),
    ],
)
def test_relations(relation, bound, good, bad):
    assert Measured("x", good, relation, bound).passed
    assert not Measured("x", bad, relation, bound).passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("relation", "bound"), [("<", 1), ("<=", 1), (">", 1), (">=", 1), ("==", 1), ("in", (0, 1))]
)
def test_numbers_that_are_not_finite_never_pass(value, relation, bound):
    assert not Measured("x", value, relation, bound).passed


def test_tolerance_belongs_to_equality():
    assert Measured("slope", -1.01, "==", -1, tol=0.02).passed
    assert not Measured("slope", -1.03, "==", -1, tol=0.02).passed
    assert not Measured("x", 1.01, "<=", 1.0, tol=0.02).passed


def test_scalars_of_numpy_and_torch_become_plain():
    row = Measured("x", np.float64(0.5), "<=", torch.tensor(1.0))
    assert type(row.value) is float and type(row.bound) is float
    assert type(Measured("x", np.bool_(True), "==", True).value) is bool
    assert type(Measured("x", np.int64(3), "==", np.array(3)).value) is int


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, "~", 1.0), "relation must be one of"),
        (([1.0, 2.0], "<=", 1.0), "value must be one number, got list"),
        ((np.zeros(2), "<=", 1.0), "value must be one number, got ndarray"),
        (("1", "<=", 1.0), "value must be one number, got str"),
        ((1.0, "<=", np.inf), "bound must be finite"),
        ((1.0, "<=", np.nan), "bound must be finite"),
        ((1.0, "in", (2.0, 1.0)), "low <= high"),
        ((1.0, "in", (0.0, np.inf)), "bound must be finite"),
        ((1.0, "in", 1.0), "bound must be a pair"),
        ((1.0, "in", (1.0, 2.0, 3.0)), "bound must be a pair"),
        (
            (10**400, "<=", 1.0),
            r"value must be below 1e308 in size, got an integer of 1329 bits \(quantity\)",
        ),
        ((1.0, "<=", 10**400), "bound must be below 1e308"),
        ((1.0, "==", 1.0, "", "a"), "tol must be one number, got str"),
    ],
)
def test_rows_that_could_not_fail_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        Measured("quantity", *arguments)
    with pytest.raises(DataError, match="tol must be"):
        Measured("quantity", 1.0, "==", 1.0, tol=-1.0)


def test_run_shows_what_passed():
    add("thm-a", Measured("error", 1e-9, "<=", 1e-8, "a note"), Measured("share", 0.5, "<", 1, breaks=True))
    result = sv.checks.run("thm-a")
    assert result.passed and result.verdict == "passed"
    text = repr(result)
    assert "error: measured 1e−9, required ≤ 1e−8: passed (a note)" in text
    assert "without the assumption: share: measured 0.5, required < 1: fails, as it should" in text
    page = result._repr_html_()
    assert page.count('<th scope="row"') == 2 and page.count('<th scope="col"') == 4 and "<caption" in page
    assert r"\(x&lt;y\)" in page and "&lt; 1" in page and "passed" in page


def test_run_raises_with_the_table_when_a_row_fails():
    add("thm-a", Measured("good", 1, "==", 1), Measured("bad", 2, "==", 1))
    with pytest.raises(CheckFailed, match=r"FAILED\n.*good.*passed\n.*bad: measured 2, required = 1: FAILED"):
        sv.checks.run("thm-a")
    assert issubclass(CheckFailed, SvmlibError) and issubclass(CheckFailed, AssertionError)


def test_a_row_that_should_break_and_does_not_fails():
    add("thm-a", Measured("share", 1.0, "<", 1, breaks=True))
    with pytest.raises(CheckFailed, match="nothing breaks"):
        sv.checks.run("thm-a")


@pytest.mark.parametrize(("scale", "expected"), [(None, 100), ("full", 100), ("test", 7)])
def test_trials_follow_the_scale(monkeypatch, scale, expected):
    if scale:
        monkeypatch.setenv("SVMLIB_SCALE", scale)
    seen = []

    @claim("thm-a", **HEAD, trials=(100, 7))
    def check(trials):
        seen.append(trials)
        return Measured("x", 1, "==", 1)

    result = sv.checks.run("thm-a")
    sv.checks.run("thm-a", trials=3)
    assert seen == [expected, 3] and result.trials == expected
    assert f"{expected} trials" in repr(result)


def test_bad_arguments():
    add("thm-feasible")
    with pytest.raises(DataError, match=r"No claim is called 'thm-feasable'.*Did you mean 'thm-feasible'"):
        sv.checks.run("thm-feasable")
    for trials in (0, 1.5, "a", True):
        with pytest.raises(ShapeError, match=f"trials must be a positive integer, got {trials!r}"):
            sv.checks.run("thm-feasible", trials=trials)
    for label in (None, 3, ["thm-feasible"]):
        with pytest.raises(DataError, match=r"label must be a text such as .*checks\.labels\(\)"):
            sv.checks.run(label)
    with pytest.raises(DataError, match="kind of 'thm-b' must be one of"):
        add("thm-b", kind="definition")
    with pytest.raises(ShapeError, match="trials of 'thm-b' must be a positive integer, got 0"):
        add("thm-b", trials=(0, 1))
    with pytest.raises(DataError, match=r"trials of 'thm-b' must be a pair \(full, test\), got 3"):
        add("thm-b", trials=3)
    with pytest.raises(DataError, match="source of 'thm-b' must be a text for the ledger"):
        add("thm-b", source="")
    with pytest.raises(DataError, match="label of None must be a text"):
        add(None)
    with pytest.raises(DataError, match=r"check of 'thm-b' must be a function \(trials\) -> Measured, got 3"):
        claim("thm-b", **HEAD)(3)
    with pytest.raises(DataError, match="neither a check nor a reason"):
        reason("thm-b", **HEAD, why=None)
    assert sv.checks.labels() == {"thm-feasible"}


@pytest.mark.parametrize("scale", ["TEST", "tiny"])
def test_an_unknown_scale_is_refused_as_in_the_experiments(monkeypatch, scale):
    add("thm-a")
    monkeypatch.setenv("SVMLIB_SCALE", scale)
    with pytest.raises(DataError, match=f'SVMLIB_SCALE must be "full" or "test", got {scale!r}'):
        sv.checks.run("thm-a")


@pytest.mark.parametrize(
    ("found", "among"),
    [(None, "NoneType"), (3, "int"), ([Measured("x", 1, "==", 1), 2], "int"), ("ab", "str")],
)
def test_a_check_that_returns_something_else_is_an_error(found, among):
    claim("thm-a", **HEAD)(lambda trials: found)
    with pytest.raises(DataError, match=f"check of 'thm-a' must give one or several Measured, but {among}"):
        sv.checks.run("thm-a")


@pytest.mark.parametrize("show", [sv.checks.table, sv.checks.require, sv.checks.summary])
@pytest.mark.parametrize("results", [None, "a", [None]])
def test_tables_are_made_of_results(show, results):
    with pytest.raises(DataError, match="results must give one or several Result, but"):
        show(results)


def test_a_check_that_measures_nothing_is_an_error():
    @claim("thm-a", **HEAD)
    def check(trials):
        return []

    with pytest.raises(DataError, match="measured nothing"):
        sv.checks.run("thm-a")


def test_a_label_has_one_row():
    check = add("thm-a")

    with pytest.raises(DataError, match=r"'thm-a' is registered twice"):

        @claim("thm-a", **HEAD)
        def other(trials):
            return Measured("x", 1, "==", 1)

    with pytest.raises(DataError, match="registered twice"):
        reason("thm-a", **HEAD, why="It is about all of them.")
    claim("thm-a", **HEAD)(check)  # the function itself again, as a reloaded module brings it
    assert sv.checks.labels() == {"thm-a"}


def test_reasons_are_rows_without_numbers():
    with pytest.raises(DataError, match="neither a check nor a reason"):
        reason("lem-r", **HEAD, why=" ")
    reason("lem-r", **HEAD, kind="lemma", why="It is about all $x$.")
    result = sv.checks.run("lem-r")
    assert result.passed and result.verdict == "not checked by numbers"
    assert "It is about all" in repr(result) and r"about all \(x\)" in result._repr_html_()


def test_run_all_goes_on_after_failures_and_errors():
    add("thm-good")
    add("thm-bad", Measured("x", np.nan, "<=", 1))
    reason("thm-why", **HEAD, why="Because.")

    @claim("thm-error", **HEAD)
    def broken(trials):
        raise ZeroDivisionError("division by zero")

    seen = []
    results = sv.checks.run_all(progress=seen.append)
    assert seen == ["thm-good", "thm-bad", "thm-why", "thm-error"]
    assert [r.passed for r in results] == [True, False, True, False]
    assert "ZeroDivisionError: division by zero" in repr(results[3])
    with pytest.raises(CheckFailed, match=r"(?s)2 claims failed:.*thm-bad.*thm-error"):
        sv.checks.require(results)
    sv.checks.require(results[:1])
    text = sv.checks.summary(results)
    assert text.startswith("The ledger holds 4 statements. Numbers check 3 of them, in 2 rows, 0 of which")
    assert "For the other 1 it says why" in text
    assert text.endswith("FAILED: 2 of the statements.")


def test_the_table_links_on_built_pages_only(monkeypatch):
    add("thm-a")
    add("thm-b", chapter="implicit_bias/descent")
    table = sv.checks.table(sv.checks.run_all())
    assert set(table._repr_mimebundle_()) == {"text/html", "text/plain"}
    monkeypatch.setenv("SVMLIB_BOOK", "1")
    bundle = table._repr_mimebundle_()
    assert "text/html" not in bundle  # which MyST-NB would prefer
    page = bundle["text/markdown"]
    assert "{prf:ref}`thm-a`" in page and "{doc}`/book/implicit_bias/descent`" in page
    assert page.index("foundations/selector") < page.index("thm-a") < page.index("implicit_bias/descent")


def test_modules_are_found_by_name(monkeypatch):
    monkeypatch.setattr(registry, "_loaded", False)
    imported = []
    monkeypatch.setattr(registry.importlib, "import_module", lambda name: imported.append(name) or sv.checks)
    sv.checks.labels()
    assert "svmlib.checks.registry" in imported and "svmlib.checks._render" not in imported
