"""The attention SVM against a program with one cvxpy constraint for each token, in one run.

Both sides run alternately on the same instances; the ratio of their shortest times is printed and has a
floor. Run with ``make bench``, or ``pytest benchmarks/bench_svm.py -s``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest

import svmlib as sv


def per_constraint(delta: np.ndarray, z: np.ndarray, tokens: np.ndarray, norm: str) -> np.ndarray:
    """Write the program as the formula reads, with the solver's default settings."""
    n, T, d = delta.shape
    W = cp.Variable((d, d))
    constraints = [delta[i, t] @ W @ z[i] >= 1 for i in range(n) for t in range(T) if t != tokens[i]]
    cp.Problem(cp.Minimize(cp.norm(W, norm)), constraints).solve(solver=cp.CLARABEL)
    return np.asarray(W.value)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize(
    ("norm", "sizes", "floor"),
    [("fro", (6, 8, 10), 20), ("fro", (10, 10, 10), 35), ("nuc", (6, 8, 10), 10), ("nuc", (10, 10, 10), 10)],
)
def test_ratio_to_one_constraint_for_each_token(benchmark, norm, sizes, floor):
    p = sv.data.random_problem(*sizes, batch=10)
    delta, tokens, few = p.differences(), p.optimal, 3

    def slow():
        return [per_constraint(delta[b], p.z[b], tokens[b], norm) for b in range(few)]

    fast = sv.svm.attention_svm(p, norm=norm)
    np.testing.assert_allclose(sv.norms.get(norm)(np.stack(slow())), fast.value[:few], rtol=1e-5)
    theirs, ours = [], []
    for _ in range(3):
        theirs.append(seconds(slow) / few)
        ours.append(seconds(lambda: sv.svm.attention_svm(p, norm=norm)) / 10)
    ratio = min(theirs) / min(ours)
    benchmark.extra_info.update(ratio=ratio, worst=float(fast.certificate.worst.max()))
    print(
        f"\n{norm} {sizes}: {1e3 * min(ours):.2f} ms, per constraint {1e3 * min(theirs):.1f} ms: {ratio:.0f}x"
    )
    benchmark.pedantic(sv.svm.attention_svm, args=(p,), kwargs={"norm": norm}, rounds=3)
    assert fast.certificate.worst.max() <= 1e-9
    assert ratio >= floor
