"""The attention SVM against a program with one cvxpy constraint for each token, in one run.

Both sides run alternately on the same instances; the ratio of their shortest times for one instance is
printed and has a floor, and so is the duality gap of both. Run with ``make bench``, or
``pytest benchmarks/bench_svm.py -s``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest

import svmlib as sv
from svmlib.svm.records import attention_certificate


def per_constraint(p: sv.data.Problem, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Write the program as the formula reads, with the solver's default settings: W and multipliers."""
    delta, constrained = p.differences(), np.arange(p.T) != p.optimal[:, None]
    W = cp.Variable((p.d, p.d))
    pairs = np.argwhere(constrained)
    constraints = [delta[i, t] @ W @ p.z[i] >= 1 for i, t in pairs]
    objective = 0.5 * cp.sum_squares(W) if norm == "fro" else cp.normNuc(W)
    cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)
    multipliers = np.zeros(constrained.shape)
    multipliers[constrained] = [float(c.dual_value) for c in constraints]
    return np.asarray(W.value), multipliers


def worst(p: sv.data.Problem, W: np.ndarray, multipliers: np.ndarray, norm: str) -> float:
    """Largest violation or gap of a solution."""
    constrained, required = np.arange(p.T) != p.optimal[:, None], np.ones(p.n, dtype=bool)
    return float(
        attention_certificate(W, multipliers, p.differences(), p.z, constrained, required, norm)[0].worst
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize(
    ("norm", "sizes", "batch", "few", "floor"),
    [
        ("fro", (6, 8, 10), 100, 5, 50),
        ("fro", (10, 10, 10), 100, 5, 50),
        ("nuc", (6, 8, 10), 100, 5, 10),
        ("nuc", (10, 10, 10), 100, 5, 10),
        ("nuc", (15, 15, 20), 20, 2, 5),
    ],
)
def test_ratio_to_one_constraint_for_each_token(benchmark, norm, sizes, batch, few, floor):
    p = sv.data.random_problem(*sizes, batch=batch)

    def slow():
        return [per_constraint(p[b], norm) for b in range(few)]

    fast, answers = sv.svm.attention_svm(p, norm=norm), slow()
    np.testing.assert_allclose(
        sv.norms.get(norm)(np.stack([W for W, _ in answers])), fast.value[:few], rtol=1e-5
    )
    theirs, ours = [], []
    for _ in range(3):
        theirs.append(seconds(slow) / few)
        ours.append(seconds(lambda: sv.svm.attention_svm(p, norm=norm)) / batch)
    ratio = min(theirs) / min(ours)
    gaps = float(fast.certificate.worst.max()), max(worst(p[b], *answers[b], norm) for b in range(few))
    benchmark.extra_info.update(ratio=ratio, worst=gaps[0], theirs=gaps[1])
    print(
        f"\n{norm} {sizes}, batch {batch}: {1e3 * min(ours):.3f} ms an instance, per constraint "
        f"{1e3 * min(theirs):.1f} ms: {ratio:.0f}x (floor {floor}x); worst violation or gap "
        f"{gaps[0]:.0e}, per constraint {gaps[1]:.0e}"
    )
    benchmark.pedantic(sv.svm.attention_svm, args=(p,), kwargs={"norm": norm}, rounds=1)
    assert gaps[0] <= 1e-10
    assert gaps[0] < gaps[1]
    assert ratio >= floor


def test_ten_thousand_small_problems(benchmark):
    p = sv.data.random_problem(5, 5, 10, batch=10_000)
    sv.svm.attention_svm(p[:10])
    ours = seconds(lambda: sv.svm.attention_svm(p))
    theirs = seconds(lambda: [per_constraint(p[b], "fro") for b in range(1000)])
    print(
        f"\nfro (5, 5, 10): 10,000 instances in {ours:.2f} s, 1,000 per constraint in {theirs:.1f} s: "
        f"a share of {ours / theirs:.3f} (at most 0.1)"
    )
    benchmark.pedantic(sv.svm.attention_svm, args=(p,), rounds=1)
    assert ours <= 0.1 * theirs
