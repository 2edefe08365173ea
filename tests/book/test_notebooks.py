"""Each downloadable notebook holds what was executed for its page, and runs from an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import nbformat
import notebooks
import pytest
from chapters import SITE
from nbclient import NotebookClient
from notebooks import WITH_CODE
from svmbook.notebooks import leftovers

# executed in a process of its own: what one page imports, the next may find imported, but not in its names
IMPORT_EACH = """
import json, sys, traceback
failed = {}
for page, program in json.load(sys.stdin).items():
    try:
        exec(compile(program, page, "exec"), {})
    except Exception:
        failed[page] = traceback.format_exc(limit=-1)
json.dump(failed, sys.stdout)
"""


def downloaded(page):
    return SITE / "_sources" / f"{page}.ipynb"


def read(page):
    return nbformat.read(downloaded(page), as_version=4)


def elsewhere():
    """An environment that does not know the repository."""
    hidden = ("PYTHONPATH", "SVMLIB_BOOK")
    return {k: v for k, v in os.environ.items() if k not in hidden} | {"SVMLIB_SCALE": "test"}


def import_failures(programs, folder):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        cwd=folder,
        env=elsewhere(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def execute(path):
    """Run a notebook in its own folder; returns what it wrote to stderr."""
    nb = nbformat.read(path, as_version=4)
    NotebookClient(
        nb, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute(env=elsewhere())
    return [o["text"] for c in nb.cells for o in c.get("outputs", []) if o.get("name") == "stderr"]


@pytest.mark.parametrize("page", notebooks.chosen())
def test_runs_from_an_empty_folder(page, tmp_path):
    shutil.copy(downloaded(page), tmp_path)
    assert execute(tmp_path / downloaded(page).name) == []


@pytest.mark.parametrize("page", WITH_CODE)
def test_holds_what_was_executed_for_the_page(page):
    html = (SITE / f"{page}.html").read_text("utf-8")
    assert notebooks.differences(read(page), page, html) == []


def test_imports_work_from_an_empty_folder(tmp_path):
    programs = {
        p: notebooks.imports([c.source for c in read(p).cells if c.cell_type == "code"]) for p in WITH_CODE
    }
    assert all("svmlib" in program for program in programs.values())
    assert import_failures(programs, tmp_path) == {}


@pytest.mark.parametrize("page", WITH_CODE)
def test_reads_as_plain_markdown(page):
    nb = read(page)
    nbformat.validate(nb)
    assert nb.metadata.kernelspec.name == "python3"
    text = "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    assert leftovers(text) == []
    assert r"\newcommand{\softmax}{\mathbb{S}}" in text


@pytest.mark.parametrize("page", WITH_CODE)
def test_installs_the_library_only_where_it_is_missing(page):
    nb = read(page)
    first = next(c for c in nb.cells if c.cell_type == "code")
    assert 'if importlib.util.find_spec("svmlib") is None:\n    %pip install' in first.source
    assert "git+https://github.com/" in first.source
    assert sum("%pip" in c.source for c in nb.cells) == 1


@pytest.mark.parametrize("page", WITH_CODE)
def test_carries_its_outputs(page):
    assert any(c.get("outputs") for c in read(page).cells)


def changed(nb, how):
    how([c for c in nb.cells if c.cell_type == "code"])
    return nb


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda cells: cells[2].update(source="1 + 1"), "cell 2 differs"),
        (lambda cells: cells[1].update(outputs=[]), "cell 1: outputs False"),
        (lambda cells: cells[3].update(execution_count=7), "cell 3 was executed as number 7"),
        (
            lambda cells: cells[1].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="w")),
            "cell 1 carries an error or a warning",
        ),
    ],
)
def test_a_notebook_that_differs_is_seen(how, said):
    page = "book/how_to_use"
    html = (SITE / f"{page}.html").read_text("utf-8")
    [difference] = notebooks.differences(changed(read(page), how), page, html)
    assert difference.startswith(said)


def test_a_missing_cell_is_seen():
    page, nb = WITH_CODE[0], read(WITH_CODE[0])
    nb.cells = [c for c in nb.cells if c.cell_type != "code"]
    [difference] = notebooks.differences(nb, page, (SITE / f"{page}.html").read_text("utf-8"))
    assert difference.startswith("0 code cells")


@pytest.mark.parametrize(
    "cell",
    [
        "open('x')",
        "f = Path",
        "import numpy as np\nnp.loadtxt(name)",
        "plt.imread(name)",
        "import os.path",
        "from pathlib import PurePath",
        "from . import helper",
        "show('../references.bib')",
        "show('references.bib')",
        "show('descent.md')",
        "%run other",
        "    !ls",
        "__import__('x')",
        "sv.widgets.TokenPlane()",
    ],
)
def test_cells_that_reach_out_are_seen(cell):
    cell = cell if not cell.startswith(" ") else f"if x:\n    pass\n{cell}"
    assert notebooks.reasons([cell], "book/implicit_bias/descent")


def test_cells_that_compute_have_no_reason():
    calm = ["import numpy as np\nimport svmlib as sv\np = sv.data.planar(1)\np.X.shape, 'W / |W|', '.', '//'"]
    assert notebooks.reasons(calm, "book/intro") == []


def test_turns_change_with_the_cells_and_the_library():
    assert len({notebooks.turn(["a"], "1"), notebooks.turn(["b"], "1"), notebooks.turn(["a"], "2")}) == 3


def test_imports_that_fail_elsewhere_are_seen(tmp_path):
    program = notebooks.imports(["import svmlib\n%magic", "def f():\n    from chapters import ROOT"])
    failed = import_failures({"calm": "import svmlib", "not": program}, tmp_path)
    assert list(failed) == ["not"] and "No module named 'chapters'" in failed["not"]


def test_files_that_are_missing_elsewhere_are_seen(tmp_path):
    cell = nbformat.v4.new_code_cell("import sys\nprint('careful', file=sys.stderr)\nopen('references.bib')")
    path = tmp_path / "x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    with pytest.raises(Exception, match=r"FileNotFoundError"):
        execute(path)
    (tmp_path / "references.bib").write_text("")
    assert execute(path) == ["careful\n"]
