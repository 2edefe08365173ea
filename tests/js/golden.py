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


def softmaxes() -> dict[str, Any]:
    """Logarithms of softmax probabilities, in extended precision."""
    import mpmath

    rows = [[0.3, -1.2, 2.0], [800.0, 0.0, -800.0], [1e4, 1e4, 0.0], [-5.0], [1e-9, 0.0]]
    logs = []
    with mpmath.workdps(50):
        for row in rows:
            total = mpmath.fsum(mpmath.exp(x) for x in row)
            logs.append([float(mpmath.mpf(x) - mpmath.log(total)) for x in row])
    return {"rows": rows, "logs": logs}


def mixtures() -> dict[str, Any]:
    """Sparsemax projections; training before the head with a dial, ended before steps bounce in a valley."""
    rng = np.random.default_rng(0)
    rows = [*(rng.normal(0, 3, (20, 6))), np.zeros(4), np.array([1e9, 1e9 - 0.5, 0.0])]
    cases = []
    for seed in range(6):
        r = np.random.default_rng(seed)
        gamma, lam = r.normal(0, 1, 5), float(np.exp(r.uniform(-3, 1)))
        p = sv.data.Problem(np.eye(5)[None], [[1.0]], [1], head=sv.attention.quadratic(gamma, lam))
        start = r.normal(0, 2, 5)
        for rule in ("normalized", "gradient_descent"):
            step = getattr(sv.dynamics, rule)(0.01)
            run = sv.dynamics.train(p, sv.attention.Direct(start[:, None]), step, 200, record=[1, 20, 200])
            cases.append(
                {"gamma": gamma.tolist(), "lambda": lam, "start": start.tolist(), "rate": 0.01}
                | {"normalized": rule == "normalized", "steps": run.steps.tolist()}
                | {"logits": run.W[..., 0].tolist()}
            )
    return {
        "rows": [row.tolist() for row in rows],
        "sparsemax": [sv.attention.sparsemax(row).tolist() for row in rows],
        "cases": cases,
    }


def paths() -> dict[str, Any]:
    """Points of regularisation paths on both balls, at radii in units of the SVM's norm."""
    named = {"planar 1": sv.data.planar(1), "planar 2": sv.data.planar(2)}
    named |= {f"random {s}": sv.data.random_problem(n=1 + s % 3, T=3, d=2, seed=s) for s in (0, 1, 3, 17)}
    points = []
    for name, p in named.items():
        for norm in ("fro", "nuc"):
            svm = sv.svm.attention_svm(p, norm=norm)
            for loss in ("logistic", "exponential", "linear"):
                radii = float(svm.value) * np.array([0.1, 1.0, 5.0, 50.0])
                path = sv.dynamics.regularization_path(p, radii, norm=norm, loss=loss)
                points.append(
                    {"name": name, **planar(p), "norm": norm, "loss": loss, "svm": svm.W.tolist()}
                    | {"radii": radii.tolist(), "W": path.W.tolist(), "value": path.log_gap.tolist()}
                    | {"inside": path.interior.tolist()}
                )
    return {"points": points}


def landscapes() -> dict[str, Any]:
    """Vector form: gradients, and the tokens that starts on a grid end with."""
    keys = np.array([[[0.126, -0.132], [0.640, 0.105], [-0.536, 0.362], [1.304, 0.947]]])
    scores = np.array([[0.544, 0.935, 0.816, 0.003]])
    saddle = sv.data.Problem(scores[..., None], np.ones((1, 1)), np.ones(1), [1.0], keys=keys)
    at = np.random.default_rng(0).normal(0, 3, (6, 2))
    side = np.arange(-8.0, 9.0)
    starts = np.stack(np.meshgrid(side, side[::-1]), -1).reshape(-1, 2)
    wrong = sv.data.prompt_problem([[[0, 0], [-2, 1]], [[0, 0], [1, 0]]], [[0, 1], [0, 1]])
    many = sv.data.Problem(
        np.broadcast_to(wrong.X, (len(starts), *wrong.X.shape)), wrong.z, wrong.y, wrong.v, keys=wrong.keys
    )
    run = sv.dynamics.train(
        many, sv.attention.Direct(starts[..., None]), sv.dynamics.normalized(0.05), 4000, record=1
    )
    return {
        "X": keys.tolist(),
        "scores": scores.tolist(),
        "at": at.tolist(),
        "gradients": {
            loss: [
                sv.attention.gradient(saddle, sv.attention.Direct(p[:, None]), loss).W[:, 0].tolist()
                for p in at
            ]
            for loss in ("logistic", "exponential", "linear")
        },
        "starts": starts.tolist(),
        "selected": run.top_token[:, -1].tolist(),
    }


def scan_and_snap() -> dict[str, Any]:
    """Population steps for one query and for several, with and without momentum, and the decoder's clock."""
    small = sv.scansnap.syn_small()
    rng = np.random.default_rng(0)
    mixed = np.zeros((3, 20))
    mixed[:, :3] = rng.uniform(0.1, 1.0, (3, 3))
    for c in range(3):
        mixed[c, 3 + 2 * c : 5 + 2 * c] = rng.uniform(0.1, 1.0, 2)
    cases = [
        ("Syn-Small", small, 1.0, 1.0, 0.9, 30, False),
        ("Syn-Small, fast decoder", small, 10.0, 1.0, 0.0, 30, False),
        ("one query", sv.scansnap.TokenProcess(mixed, [9] * 3, [10, 11, 12]), 1.0, 0.3, 0.0, 9, True),
        ("like classes", sv.scansnap.symmetric(3, [0.5], [0.3, 0.2, 0.1], 100), 2.0, 0.2, 0.5, 10, True),
    ]
    runs = []
    for name, process, eta_D, eta_Z, momentum, L, one in cases:
        run = sv.scansnap.simulate(process, eta_D, eta_Z, 200, momentum=momentum, record=[1, 20, 200])
        runs.append(
            {"name": name, "P": process.P[:, :L].tolist(), "M": process.M, "oneQuery": one}
            | {"decoderRate": eta_D, "attentionRate": eta_Z, "momentum": momentum}
            | {"steps": run.steps.tolist(), "loss": run.loss[0].tolist(), "s": run.s[0, ..., :L].tolist()}
            | {
                "z": run.z[0, ..., :L].tolist(),
                "sent": np.linalg.norm(run.sent[0], axis=-1).mean(-1).tolist(),
            }
            | {"common": sv.scansnap.common_mass(process, run.s[0]).tolist()}
            | {"entropy": sv.scansnap.distinct_entropy(process, run.s[0]).tolist()}
        )
    times = np.geomspace(1e-3, 1e5, 30)
    clock = [
        {"M": M, "C": C, "rate": rate, "speed": sv.scansnap.speed(times, M, C, rate).tolist()}
        | {"progress": (M * sv.scansnap.progress(times / C, M, rate)).tolist()}
        | {"transition": float(sv.scansnap.transition(M, C, rate))}
        for M, C, rate in ((34, 2, 1.0), (1000, 10, 0.5), (10, 2, 5.0))
    ]
    return {"runs": runs, "times": times.tolist(), "clock": clock}


WRITERS: dict[str, Callable[[], dict[str, Any]]] = {
    "landscapes": landscapes,
    "mixtures": mixtures,
    "paths": paths,
    "saturated": saturated,
    "scan_and_snap": scan_and_snap,
    "softmaxes": softmaxes,
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
