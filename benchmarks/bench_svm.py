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


def per_pair(p: sv.data.Problem, selected: np.ndarray, norm: str) -> np.ndarray:
    """Write the generalised SVM as the formula reads; equalities of pairs depend on each other."""
    W = cp.Variable((p.key_dim, p.query_dim))
    constraints = []
    for i in range(p.n):
        for t in np.flatnonzero(selected[i]):
            for tau in range(p.T):
                margin = (p.keys[i, t] - p.keys[i, tau]) @ W @ p.z[i]
                if not selected[i, tau]:
                    constraints.append(margin >= 1)
                elif t < tau:
                    constraints.append(margin == 0)
    objective = 0.5 * cp.sum_squares(W) if norm == "fro" else cp.normNuc(W)
    cp.Problem(cp.Minimize(objective), constraints).solve(
        solver=cp.CLARABEL, static_regularization_constant=1e-7
    )
    return np.asarray(W.value)


@pytest.mark.parametrize(
    ("norm", "sizes", "batch", "few", "floor"),
    [
        ("fro", (3, 4, 4), 500, 5, 50),
        ("fro", (6, 8, 10), 100, 3, 50),
        ("nuc", (3, 4, 4), 500, 5, 10),
        ("nuc", (6, 8, 10), 100, 3, 10),
    ],
)
def test_ratio_to_one_constraint_for_each_pair(benchmark, norm, sizes, batch, few, floor):
    p = sv.data.random_problem(*sizes, batch=batch)
    rng = np.random.default_rng(0)
    selected = rng.random(p.X.shape[:-1]) < 0.4
    selected[np.arange(batch)[:, None], np.arange(p.n), rng.integers(p.T, size=(batch, p.n))] = True

    def slow():
        return [per_pair(p[b], selected[b], norm) for b in range(few)]

    fast, answers = sv.svm.generalized_svm(p, selected, norm=norm), slow()
    np.testing.assert_allclose(sv.norms.get(norm)(np.stack(answers)), fast.value[:few], rtol=1e-5)
    theirs, ours = [], []
    for _ in range(3):
        theirs.append(seconds(slow) / few)
        ours.append(seconds(lambda: sv.svm.generalized_svm(p, selected, norm=norm)) / batch)
    ratio, worst_gap = min(theirs) / min(ours), float(fast.certificate.worst.max())
    benchmark.extra_info.update(ratio=ratio, worst=worst_gap)
    print(
        f"\ngeneralised, {norm} {sizes}, batch {batch}: {1e3 * min(ours):.3f} ms an instance, per pair "
        f"{1e3 * min(theirs):.1f} ms: {ratio:.0f}x (floor {floor}x); worst violation or gap {worst_gap:.0e}"
    )
    benchmark.pedantic(sv.svm.generalized_svm, args=(p, selected), kwargs={"norm": norm}, rounds=1)
    assert worst_gap <= 1e-10
    assert ratio >= floor


def test_two_thousand_pairs_of_parts(benchmark):
    """The programs of a predictivity experiment: four widths, 500 instances each, both parts."""
    rng = np.random.default_rng(0)
    made = []
    for d in (4, 6, 8, 10):
        p = sv.data.random_problem(3, 4, d, batch=500)
        selected = rng.random(p.X.shape[:-1]) < 0.4
        selected[..., 0] |= ~selected.any(-1)
        a = np.einsum("bnte,bef,bnf->bnt", p.keys, rng.normal(size=(500, d, d)), p.z)
        made.append((p, selected, np.exp(a)))

    def both():
        return [(sv.svm.generalized_svm(p, o), sv.svm.finite_part(p, s, o)) for p, o, s in made]

    worst_of = max(float(r.certificate.worst.max()) for pair in both() for r in pair)
    spent = min(seconds(both) for _ in range(3))
    print(
        f"\n2,000 instances, both parts: {spent:.2f} s (at most 3 s), worst violation or gap {worst_of:.0e}"
    )
    benchmark.pedantic(both, rounds=1)
    assert worst_of <= 1e-10
    assert spent <= 3.0
