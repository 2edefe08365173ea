"""What panels share: picture and sentences, controls that recompute them, the page where no kernel runs."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from svmlib.errors import SvmlibError


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What the panel shows.

    Attributes
    ----------
    png : bytes
        The figure.
    status : tuple of str
        What the figure shows, in sentences.
    """

    png: bytes
    status: tuple[str, ...]


def message(sentences: tuple[str, ...], *, failed: bool = False) -> str:
    text = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    head = "<strong>Not computed.</strong>" if failed else ""
    return f'<div role="status" aria-live="polite">{head}{text}</div>'


def img(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}" style="max-width: 100%">'


def static_page(view: View, alt: str, note: str) -> str:
    """HTML of a panel's first state, with a note on how to run it."""
    return (
        f"<figure>{img(view.png, alt)}"
        f"<figcaption>{html.escape(' '.join(view.status))}</figcaption></figure>"
        f"<p><em>{note}</em></p>"
    )


def panel(controls: dict[str, Any], compute: Callable[[dict[str, Any]], View], alt: str) -> Any:
    """Lay out controls above a picture that is computed anew when one of them changes."""
    import ipywidgets as w

    # an HTML widget rather than an Image, which has no alternative text
    picture = w.HTML(layout=w.Layout(width="100%", max_width="760px"))
    status = w.HTML()

    def update(change: object = None) -> None:
        try:
            now = compute({name: control.value for name, control in controls.items()})
        except SvmlibError as exc:
            status.value = message(
                (str(exc), "The figure shows the last state that could be computed."), failed=True
            )
        else:
            told = f"{alt} {' '.join(now.status)}"
            picture.value, status.value = img(now.png, told), message(now.status)

    for control in controls.values():
        control.observe(update, names="value")
    update()
    rows = w.HBox(list(controls.values()), layout=w.Layout(flex_flow="row wrap"))
    return w.VBox([rows, status, picture])
