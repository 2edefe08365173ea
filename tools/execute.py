"""Execute the pages that the cache does not know, several at a time.

Sphinx reads one page after the other and would execute them so. Here a few kernels run side by side and fill
the cache that Sphinx then finds complete. A page whose cell fails is left out: Sphinx executes it again and
reports the cell.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

TIMEOUT = 600


def read(path: Path) -> Any:
    """The notebook of a MyST page, as MyST-NB reads it in the build (its cache key depends on that)."""
    settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    config = MdParserConfig(enable_extensions=settings["parse"]["myst_enable_extensions"])
    text = path.read_text("utf-8")
    return read_myst_markdown_notebook(text, config=config, add_source_map=True, path=str(path))


def unknown(cache: Any, pages: list[Path]) -> list[tuple[Path, Any]]:
    """Pages with code that the cache has no result for."""
    found = []
    for path in pages:
        if not is_myst_markdown_notebook(path.read_text("utf-8")):
            continue
        notebook = read(path)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            found.append((path, notebook))
    return found


def fill(cache_path: Path, pages: list[Path], workers: int) -> None:
    """Execute what is missing from the cache; the kernels take this process's environment."""
    cache_path.mkdir(parents=True, exist_ok=True)
    cache = get_cache(str(cache_path))
    todo = unknown(cache, pages)
    if len(todo) < 2 or workers < 2:
        return  # nothing to gain
    todo.sort(key=lambda page: page[0].stat().st_size, reverse=True)  # the long ones first
    print(f"executing {len(todo)} pages, {workers} at a time", flush=True)
    start = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        jobs = {
            pool.submit(single_nb_execution, nb, cwd=str(path.parent), timeout=TIMEOUT, allow_errors=False): (
                path,
                nb,
            )
            for path, nb in todo
        }
        try:
            for job in as_completed(jobs):
                path, notebook = jobs[job]
                result = job.result()
                name = path.relative_to(ROOT)
                if result.err is not None:
                    print(f"  {name}: a cell failed", flush=True)
                    continue
                cache.cache_notebook_bundle(
                    CacheBundleIn(notebook, str(path), data={"execution_seconds": result.time}),
                    check_validity=False,
                    overwrite=True,
                )
                print(f"  {name}: {result.time:.0f} s", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    print(f"executed in {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    from svmbook import execution

    cores = os.cpu_count() or 1
    workers = min(4, cores)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
    execution.kernel_environment()
    execution.patch_shell_channel()
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    names = [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]
    pages = [ROOT / f"{name}.md" for name in names]
    fill(execution.cache_path(execution.digest()), [p for p in pages if p.exists()], workers)


if __name__ == "__main__":
    main()
