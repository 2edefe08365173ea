"""What this book adds to Jupyter Book: a local Sphinx extension.

`execution` gives the kernels their environment and the execution cache its key,
`site` makes the pages self-contained, `live` lets figures run in them, `ledger`
compares the numbered statements with the claim ledger, `notebooks` turns the
executed pages into notebooks that stand on their own.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from . import execution, ledger, live, notebooks, site


def setup(app: Sphinx) -> dict[str, Any]:
    execution.patch_shell_channel()
    execution.keep_cached_outputs()
    app.add_config_value("svmbook_notebook_branch", "gh-pages", "html")
    app.add_config_value("svmbook_digest", "", "env")
    app.connect("config-inited", execution.configure, priority=100)
    app.connect("config-inited", site.addresses, priority=100)
    app.connect("config-inited", site.banner, priority=100)
    app.connect("env-check-consistency", ledger.check)
    app.connect("html-page-context", site.drop_thebe, priority=900)
    app.connect("html-page-context", site.colab, priority=901)
    app.connect("html-page-context", site.cite_box, priority=902)
    app.connect("html-page-context", site.tidy, priority=903)
    app.add_post_transform(live.PictureAndFigure)
    app.connect("build-finished", site.assets)
    app.connect("build-finished", notebooks.finish)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
