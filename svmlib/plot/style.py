"""The book's style: what each meaning looks like, and figures that are sharp and light on a page.

Colours are told apart under the common kinds of colour blindness, have a contrast of 3:1 or more on
white, and keep their hue under the filter with which dark pages invert figures. Dashes and markers say the
same again for print in grey.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from PIL import Image

from svmlib.arrays import check_integer, check_positive
from svmlib.errors import DataError

__all__ = ["COLORS", "STYLES", "Style", "axes_or_new", "checked_axes", "figure", "legend", "png", "style"]

INK = "#333333"
WIDTH = 6.5  # inches: the page's column, so that text has one size in all figures
DPI = 216  # two pixels of the image for each pixel of a 700-pixel column


@dataclass(frozen=True, slots=True)
class Style:
    """Look of one meaning: colour, dash pattern and marker, in matplotlib's words.

    Attributes
    ----------
    color : str
        Hexadecimal colour.
    dash : str or tuple
        Line style.
    marker : str
        Marker.
    """

    color: str
    dash: Any
    marker: str


_LONG_DASH = (0, (4, 1.6))
_DASH_DOT = (0, (5, 1.6, 1, 1.6))
_DOTS = (0, (1, 1.5))

STYLES: dict[str, Style] = {
    "W": Style("#0072B2", "-", "o"),  # training of W
    "KQ": Style("#D55E00", _LONG_DASH, "s"),  # training of (K, Q)
    "fro": Style("#00416B", _DASH_DOT, "^"),  # Frobenius SVM: W's family, darker
    "nuc": Style("#7A3300", _DOTS, "v"),  # nuclear SVM: (K, Q)'s family, darker
    "opt": Style("#007A5E", "-", "*"),  # optimal or selected tokens
    "token": Style("#737373", "-", "o"),  # other tokens
    "support": Style("#A0479A", "-", "o"),  # support tokens and vectors: rings
    "query": Style("#A0479A", "-", "D"),  # queries
    "positive": Style("#007A5E", "-", "o"),  # class +1
    "negative": Style("#B5446E", _LONG_DASH, "s"),  # class -1
    "plain": Style("#6A51A3", _LONG_DASH, "D"),  # plain gradient steps
    "normalized": Style("#11758B", "-", "o"),  # normalised gradient steps
    "path": Style("#8C6D00", _DASH_DOT, "^"),  # regularisation paths
    "loss": Style("#333333", "-", "o"),
    "exact": Style("#333333", _DOTS, "x"),  # closed forms and extended precision
    "guide": Style("#666666", _DOTS, ""),  # reference slopes and levels
}

COLORS: dict[str, str] = {name: look.color for name, look in STYLES.items()}

_RC: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "font.size": 10,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
}


def style(color: str) -> Style:
    """Look of a meaning, or of any colour that matplotlib knows (solid, no marker).

    Parameters
    ----------
    color : str
        Name of a meaning, or a colour.

    Returns
    -------
    Style
        Its look.

    Raises
    ------
    DataError
        If it is neither.
    """
    if isinstance(color, str) and color in STYLES:
        return STYLES[color]
    if not mpl.colors.is_color_like(color):
        raise DataError(
            f"color must be a meaning ({', '.join(STYLES)}) or a matplotlib colour, got {color!r}."
        )
    return Style(color, "-", "")


class BookFigure(Figure):  # type: ignore[misc]  # matplotlib is untyped here
    """A figure that shows itself as a sharp, light PNG of its full size."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        # half of its pixels; without a height, so that a narrow page shrinks it in proportion
        return png(self), {"width": round(float(self.get_figwidth()) * DPI / 2)}


def _show_as_is() -> None:
    # Jupyter's rendering of figures crops to what is drawn, so that text would have another size in each.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shell.display_formatter.formatters["image/png"].for_type(BookFigure, BookFigure._repr_png_)


def png(fig: Figure) -> bytes:
    """Render a figure with up to 256 colours, in about a third of the usual bytes.

    Parameters
    ----------
    fig : Figure
        A figure.

    Returns
    -------
    bytes
        PNG data.

    Raises
    ------
    DataError
        If ``fig`` is no figure.
    """
    if not isinstance(fig, Figure):
        raise DataError(f"fig must be a Figure, got {type(fig).__name__}; of axes it is ax.figure.")
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    out = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(out, "png", optimize=True, dpi=(fig.dpi, fig.dpi))
    return out.getvalue()


def figure(
    ncols: int = 1, nrows: int = 1, *, width: float = WIDTH, height: float | None = None, **subplots: Any
) -> tuple[BookFigure, Any]:
    """Make a figure in the book's style.

    Parameters
    ----------
    ncols, nrows : int
        Panels.
    width, height : float
        Size in inches. Keep the width, which fills the page's column; the height follows the panels.
    **subplots
        Passed on to ``plt.subplots``, for example ``sharey=True``.

    Returns
    -------
    fig : BookFigure
        The figure, with a white background.
    ax : Axes, or ndarray of Axes
        As from ``plt.subplots``.

    Raises
    ------
    ShapeError
        If a number of panels is no positive integer.
    DataError
        If a size is not a positive number.
    """
    ncols, nrows = check_integer(ncols, "ncols"), check_integer(nrows, "nrows")
    if height is None:
        height = nrows * (3.6 if ncols == 1 else 2.9 if ncols == 2 else 2.4)
    width, height = check_positive(width, "width"), check_positive(height, "height")
    _show_as_is()
    # Not inside the context below: the first figure of a notebook switches Jupyter's backend on, and leaving
    # the context would switch it off again.
    fig = plt.figure(
        figsize=(width, height), dpi=DPI, facecolor="white", layout="constrained", FigureClass=BookFigure
    )
    with mpl.rc_context(_RC):
        axes = fig.subplots(nrows, ncols, **subplots)
        for ax in np.atleast_1d(axes).flat:
            # ticks are made when they are first needed, outside this context: say now how they look
            ax.tick_params(which="both", labelsize=9, color=INK, labelcolor=INK, width=0.8)
    return fig, axes


def axes_or_new(ax: Axes | None) -> Axes:
    """Return ``ax``, or the axes of a new figure.

    Parameters
    ----------
    ax : Axes or None
        What the caller was given.

    Returns
    -------
    Axes
        Where to draw.

    Raises
    ------
    DataError
        If it is something else, such as an array of axes.
    """
    return figure()[1] if ax is None else checked_axes(ax)


def checked_axes(ax: Any) -> Axes:
    """Check that an argument is one axes.

    Parameters
    ----------
    ax : Axes
        What the caller was given.

    Returns
    -------
    Axes
        The same.

    Raises
    ------
    DataError
        If it is something else.
    """
    if not isinstance(ax, Axes):
        raise DataError(
            f"ax must be one Axes, got {type(ax).__name__}; of several panels pass one, as in ax=axes[0]."
        )
    return ax


def legend(ax: Axes, *, title: str | None = None, above: bool | None = None, **options: Any) -> Legend | None:
    """Draw or move the legend; its title stays unless a new one is given.

    Parameters
    ----------
    ax : Axes
        Axes with labelled lines.
    title : str, optional
        Title.
    above : bool, optional
        True puts it on top of the figure, together with those of other panels, each entry once; False
        into the axes, where it covers least. By default it stays where it is.
    **options
        Passed on to matplotlib, for example ``loc="lower right"`` or ``ncols=2``.

    Returns
    -------
    Legend or None
        None where nothing has a label.

    Raises
    ------
    DataError
        If ``ax`` is something else.
    """
    fig = checked_axes(ax).get_figure()
    panels: list[Axes] = vars(fig).setdefault("_panels_with_legend_on_top", [])
    if above is None:
        above = ax in panels
    old = [*(fig.legends if ax in panels else []), *filter(None, [ax.get_legend()])]
    if title is None and old:
        title = old[0].get_title().get_text()
    for box in old:
        box.remove()
    if above and ax not in panels:
        panels.append(ax)
    elif not above and ax in panels:
        panels.remove(ax)
        for rest in panels[:1]:
            legend(rest)
    named: dict[str, Any] = {}
    for panel in panels if above else [ax]:
        handles, labels = panel.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True)) | named
    if not named:
        return None
    look: dict[str, Any] = {"fontsize": 9, "title_fontsize": 9, "labelcolor": INK, "handlelength": 3.2}
    if above:
        for box in list(fig.legends):
            box.remove()
        columns = 4 if len(named) == 4 and max(map(len, named)) < 12 else 3  # four short labels in one row
        look |= {"loc": "outside upper center", "ncols": columns, "frameon": False}
    else:
        look |= {"framealpha": 0.9, "edgecolor": "#D0D0D0", "alignment": "left"}
    home = fig if above else ax
    box = home.legend(list(named.values()), list(named), title=title or None, **{**look, **options})
    box.get_title().set_color(INK)
    return box
