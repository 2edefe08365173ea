"""The kernels' environment and the key of the execution cache."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ("numpy", "scipy", "torch", "cvxpy", "clarabel", "matplotlib", "ipywidgets", "anywidget")


def scale() -> str:
    """`full`, or `test` where SVMLIB_SCALE asks for fewer trials."""
    return "test" if os.environ.get("SVMLIB_SCALE") == "test" else "full"


def sources() -> Iterator[Path]:
    """All that decides what a code cell prints, apart from the cell: library, data, pins."""
    for folder in (ROOT / "svmlib", ROOT / "book" / "data"):
        yield from sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc")
    yield from (ROOT / name for name in ("requirements.txt", "pyproject.toml") if (ROOT / name).exists())


def digest() -> str:
    """A fingerprint of `sources()`, the installed libraries, Python and the scale."""
    h = hashlib.sha256(f"{scale()} {sys.version_info[:2]}\n".encode())
    for name in LIBRARIES:
        try:
            h.update(f"{name}={metadata.version(name)}\n".encode())
        except metadata.PackageNotFoundError:
            h.update(f"{name} is missing\n".encode())
    for path in sources():
        h.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return h.hexdigest()


def kernel_environment() -> None:
    # Kernels start in the page's own folder, and jupyter-book's console script
    # does not put the current folder on sys.path: let both import the svmlib
    # of this tree even where it has not been pip-installed.
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    old = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(p for p in old if p and p != str(ROOT))])
    os.environ["SVMLIB_BOOK"] = "1"


def cache_path(key: str) -> Path:
    """The execution cache of one state of the library: MyST-NB's own key knows a page's code cells alone."""
    home = Path(os.environ.get("SVMBOOK_CACHE") or ROOT / "_build" / ".jupyter_cache")
    return home / f"{scale()}-{key[:12]}"


def configure(app: Sphinx, config: Config) -> None:
    kernel_environment()
    key = digest()
    config.svmbook_digest = key  # every page is read again when the library changes
    config.nb_execution_cache_path = str(cache_path(key))
    only = os.environ.get("SVMBOOK_ONLY")
    if only:
        pages = (p.relative_to(ROOT).as_posix() for p in (ROOT / "book").rglob("*.md"))
        config.nb_execution_excludepatterns = [p for p in pages if p != only]


def patch_shell_channel() -> None:
    # nbclient answers a cell's Output widgets on the same ZeroMQ socket on which
    # another task awaits the cell's reply. The socket's file descriptor is
    # edge-triggered, so that send can swallow the wake-up and the cell then seems
    # to run until its timeout (jupyter/nbclient issue 312). Waking at least once
    # a second bounds the loss.
    from queue import Empty
    from time import monotonic

    from jupyter_client.channels import AsyncZMQSocketChannel

    plain = AsyncZMQSocketChannel.get_msg

    async def get_msg(self, timeout=None):  # type: ignore[no-untyped-def]
        end = None if timeout is None else monotonic() + timeout
        while True:
            left = 1.0 if end is None else min(1.0, max(0.0, end - monotonic()))
            try:
                return await plain(self, timeout=left)
            except Empty:
                if end is not None and monotonic() >= end:
                    raise

    AsyncZMQSocketChannel.get_msg = get_msg  # type: ignore[method-assign]


def keep_cached_outputs() -> None:
    # Where MyST-NB finds a notebook in its cache, the .ipynb it writes for
    # download is the one without outputs: hand the cached outputs over to it.
    from myst_nb.core.execute.cache import NotebookClientCache

    plain = NotebookClientCache.start_client

    def start_client(self):  # type: ignore[no-untyped-def]
        written = self.notebook
        plain(self)
        for ours, cached in zip(written.cells, self.notebook.cells, strict=True):
            if ours.cell_type == "code" and ours is not cached:
                ours.outputs, ours.execution_count = cached.outputs, cached.execution_count

    NotebookClientCache.start_client = start_client  # type: ignore[method-assign]
