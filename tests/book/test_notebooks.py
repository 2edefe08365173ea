"""Each downloadable notebook runs by itself: from an empty folder, against the installed library."""

from __future__ import annotations

import shutil

import nbformat
import pytest
from chapters import SITE, pages, source
from nbclient import NotebookClient
from svmbook.notebooks import leftovers

NOTEBOOKS = [page for page in pages() if "{code-cell}" in source(page)]


def downloaded(page):
    return SITE / "_sources" / f"{page}.ipynb"


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_runs_from_an_empty_folder(page, tmp_path, monkeypatch):
    for name in ("PYTHONPATH", "SVMLIB_BOOK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SVMLIB_SCALE", "test")
    shutil.copy(downloaded(page), tmp_path)
    nb = nbformat.read(tmp_path / downloaded(page).name, as_version=4)
    NotebookClient(
        nb, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    warned = [o["text"] for c in nb.cells for o in c.get("outputs", []) if o.get("name") == "stderr"]
    assert warned == []


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_reads_as_plain_markdown(page):
    nb = nbformat.read(downloaded(page), as_version=4)
    nbformat.validate(nb)
    assert nb.metadata.kernelspec.name == "python3"
    text = "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    assert leftovers(text) == []
    assert r"\newcommand{\softmax}{\mathbb{S}}" in text


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_installs_the_library_only_where_it_is_missing(page):
    nb = nbformat.read(downloaded(page), as_version=4)
    first = next(c for c in nb.cells if c.cell_type == "code")
    assert 'if importlib.util.find_spec("svmlib") is None:\n    %pip install' in first.source
    assert "git+https://github.com/" in first.source
    assert sum("%pip" in c.source for c in nb.cells) == 1


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_carries_its_outputs(page):
    nb = nbformat.read(downloaded(page), as_version=4)
    assert any(c.get("outputs") for c in nb.cells)
