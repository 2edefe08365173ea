"""JupyterLab for the book: its chapters open with the site's macros defined, and are saved without them."""

import sys
from pathlib import Path

import yaml
from jupytext import AsyncTextFileContentsManager
from nbformat.v4 import new_markdown_cell

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from svmbook.notebooks import macros  # noqa: E402

MATHJAX = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]["mathjax3_config"]
MARK = "svmbook-macros"


class BookContentsManager(AsyncTextFileContentsManager):
    """Jupytext's contents manager with one more cell on top of a text notebook while it is open."""

    async def get(self, path, *args, **kwargs):
        model = await super().get(path, *args, **kwargs)
        if model["type"] == "notebook" and model.get("content") and path.endswith(".md"):
            model["content"].cells.insert(0, new_markdown_cell(macros(MATHJAX), metadata={MARK: True}))
        return model

    async def save(self, model, path=""):
        if model["type"] == "notebook" and model.get("content"):
            cells = model["content"]["cells"]
            cells[:] = [c for c in cells if not c["metadata"].get(MARK)]
        return await super().save(model, path)


c = get_config()  # noqa: F821  (Jupyter provides it)
c.ServerApp.contents_manager_class = BookContentsManager
