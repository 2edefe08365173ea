"""A panel on scanning: set frequencies of three classes and both learning rates, see which words gain."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from svmlib import plot
from svmlib.arrays import FloatArray, check_integer
from svmlib.errors import DataError
from svmlib.plot._arguments import choice, number
from svmlib.scansnap import TokenProcess, attention, flow, growth_constant, reduced_flow

from ._panel import View, panel, static_page

__all__ = ["Settings", "StaticScanningPanel", "scanning_panel", "view"]

FLOWS = {"both": "both", "reduced flow": "reduced", "joint flow": "joint"}
NAMES = {"reduced": "Reduced flow", "joint": "Joint flow"}
WORDS = ("a", "b", "own 1", "own 2", "own 3")
LOOKS = ("negative", "token", "path", "W", "opt")
SHARED, OWN, CLASSES, VOCABULARY = 2, 3, 3, 50
RATES = (1e-3, 100.0)  # beyond these nothing moves, or the flows become stiff
HIGHEST = 20.0  # of a logit at the start: e^20 drowns all other words
STEPS = {"100": 100, "1,000": 1000, "10,000": 10_000, "100,000": 100_000}
ALT = (
    "Two panels over a logarithmic axis of steps. Left: attention on the two shared and the three "
    "own words of a "
    "class. Right: their logits. Dashed: reduced flow; solid: joint flow."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controls say.

    Attributes
    ----------
    first, second, third : str
        Frequencies of the two shared and the three own words of each class, separated by commas or blanks.
    start : str
        Logits at time 0 of the shared words and of the own words of class 1.
    decoder_rate, attention_rate : float
        Learning rates, from 0.001 to 100.
    steps : int
        Time up to which the flows are followed, at least 10.
    flows : str
        "reduced", "joint" or "both".
    shown : int
        Class that is shown, 1 to 3.

    Raises
    ------
    DataError
        If a text does not hold five numbers that fit, a word is none of those allowed, or a rate is out of
        range.
    ShapeError
        If steps or the class is no whole number, or too small.
    """

    first: str = "0.3, 0.2, 0.1, 0.15, 0.25"
    second: str = "0.3, 0.2, 0.1, 0.15, 0.25"
    third: str = "0.3, 0.2, 0.1, 0.15, 0.25"
    start: str = "0, 0, 0, 0, 0"
    decoder_rate: float = 1.0
    attention_rate: float = 1.0
    steps: int = 10_000
    flows: str = "both"
    shown: int = 1

    def __post_init__(self) -> None:
        self.frequencies()
        self.logits()
        number(self.decoder_rate, "The decoder rate (decoder_rate)", *RATES)
        number(self.attention_rate, "The attention rate (attention_rate)", *RATES)
        check_integer(self.steps, "steps", 10)
        choice(self.flows, "flows", FLOWS.values())
        if check_integer(self.shown, "shown") > CLASSES:
            raise DataError(f"shown must be a class from 1 to {CLASSES}, got {self.shown}.")

    def frequencies(self) -> FloatArray:
        """(3, 5) frequencies, not scaled."""
        rows = [
            _numbers(text, f"Class {k}") for k, text in enumerate((self.first, self.second, self.third), 1)
        ]
        for k, row in enumerate(rows, 1):
            if (row < 0).any() or (row[SHARED:] <= 0).any():
                raise DataError(
                    f"Class {k}: frequencies must not be negative, and those of own words must be positive."
                )
        return np.array(rows)

    def logits(self) -> FloatArray:
        """(5,) logits at time 0."""
        values = _numbers(self.start, "Start")
        if np.abs(values).max() > HIGHEST:
            raise DataError(f"Start: logits must lie between −{HIGHEST:g} and {HIGHEST:g}.")
        return values

    def process(self) -> tuple[TokenProcess, FloatArray]:
        """Return the classes, and the (1, M) logits at time 0."""
        P, z = np.zeros((CLASSES, VOCABULARY)), np.zeros((1, VOCABULARY))
        for c, row in enumerate(self.frequencies()):
            P[c, _words(c)] = row
        z[0, _words(0)] = self.logits()
        end = SHARED + CLASSES * OWN
        return TokenProcess(P, np.full(CLASSES, end), end + 1 + np.arange(CLASSES)), z


def _words(c: int) -> list[int]:
    """Token numbers of the shared and the own words of class c, counted from 0."""
    first = SHARED + OWN * c
    return [*range(SHARED), *range(first, first + OWN)]


def _numbers(text: str, name: str) -> FloatArray:
    try:
        values = np.array([float(part) for part in str(text).replace(",", " ").split()])
    except ValueError:
        values = np.array([np.nan])
    if values.shape != (len(WORDS),) or not np.isfinite(values).all():
        raise DataError(
            f"{name}: write {len(WORDS)} numbers with commas between them, for {', '.join(WORDS)}; "
            f"got {text!r}."
        )
    return values


def view(settings: Settings) -> View:
    """Follow the flows as the settings say, and draw attention and logits of one class.

    Parameters
    ----------
    settings : Settings
        What to follow.

    Returns
    -------
    View
        Figure and sentences.

    Raises
    ------
    SvmlibError
        If features of classes are linearly dependent, or a flow cannot be followed.
    """
    s = settings
    process, z = s.process()
    times = np.concatenate([[0.0], np.geomspace(1.0, s.steps, 60)])
    names = ("reduced", "joint") if s.flows == "both" else (s.flows,)
    solve: dict[str, Any] = {"reduced": reduced_flow, "joint": flow}
    # rows: times; the panel needs no more than three digits
    runs: dict[str, FloatArray] = {
        k: solve[k](process, times, s.decoder_rate, s.attention_rate, z=z, rtol=1e-7).z for k in names
    }
    c = s.shown - 1
    status = tuple(_sentence(NAMES[k], process, runs[k], c) for k in names)
    fig, axes = plot.figure(2, height=3.6)
    try:
        for name, logits in runs.items():
            share = attention(process, logits)[:, c]
            for word, label, look in zip(_words(c), WORDS, LOOKS, strict=True):
                line = {"linestyle": "--" if name == "reduced" and len(runs) > 1 else "-"}
                told = label if name == names[-1] else None
                plot.curve(times[1:], share[1:, word], color=look, label=told, ax=axes[0], **line)
                plot.curve(times[1:], logits[1:, 0, word], color=look, ax=axes[1], **line)
        axes[0].set(xscale="log", xlabel="step", ylabel=f"attention of class {s.shown}", ylim=(0, None))
        axes[1].set(xscale="log", xlabel="step", ylabel="logits")
        plot.legend(axes[0], above=True)
        return View(plot.png(fig), status)
    finally:
        plt.close(fig)  # or a notebook would show it a second time


def _sentence(name: str, process: TokenProcess, z: FloatArray, c: int) -> str:
    present = [(w, label) for w, label in zip(_words(c), WORDS, strict=True) if process.P[c, w] > 0]
    change = {label: z[-1, 0, w] - z[0, 0, w] for w, label in present}
    up = ", ".join(label for label, d in change.items() if d > 0) or "none"
    down = ", ".join(label for label, d in change.items() if d < 0) or "none"
    own = _words(c)[SHARED:]
    share = attention(process, z[-1])[c, own]
    lead = int(share.argmax())
    constant = growth_constant(process, z[-1], z[0])[c, own]
    spread = np.ptp(constant) / max(np.abs(constant).max(), 1e-300)
    return (
        f"{name}, class {c + 1}: logits rise for {up}; they fall for {down}. Of the own words "
        f"{WORDS[SHARED + lead]} "
        f"leads, with {share[lead]:.3f} of the attention. The constants of the law of growth differ by "
        f"{100 * spread:.3g} %."
    )


class StaticScanningPanel:
    """The panel's default state as a picture, for pages without a kernel."""

    def __init__(self) -> None:
        self._view = view(Settings())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        note = (
            "This is a picture of the panel's first state. The panel itself has controls for the frequencies "
            "of the words, the start and both learning rates, and needs a Python kernel: open this page in "
            "JupyterLab or Colab with the launch button at the top, or download it as a notebook, and run "
            "the cell above."
        )
        return {"text/html": static_page(self._view, ALT, note), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "scanning panel (static): " + " ".join(self._view.status)


def scanning_panel() -> Any:
    """Panel on scanning, for a notebook: three classes with two shared and three own words each.

    Controls set the frequencies, the logits at the start and both learning rates; the figure shows attention
    and logits of one class in the reduced flow and in the joint flow. What cannot be computed is said there.

    Returns
    -------
    ipywidgets.VBox or StaticScanningPanel
        The panel; in the build of the book (``SVMLIB_BOOK=1``), where no kernel will answer, its picture.

    Examples
    --------
    >>> import svmlib as sv
    >>> panel = sv.widgets.scanning_panel()  # the last line of a cell displays it
    """
    if os.environ.get("SVMLIB_BOOK") == "1":
        return StaticScanningPanel()
    import ipywidgets as w

    wide = {"style": {"description_width": "initial"}, "layout": w.Layout(width="22em")}
    begin = Settings()
    typed = {"continuous_update": False, **wide}  # a number that is half typed is no error
    controls = {
        "first": w.Text(value=begin.first, description="Class 1: a, b, own words", **typed),
        "second": w.Text(value=begin.second, description="Class 2: a, b, own words", **typed),
        "third": w.Text(value=begin.third, description="Class 3: a, b, own words", **typed),
        "start": w.Text(value=begin.start, description="Start: a, b, own of class 1", **typed),
        "decoder_rate": w.FloatText(value=1.0, description="Decoder rate", **typed),
        "attention_rate": w.FloatText(value=1.0, description="Attention rate", **typed),
        "steps": w.Dropdown(options=list(STEPS.items()), value=begin.steps, description="Steps", **wide),
        "flows": w.Dropdown(options=list(FLOWS.items()), description="Follow", **wide),
        "shown": w.Dropdown(options=[1, 2, 3], description="Show class", **wide),
    }
    return panel(controls, lambda values: view(Settings(**values)), ALT)
