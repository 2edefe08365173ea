"""Jupyter Book's build with one choice that its command line lacks.

`jupyter-book build --all` reads and writes every page. After a build without a warning it is enough to read
the pages that changed and to write all of them: a reference from an unchanged page is resolved when that page
is written, so nothing that is wrong stays unseen.

usage: run_sphinx.py OUTPUT [--strict] [--fresh]
"""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_book.sphinx import build_sphinx

ROOT = Path(__file__).resolve().parents[1]


def main(output: str, *flags: str) -> int:
    fresh = "--fresh" in flags
    result = build_sphinx(
        ROOT,
        Path(output),
        noconfig=True,
        path_config=ROOT / "_config.yml",
        confoverrides={
            "external_toc_path": str(ROOT / "_toc.yml"),
            "latex_individualpages": False,
            "nitpicky": True,
        },
        warningiserror="--strict" in flags,
        keep_going=True,
        freshenv=fresh,
        force_all=not fresh,
    )
    return result if isinstance(result, int) else 2


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
