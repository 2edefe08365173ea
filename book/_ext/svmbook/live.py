"""Live figures on a page: a picture for readers without scripts, and the place where the figure starts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

WIDGET = "application/vnd.jupyter.widget-view+json"


class PictureAndFigure(SphinxPostTransform):
    """Keep both: of a cell's output in several formats MyST-NB would show one, and drop the picture."""

    default_priority = 3  # before MyST-NB's choice

    def run(self, **kwargs: Any) -> None:
        bundles = [
            node for node in self.document.findall(nodes.container) if node.get("nb_element") == "mime_bundle"
        ]
        for bundle in bundles:
            formats = {child["mime_type"]: child.children for child in bundle.children}
            if WIDGET in formats and "image/png" in formats:
                mount = nodes.container("", *formats[WIDGET], classes=["live-mount"])
                bundle.replace_self([*formats["image/png"], mount])
