"""One trained vector for all sequences: the planar pictures of *Max-Margin Token Selection*."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from svmlib import compare, svm
from svmlib.arrays import FloatArray, torch_normals
from svmlib.attention import Direct, probabilities
from svmlib.data import Problem, prompt_problem
from svmlib.dynamics import gradient_descent, normalized, train

from .framework import Task, experiment
from .offset import limit_offset, two_sequences
from .recipe import additive_recipe

__all__ = [
    "cosines",
    "multiple_inputs",
    "p2_loss_functions",
    "p2_multiple_inputs",
    "p2_single_input",
    "single_input",
    "starts",
]

HEIGHTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
PAPER = "Max-Margin Token Selection in Attention Mechanism (2023)"


def single_input(third: float = 0.0) -> Problem:
    """One sequence of three planar keys with scores 1, 0.9 and a third one.

    Parameters
    ----------
    third : float
        Score of the token at the origin: 0.9 makes the two worse tokens equal, 0 makes token 1 locally
        optimal.

    Returns
    -------
    Problem
        A prompt problem, n = 1, T = 3.
    """
    return prompt_problem(keys=[[[-0.1, 1.0], [1.0, 0.0], [0.0, 0.0]]], scores=[[1.0, 0.9, third]])


def multiple_inputs(seed: int = 0) -> Problem:
    """Three sequences of seven planar keys in three clouds; token 0 has score 1, the others 0.5.

    Parameters
    ----------
    seed : int
        Seed of the clouds; 0 gives the published picture.

    Returns
    -------
    Problem
        A prompt problem, n = 3, T = 7.
    """
    noise = np.float32(0.2) * torch_normals(seed, (3, 7, 3))[0]  # the third column is drawn and not used
    centre = np.array([[1.0, 0.0]] + [[-1.0, 1.0]] * 3 + [[-0.5, -0.5]] * 3)
    scores = np.where(np.arange(7) == 0, 1.0, 0.5)
    return prompt_problem(noise[..., :2].astype(np.float64) + centre, np.broadcast_to(scores, (3, 7)))


def starts(values: Iterable[float] = HEIGHTS, axis: int = 1) -> Direct:
    """Make weights (values, 2, 1) on a coordinate axis of the plane, as the starts of the pictures are.

    Parameters
    ----------
    values : iterable of float
        Coordinates.
    axis : int
        0 puts them on the first axis, 1 on the second.

    Returns
    -------
    Direct
        One start for each value.
    """
    listed = np.array(list(values), dtype=np.float64)
    p = np.zeros((len(listed), 2, 1))
    p[:, axis, 0] = listed
    return Direct(p)


@experiment(
    "p2_single_input",
    about="one sequence: six starts, equal and unequal scores of the worse tokens",
    source=f"{PAPER}, global and local convergence on one input",
    trials=1,
    cost="2 s",
)
def p2_single_input(
    task: Task, *, thirds: tuple[float, ...] = (0.9, 0.0), steps: int = 1000
) -> dict[str, Any]:
    """Normalised gradient descent on p from six starts, beside the published recipe.

    Parameters
    ----------
    task : Task
        Nothing is random.
    thirds : tuple of float
        Scores of the third token, one panel each.
    steps : int
        Number of steps of length 0.1.

    Returns
    -------
    steps : ndarray
        (r,) recorded steps, every fifth.
    starts : ndarray
        (6, 2) starts.
    paths : ndarray
        (P, 6, r, 2) paths of p for the P panels.
    selected : ndarray
        (P, 6) token selected at the end.
    svm : ndarray
        (2, 2) solutions of the token SVMs of tokens 0 and 1.
    correlation : ndarray
        (P, 6, r, 2) correlation of p with either solution; NaN at p = 0.
    recipe_paths, recipe32_paths : ndarray
        (P, 6, r, 2) paths with the constant 1e-9 in the normalisation, in float64 and in float32.
    """
    every, first = range(0, steps + 1, 5), starts()
    panels = [single_input(third) for third in thirds]
    runs = [
        train(p.expand(6), first, normalized(0.1), steps, record=every, device=task.device) for p in panels
    ]
    solved = np.stack([svm.token_svm(panels[0].keys, [t]).p for t in (0, 1)])
    paths = np.stack([run.W[..., 0] for run in runs])
    recipes = [
        np.stack([additive_recipe(p, first, steps, precision=kind, record=every) for p in panels])
        for kind in ("float64", "float32")
    ]
    return {
        "steps": runs[0].steps,
        "starts": first.W[..., 0],
        "paths": paths,
        "selected": np.stack([run.selected[:, 0] for run in runs]),
        "svm": solved,
        "correlation": cosines(paths, solved),
        "recipe_paths": recipes[0],
        "recipe32_paths": recipes[1],
    }


@experiment(
    "p2_multiple_inputs",
    about="three sequences: six starts, normalised and plain gradient descent",
    source=f"{PAPER}, convergence on several inputs",
    trials=1,
    cost="2 s",
)
def p2_multiple_inputs(task: Task, *, steps: int = 1000) -> dict[str, Any]:
    """Paths, probabilities of the optimal tokens and norms of p for both step rules.

    Parameters
    ----------
    task : Task
        Its seed is that of the clouds of keys; 0 gives the published picture.
    steps : int
        Number of steps: normalised ones of length 0.1, plain ones of step size 1.

    Returns
    -------
    steps : ndarray
        (r,) recorded steps: every one to 200, then every tenth.
    starts : ndarray
        (6, 2) starts.
    svm : ndarray
        (2,) solution of the token SVM of the optimal tokens.
    normalized_paths, plain_paths : ndarray
        (6, r, 2) paths of p.
    normalized_probability, plain_probability : ndarray
        (6, r, 3) attention probability of the optimal token of each sequence.
    normalized_correlation, plain_correlation : ndarray
        (6, r) correlation of p with the solution; NaN at p = 0.
    """
    problem, first = multiple_inputs(task.seed), starts(axis=0)
    when = [*range(min(steps, 200)), *range(200, steps + 1, 10)]
    solved = svm.token_svm(problem.keys, problem.optimal).p
    out: dict[str, Any] = {"starts": first.W[..., 0], "svm": solved}
    for name, rule in (("normalized", normalized(0.1)), ("plain", gradient_descent(1.0))):
        run = train(problem.expand(6), first, rule, steps, record=when, device=task.device)
        s = probabilities(problem.expand(6), run.W)
        best = np.broadcast_to(problem.optimal[:, None], (*s.shape[:-1], 1))
        out |= {
            "steps": run.steps,
            f"{name}_paths": run.W[..., 0],
            f"{name}_probability": np.take_along_axis(s, best, -1)[..., 0],
            f"{name}_correlation": cosines(run.W[..., 0], solved[None])[..., 0],
        }
    return out


@experiment(
    "p2_loss_functions",
    about="two sequences, one with the score C: the loss moves an offset, not the direction",
    source=f"{PAPER}, linear against logistic loss",
    trials=1,
    cost="3 s",
)
def p2_loss_functions(
    task: Task, *, values: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100), steps: int = 1000
) -> dict[str, Any]:
    """Follow p from 0 for both losses and several C, and give the closed form of the offset.

    Parameters
    ----------
    task : Task
        Nothing is random.
    values : tuple of float
        Scores C of the first good token.
    steps : int
        Number of normalised steps of length 0.1.

    Returns
    -------
    steps : ndarray
        (r,) recorded steps, every tenth.
    values : ndarray
        (V,) scores C.
    linear_paths, logistic_paths : ndarray
        (V, r, 2) paths of p.
    linear_offset, logistic_offset : ndarray
        (V,) predicted limits of the second coordinate.
    recipe_path : ndarray
        (r, 2) the logistic path of the last C with the constant 1e-9 in the normalisation.
    """
    problem, every = two_sequences(values), range(0, steps + 1, 10)
    out: dict[str, Any] = {"values": np.array(values, dtype=np.float64)}
    for loss in ("linear", "logistic"):
        run = train(
            problem,
            Direct.zeros(problem),
            normalized(0.1),
            steps,
            record=every,
            loss=loss,
            device=task.device,
        )
        out |= {
            "steps": run.steps,
            f"{loss}_paths": run.W[..., 0],
            f"{loss}_offset": limit_offset(values, loss),
        }
    return out | {"recipe_path": additive_recipe(problem[-1], starts([0.0]), steps, record=every)[0]}


def cosines(paths: FloatArray, targets: FloatArray) -> FloatArray:
    """Compare the points of paths with several directions.

    Parameters
    ----------
    paths : ndarray, shape (..., r, e)
        Points.
    targets : ndarray, shape (k, e)
        Directions.

    Returns
    -------
    ndarray, shape (..., r, k)
        Correlations; NaN at the origin.
    """
    columns = [compare.correlation(paths[..., None], target[:, None]) for target in targets]
    return np.stack(columns, axis=-1)
