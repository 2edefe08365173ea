"""Numbers by which the figures' JavaScript is judged: written by svmlib, `python tests/js/golden.py` anew.

Each writer returns what one file of golden/ holds; the tests compare the files with what writers return now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import svmlib as sv

FOLDER = Path(__file__).parent / "golden"


def planar(p: sv.data.Problem) -> dict[str, Any]:
    return {"X": p.X.tolist(), "z": p.z.tolist(), "scores": p.scores.tolist()}


def wrong_limit() -> sv.data.Problem:
    """Two sequences of one query: no stationary point, and still two directions (THEORY's CE-3)."""
    X = [[[0.0, 0.0], [-2.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]]
    return sv.data.Problem(X, [[1.0, 0.0]] * 2, [1, 1], [1.0, 3.0])


def training() -> dict[str, Any]:
    """Trajectories and gradients; no run stalls: there, steps of a fixed length amplify round-off."""
    named = {"planar 1": sv.data.planar(1), "planar 2": sv.data.planar(2), "wrong limit": wrong_limit()}
    named |= {f"random {s}": sv.data.random_problem(n=2, T=4, d=2, seed=s) for s in (17, 24, 54)}
    runs = []
    for name, p in named.items():
        K, Q = sv.attention.Factored.random(p, seed=0)
        for loss in ("logistic", "exponential", "linear"):
            for rule in ("normalized", "gradient_descent"):
                step = getattr(sv.dynamics, rule)(0.1)
                W = sv.dynamics.train(
                    p, sv.attention.Direct.zeros(p), step, 200, record=[1, 20, 200], loss=loss
                )
                KQ = sv.dynamics.train(
                    p, sv.attention.Factored(K, Q), step, 200, record=[1, 50, 200], loss=loss
                )
                runs.append(
                    {"name": name, **planar(p), "loss": loss, "normalized": rule == "normalized"}
                    | {"K0": K.tolist(), "Q0": Q.tolist(), "steps_W": W.steps.tolist(), "W": W.W.tolist()}
                    | {"steps_KQ": KQ.steps.tolist(), "KQ": KQ.W.tolist(), "value": W.loss.tolist()}
                )
    return {"rate": 0.1, "runs": runs}


def saturated() -> dict[str, Any]:
    """A step from weights at which every softmax is one-hot in floating point."""
    p = sv.data.planar(1)
    W0 = 400 * sv.svm.attention_svm(p).W
    run = sv.dynamics.train(p, sv.attention.Direct(W0), sv.dynamics.normalized(1.0), 1, record=[1])
    return {**planar(p), "W0": W0.tolist(), "W": run.W[-1].tolist()}


def svms() -> dict[str, Any]:
    """Solutions for both norms; null where the tokens cannot be separated."""
    named = {"planar 1": sv.data.planar(1), "planar 2": sv.data.planar(2), "wrong limit": wrong_limit()}
    for s in range(80):
        named[f"random {s}"] = sv.data.random_problem(n=1 + s % 4, T=2 + s // 4 % 5, d=2, seed=s)
    out = []
    for name, p in named.items():
        found: dict[str, Any] = {"name": name, **planar(p), "selected": p.optimal.tolist()}
        for norm in ("fro", "nuc"):
            try:
                svm = sv.svm.attention_svm(p, norm=norm)
            except sv.errors.InfeasibleError:
                found[norm] = None
            else:
                found[norm] = {"W": svm.W.tolist(), "value": float(svm.value), "rank": int(svm.rank)}
                found[norm] |= {"support": svm.support.tolist()}
        out.append(found)
    return {"instances": out}


WRITERS: dict[str, Callable[[], dict[str, Any]]] = {
    "saturated": saturated,
    "svms": svms,
    "training": training,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or WRITERS:
        text = json.dumps(WRITERS[name](), separators=(",", ":"))
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def numbers(value: Any) -> Any:
    """All numbers of a nested structure in order, and the structure without them."""
    if isinstance(value, dict):
        parts = [numbers(v) for v in value.values()]
        return np.concatenate([p[0] for p in parts] or [[]]), {
            k: p[1] for k, p in zip(value, parts, strict=True)
        }
    if isinstance(value, list):
        parts = [numbers(v) for v in value]
        return np.concatenate([p[0] for p in parts] or [[]]), [p[1] for p in parts]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return np.zeros(0), value
    return np.array([float(value)]), "number"


if __name__ == "__main__":
    main()
