"""A panel on planar training paths: choose an instance and a way to train, see where the weights turn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from svmlib import compare, data, plot, svm
from svmlib.arrays import FloatArray, check_integer
from svmlib.attention import Direct, Factored
from svmlib.dynamics import Run, gradient_descent, normalized, train
from svmlib.errors import InfeasibleError
from svmlib.plot._arguments import choice, number

from ._panel import View, panel, static_page

__all__ = ["Settings", "StaticPanel", "View", "trajectory_panel", "view"]

INSTANCES = {"planar 1": "1", "planar 2": "2", "random, n = 3, T = 4": "random"}
PARAMETRISATIONS = {"both": "both", "W": "W", "(K, Q)": "KQ"}
LOSSES = {"logistic": "logistic", "exponential": "exponential", "linear": "linear"}
RULES = {"normalised": "normalised", "plain": "plain"}
TOKENS = {"the selected tokens": "selected", "the optimal tokens": "optimal"}
RATES = (1e-6, 1e6)  # beyond these a path is a point, or leaves the numbers that can be drawn
STEPS = (100, 300, 1000, 2000, 5000)
ALT = (
    "Two panels. Left: paths of W z and of K Q transposed z in the plane with the rays of both SVMs. "
    "Right: one minus the correlation with each SVM against the iteration."
)
NORMS = {"fro": "Frobenius", "nuc": "nuclear"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the controls say.

    Attributes
    ----------
    instance : str
        "1" or "2" (:func:`svmlib.data.planar`), or "random".
    seed : int
        Seed of the random instance and of the start of K.
    parametrisation : str
        "W", "KQ" or "both".
    loss : str
        "logistic", "exponential" or "linear".
    rule : str
        "normalised" or "plain".
    rate : float
        Step size, from 1e-6 to 1e6.
    steps : int
        Number of steps, at least 1.
    tokens : str
        Whether the SVMs separate the "selected" tokens or the "optimal" ones.

    Raises
    ------
    DataError
        If a word is none of these, or the step size is no number in its range.
    ShapeError
        If the seed or the number of steps is no whole number, or too small.
    """

    instance: str = "1"
    seed: int = 0
    parametrisation: str = "both"
    loss: str = "logistic"
    rule: str = "normalised"
    rate: float = 0.1
    steps: int = 1000
    tokens: str = "selected"

    def __post_init__(self) -> None:
        for name, options in (
            ("instance", INSTANCES),
            ("parametrisation", PARAMETRISATIONS),
            ("loss", LOSSES),
            ("rule", RULES),
            ("tokens", TOKENS),
        ):
            choice(getattr(self, name), name, options.values())
        check_integer(self.seed, "seed", 0)
        check_integer(self.steps, "steps")
        number(self.rate, "The step size (rate)", *RATES)


def view(settings: Settings) -> View:
    """Train as the settings say, solve the SVMs of the selected tokens, and draw both.

    Parameters
    ----------
    settings : Settings
        What to train.

    Returns
    -------
    View
        Figure and sentences.

    Raises
    ------
    SvmlibError
        If training leaves the finite numbers.
    """
    s = settings
    p = data.random_problem(3, 4, 2, seed=s.seed) if s.instance == "random" else data.planar(int(s.instance))
    rule = normalized(s.rate) if s.rule == "normalised" else gradient_descent(s.rate)
    starts: dict[str, Direct | Factored] = {"W": Direct.zeros(p), "KQ": Factored.random(p, seed=s.seed)}
    names = ("W", "KQ") if s.parametrisation == "both" else (s.parametrisation,)
    runs = {name: train(p, starts[name], rule, s.steps, loss=s.loss) for name in names}
    status, solutions = [], {}
    for name, run in runs.items():
        solutions[name], text = _solve(p, run, name, s.tokens)
        status.append(text)
    fig, axes = plot.figure(2, height=3.8)
    try:
        _draw_paths(axes[0], p, runs, solutions)
        _draw_correlations(axes[1], runs, solutions)
        return View(plot.png(fig), tuple(status))
    finally:
        plt.close(fig)  # or a notebook would show it a second time


def _solve(p: data.Problem, run: Run, name: str, tokens: str) -> tuple[dict[str, FloatArray], str]:
    """Both SVMs of the tokens, and a sentence on where the run stands."""
    chosen = ", ".join(str(t + 1) for t in run.selected)
    right = "all optimal" if (run.selected == p.optimal).all() else "not all optimal"
    who = "W" if name == "W" else "(K, Q)"
    size = np.linalg.norm(run.W[-1])
    head = f"{who} selects tokens {chosen} ({right}); its norm is {size:.4g}"
    separated = run.selected if tokens == "selected" else p.optimal
    try:
        solved = {norm: svm.attention_svm(p, separated, norm=norm).W for norm in NORMS}
    except InfeasibleError as exc:
        return {}, f"{head}. There is no SVM direction to compare with. {exc}"
    parts = [
        f"{compare.correlation(run.W[-1], W):.4f} with the {NORMS[norm]} SVM" for norm, W in solved.items()
    ]
    return solved, f"{head}; correlation {' and '.join(parts)} of the {tokens} tokens."


def _draw_paths(
    ax: Any, p: data.Problem, runs: dict[str, Run], solutions: dict[str, dict[str, FloatArray]]
) -> None:
    # where W and (K, Q) select different tokens, each ray is that of the run which turns to it
    first, last = solutions[next(iter(runs))], solutions[next(reversed(runs))]
    iterates = {name: run.W for name, run in runs.items()}
    plot.planar_paths(
        p,
        W=iterates.get("W"),
        KQ=iterates.get("KQ"),
        fro=first.get("fro"),
        nuc=last.get("nuc"),
        log_radius=True,
        ax=ax,
    )
    ax.set_xlabel("$Wz_i$, lengths on a logarithmic scale")


def _draw_correlations(ax: Any, runs: dict[str, Run], solutions: dict[str, dict[str, FloatArray]]) -> None:
    own = {"W": "fro", "KQ": "nuc"}
    drawn = False
    for name, run in runs.items():
        for norm, W in solutions[name].items():
            moving = run.steps > 0  # at step 0 the weights are zero and have no direction
            error = np.maximum(1.0 - compare.correlation(run.W[moving], W), 1e-16)
            label = f"{'$W$' if name == 'W' else '$(K,Q)$'} and {NORMS[norm]}"
            plot.curve(
                run.steps[moving], error, color=name if norm == own[name] else norm, label=label, ax=ax
            )
            drawn = True
    if drawn:
        ax.set(xscale="log", yscale="log", xlabel="iteration", ylabel="1 − correlation with the SVM")
        plot.legend(ax, loc="lower left")
    else:
        ax.text(0.5, 0.5, "no SVM direction:\nthese tokens\ncannot be separated", ha="center", va="center")
        ax.set_axis_off()


class StaticPanel:
    """The panel's default state as a picture, for pages without a kernel."""

    def __init__(self) -> None:
        self._view = view(Settings())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        note = (
            "This is a picture of the panel's first state. The panel itself has controls for the instance, "
            "the parametrisation, the loss and the steps, and needs a Python kernel: open this page in "
            "JupyterLab or Colab with the launch button at the top, or download it as a notebook, and run "
            "the cell above."
        )
        return {"text/html": static_page(self._view, ALT, note), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return "trajectory panel (static): " + " ".join(self._view.status)


def trajectory_panel() -> Any:
    """Panel on planar training paths, for a notebook.

    Controls choose the instance, the parametrisation, the loss, the step rule and the number of steps; the
    figure shows the paths of the mapped queries with the rays of both SVMs, and how far the direction is from
    each. What cannot be computed is said in the panel.

    Returns
    -------
    ipywidgets.VBox or StaticPanel
        The panel; in the build of the book (``SVMLIB_BOOK=1``), where no kernel will answer, its picture.

    Examples
    --------
    >>> import svmlib as sv
    >>> panel = sv.widgets.trajectory_panel()  # the last line of a cell displays it
    """
    if os.environ.get("SVMLIB_BOOK") == "1":
        return StaticPanel()
    import ipywidgets as w

    wide = {"style": {"description_width": "initial"}, "layout": w.Layout(width="22em")}
    controls = {
        "instance": w.Dropdown(options=list(INSTANCES.items()), description="Instance", **wide),
        "seed": w.BoundedIntText(
            value=0, min=0, max=9999, description="Seed (random data, start of K)", **wide
        ),
        "parametrisation": w.Dropdown(options=list(PARAMETRISATIONS.items()), description="Train", **wide),
        "loss": w.Dropdown(options=list(LOSSES.items()), description="Loss", **wide),
        "rule": w.Dropdown(options=list(RULES.items()), description="Steps are", **wide),
        "rate": w.FloatText(value=0.1, description="Step size", **wide),
        "tokens": w.Dropdown(options=list(TOKENS.items()), description="SVM of", **wide),
        "steps": w.Dropdown(options=STEPS, value=1000, description="Number of steps", **wide),
    }
    return panel(controls, lambda values: view(Settings(**values)), ALT)
