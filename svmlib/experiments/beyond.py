"""Where the theory of a fixed head stops: trained heads, several heads, LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray
from svmlib.attention import Architecture, Direct, TransformerWeights, transformer
from svmlib.data import Problem, random_problem
from svmlib.dynamics import normalized, train_layers
from svmlib.errors import DataError

from ._mixtures import SELECTED, classify, misses
from .framework import Task, experiment

__all__ = ["CASES", "Case", "beyond_fixed_head"]

RATE = 0.1


class Case(NamedTuple):
    """One layer, and what of it is trained."""

    mlp: bool = False
    """Whether a ReLU MLP stands between attention and the linear read-out."""
    heads: int = 1
    """Attention heads, whose outputs are mapped by value matrices and summed."""
    layer_norm: bool = False
    """Whether heads, MLP and read-out see streams of mean 0 and variance 1."""
    residual: bool = False
    """Whether the query is added to what the heads return."""
    trained: tuple[str, ...] = ("W",)
    """Blocks that move."""


CASES: dict[str, Case] = {
    "linear": Case(),
    "mlp": Case(mlp=True),
    "linear_trained": Case(trained=("W", "v")),
    "mlp_trained": Case(mlp=True, trained=("W", "E", "F", "v")),
    "two_heads": Case(heads=2),
    "two_heads_trained": Case(heads=2, trained=("W", "V", "v")),
    "layer_norm": Case(layer_norm=True),
    "residual_norm": Case(layer_norm=True, residual=True, mlp=True),
    "everything": Case(True, 2, True, True, ("W", "V", "E", "F", "v")),
}
"""The cases of :func:`beyond_fixed_head`; "linear" is the layer of the theory."""


def _start(p: Problem, case: Case, seed: int) -> tuple[Architecture, TransformerWeights]:
    a = Architecture(1, case.heads, case.residual, case.mlp, case.layer_norm)
    drawn = TransformerWeights.random(p, a, seed)
    W = np.zeros_like(drawn.W)
    # several heads need value maps that tell them apart; one head needs none
    V = np.broadcast_to(np.eye(p.d), np.shape(drawn.V)) if case.heads == 1 else drawn.V
    return a, drawn._replace(attention=Direct(W), V=V)


def _measured(name: str, sizes: tuple[int, int, int], steps: int, task: Task) -> dict[str, ArrayLike]:
    case, p = CASES[name], random_problem(*sizes, batch=task.trials, seed=task.seed)
    a, start = _start(p, case, task.seed)
    run = train_layers(
        p, a, start, normalized(RATE), steps, trainable=case.trained, record=[steps], device=task.device
    )
    seen = transformer(p, a, run.weights)
    streams = seen.inputs[:, 0]  # what the heads read: tokens, then the query
    q = Problem(streams[:, :, : p.T], streams[:, :, p.T], p.y)
    found: dict[str, list[FloatArray]] = {}
    for h in range(case.heads):
        s = seen.probabilities[:, 0, h, :, p.T]
        # heads, not labels, are asked here: whether a label is -1 does not matter
        status = classify(Problem(q.X, q.z, -np.ones_like(p.y)), s)
        row: dict[str, Any] = misses(q, run.W[:, -1:, 0, h], s)
        for key in ("eq", "mm", "one"):
            row[key] = row[key][:, 0]
        row |= {
            "status": status,
            "selected": (s > SELECTED).sum(-1),
            "size": np.linalg.norm(run.W[:, -1, 0, h], axis=(-2, -1)),
        }
        del row["cosine"]
        for key, value in row.items():
            found.setdefault(key, []).append(value)
    return {"accuracy": run.accuracy[:, -1], **{key: np.stack(v, 1) for key, v in found.items()}}


@experiment(
    "beyond_fixed_head",
    about="the generalised SVM where its theory stops: trained heads, several heads, LayerNorm",
    source="Transformers as Support Vector Machines (2023), its open questions; measured here",
    trials=60,
    test_trials=5,
    cost="about 30 s on one core",
)
def beyond_fixed_head(
    task: Task,
    *,
    cases: Sequence[str] = tuple(CASES),
    n: int = 3,
    T: int = 4,
    d: int = 8,
    steps: int = 1500,
) -> dict[str, ArrayLike]:
    """Train one layer in several ways and compare each head's W with what its own attention predicts.

    Normalised steps of length 0.1, each block by its own gradient, from W = 0, on the logistic loss.

    Parameters
    ----------
    task : Task
        Instances, seed of the first one and of its weights, device.
    cases : sequence of str
        Keys of ``svmlib.experiments.beyond.CASES``.
    n, T, d : int
        Sizes of an instance.
    steps : int
        Number of steps.

    Returns
    -------
    dict
        For each case, with H heads: ``CASE_eq``, ``CASE_mm``, ``CASE_one``, ``CASE_rest`` (trials, H), one
        minus the correlation of a head's W with the predictions of ``svmlib.experiments.composition.misses``;
        ``CASE_status`` (trials, H), what the filter of :func:`p1_composition` says, labels aside;
        ``CASE_selected`` (trials, H, n), number of selected tokens; ``CASE_size`` (trials, H), norm of W;
        ``CASE_accuracy`` (trials,).

    Raises
    ------
    DataError
        If there is no such case.
    """
    cases = (cases,) if isinstance(cases, str) else tuple(cases)
    if unknown := [name for name in cases if name not in CASES]:
        raise DataError(f"There is no case {unknown[0]!r}: take some of {', '.join(CASES)}.")
    found: dict[str, ArrayLike] = {}
    for name in task.progress(cases, "cases"):
        part = task.part(name, _measured, name, (n, T, d), steps, task)
        found |= {f"{name}_{key}": a for key, a in part.items()}
    return found
