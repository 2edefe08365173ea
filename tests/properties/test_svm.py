"""Symmetries of the attention SVM, on instances of drawn sizes and seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import svmlib as sv
from svmlib.errors import InfeasibleError

NORMS = st.sampled_from(["fro", "nuc"])


class Drawn(NamedTuple):
    X: np.ndarray
    z: np.ndarray
    tokens: np.ndarray
    rng: np.random.Generator

    def problem(self, X=None, z=None, mask=None):
        X, z = self.X if X is None else X, self.z if z is None else z
        return sv.data.Problem(X, z, np.ones(X.shape[:-2]), mask=mask)


@st.composite
def instances(draw):
    n, T, d = (draw(st.integers(1, top)) for top in (4, 5, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    made = Drawn(rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.integers(T, size=n), rng)
    assume(sv.svm.feasible(made.problem(), made.tokens))
    # nearly contradictory draws have solutions so large that round-off shows at the tolerances below
    assume(sv.svm.attention_svm(made.problem(), made.tokens).value < 1e3)
    return made


def prop(test):
    return settings(max_examples=40, deadline=None, derandomize=True)(given(instances(), NORMS)(test))


def solve(drawn, norm, tokens=None, **changed):
    return sv.svm.attention_svm(
        drawn.problem(**changed), drawn.tokens if tokens is None else tokens, norm=norm
    )


def close(A, B, scale, tol=1e-8):
    np.testing.assert_allclose(A, B, rtol=0, atol=tol * max(float(scale), 1e-300))


@prop
def test_every_result_is_certified(drawn, norm):
    svm = solve(drawn, norm)
    assert svm.certificate.worst <= 1e-9
    margins = sv.compare.margins(svm.W, drawn.X, drawn.z, drawn.tokens)
    assert (margins >= 1 - 1e-9).all()
    assert (svm.multipliers >= 0).all()
    assert (svm.multipliers[~svm.support] <= 1e-9 * svm.multipliers.sum()).all()  # zero off the margin
    delta = drawn.problem().differences(drawn.tokens)
    G = np.einsum("nt,ntd,ne->de", svm.multipliers, delta, drawn.z)
    if norm == "fro":
        close(G, svm.W, svm.value)
        np.testing.assert_allclose(svm.multipliers.sum(), svm.value**2, rtol=1e-8)
    elif svm.value > 0:
        np.testing.assert_allclose(sv.norms.SPEC(G), 1.0, rtol=1e-9)
        np.testing.assert_allclose((G * svm.W).sum(), svm.value, rtol=1e-8)
        np.testing.assert_allclose(svm.multipliers.sum(), svm.value, rtol=1e-8)


@prop
def test_rotation(drawn, norm):
    d = drawn.X.shape[-1]
    U, V = (np.linalg.qr(drawn.rng.normal(size=(d, d)))[0] for _ in range(2))
    svm, turned = solve(drawn, norm), solve(drawn, norm, X=drawn.X @ U.T, z=drawn.z @ V.T)
    np.testing.assert_allclose(turned.value, svm.value, rtol=1e-8)
    if norm == "fro":  # unique
        close(turned.W, U @ svm.W @ V.T, svm.value)


@prop
def test_permutations(drawn, norm):
    n, T, _ = drawn.X.shape
    sequences, places = drawn.rng.permutation(n), drawn.rng.permutation(T)
    X = drawn.X[sequences][:, places]
    tokens = np.argsort(places)[drawn.tokens[sequences]]
    svm, moved = solve(drawn, norm), solve(drawn, norm, tokens, X=X, z=drawn.z[sequences])
    np.testing.assert_allclose(moved.value, svm.value, rtol=1e-8)
    if norm == "fro":
        close(moved.W, svm.W, svm.value)
        np.testing.assert_array_equal(moved.support, svm.support[sequences][:, places])


@prop
def test_scaling_and_shifts(drawn, norm):
    svm, c = solve(drawn, norm), 10.0 ** drawn.rng.uniform(-3, 3)
    np.testing.assert_allclose(solve(drawn, norm, z=c * drawn.z).value * c, svm.value, rtol=1e-8)
    np.testing.assert_allclose(solve(drawn, norm, X=c * drawn.X).value * c, svm.value, rtol=1e-8)
    shifted = drawn.X + drawn.rng.normal(size=(len(drawn.X), 1, drawn.X.shape[-1]))  # differences stay
    np.testing.assert_allclose(solve(drawn, norm, X=shifted).value, svm.value, rtol=1e-8)
    if norm == "fro":
        close(solve(drawn, norm, z=c * drawn.z).W * c, svm.W, svm.value)


@prop
def test_slack_tokens_change_nothing(drawn, norm):
    svm = solve(drawn, norm)
    mapped = drawn.z @ svm.W.T  # moving against W z gives a large margin
    size = np.square(mapped).sum(-1, keepdims=True)
    far = np.take_along_axis(drawn.X, drawn.tokens[:, None, None], axis=1)[:, 0] - np.divide(
        3 * mapped, size, out=np.ones_like(mapped), where=size > 0
    )
    assume((size > 0).all())
    more = solve(drawn, norm, X=np.concatenate([drawn.X, far[:, None]], axis=1))
    np.testing.assert_allclose(more.value, svm.value, rtol=1e-8)
    assert (more.multipliers[:, -1] <= 1e-8 * more.multipliers.sum()).all()
    if norm == "fro":
        close(more.W, svm.W, svm.value)
        assert not more.support[:, -1].any()


@prop
def test_masked_tokens_change_nothing(drawn, norm):
    n, T, d = drawn.X.shape
    mask = np.concatenate([np.ones((n, T), bool), np.zeros((n, 2), bool)], axis=1)
    X = np.concatenate([drawn.X, drawn.rng.normal(size=(n, 2, d))], axis=1)
    np.testing.assert_array_equal(solve(drawn, norm, X=X, mask=mask).W, solve(drawn, norm).W)


@prop
def test_a_batch_of_one_equals_no_batch(drawn, norm):
    svm, batch = solve(drawn, norm), solve(drawn, norm, X=drawn.X[None], z=drawn.z[None])
    for name in ("W", "value", "rank", "support", "multipliers", "tokens", "feasible"):
        got = getattr(batch, name)
        assert got.shape[0] == 1
        np.testing.assert_array_equal(got[0], getattr(svm, name))


@prop
def test_each_norm_is_smallest_at_its_own_solution(drawn, norm):
    fro, nuc = solve(drawn, "fro"), solve(drawn, "nuc")
    assert fro.value <= sv.norms.FRO(nuc.W) * (1 + 1e-8)
    assert nuc.value <= sv.norms.NUC(fro.W) * (1 + 1e-8)
    assert fro.value <= nuc.value * (1 + 1e-8)
    svm = {"fro": fro, "nuc": nuc}[norm]
    step = drawn.rng.normal(size=svm.W.shape) * 10.0 ** drawn.rng.uniform(-4, 0) * max(float(svm.value), 1.0)
    low = sv.compare.margins(svm.W + step, drawn.X, drawn.z, drawn.tokens).min()
    if low > 0 and np.isfinite(low):  # any other separating matrix, scaled to margin 1, is larger
        assert sv.norms.get(norm)(svm.W + step) / low >= svm.value * (1 - 1e-8)


@prop
def test_rank_and_row_space(drawn, norm):
    svm = solve(drawn, norm)
    n, T, d = drawn.X.shape
    assert svm.rank <= min(n, d)
    assert (svm.rank == 0) == (T == 1)
    rows = np.linalg.qr(drawn.z.T)[0]
    close(svm.W @ rows @ rows.T, svm.W, svm.value)
    delta = drawn.problem().differences(drawn.tokens).reshape(-1, d)
    u, s, _ = np.linalg.svd(delta.T, full_matrices=False)
    columns = u[:, s > 1e-12 * s[0]] if T > 1 else u
    close(columns @ columns.T @ svm.W, svm.W, svm.value)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 5), st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**16))
def test_feasibility_is_what_linear_programming_says(n, T, d, seed):
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    X, z, tokens = rng.normal(size=(n, T, d)), rng.normal(size=(n, d)), rng.integers(T, size=n)
    p = sv.data.Problem(X, z, np.ones(n))
    i, t = np.nonzero(np.arange(T) != tokens[:, None])
    A = np.einsum("sd,se->sde", p.differences(tokens)[i, t], z[i]).reshape(len(i), -1)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    cost = np.append(np.zeros(d * d), -1.0)  # largest margin in the unit box
    largest = linprog(cost, np.c_[-A, np.ones(len(A))], np.zeros(len(A)), bounds=[(-1, 1)] * (d * d + 1))
    assume(not 1e-12 < -largest.fun < 1e-7)
    assert bool(sv.svm.feasible(p, tokens)) == (-largest.fun > 1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 2**16))
def test_generic_data_is_feasible_for_every_choice_when_d_is_large(n, T, seed):
    rng = np.random.default_rng(seed)
    d = max(T - 1, n) + int(rng.integers(2))
    X = rng.normal(size=(n, T, d))
    X[:, :, 0] += 3.0
    p = sv.data.Problem(X, X[:, 0], np.ones(n))  # self-attention
    tokens = rng.integers(T, size=(5, n))
    batch = sv.data.Problem(np.tile(X, (5, 1, 1, 1)), p.z, p.y)
    assert sv.svm.feasible(batch, tokens).all()


@st.composite
def any_instances(draw):
    """Keys and queries of any widths, masked and relaxed sequences; half of them planted to be feasible."""
    n, T, e, q = (draw(st.integers(1, top)) for top in (4, 4, 5, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    keys, z = rng.normal(size=(n, T, e)), rng.normal(size=(n, q))
    if draw(st.booleans()):  # ties, duplicates and zeros
        keys, z = rng.integers(-1, 2, size=keys.shape), rng.integers(-1, 2, size=z.shape)
    mask = rng.random((n, T)) < draw(st.sampled_from([0.7, 1.0]))
    logits = np.einsum("nte,eq,nq->nt", keys, rng.normal(size=(e, q)), z)
    tokens = logits.argmax(1) if draw(st.booleans()) else rng.integers(T, size=n)
    mask[np.arange(n), tokens] = True
    relaxed = rng.random(n) < draw(st.sampled_from([0.0, 0.4]))
    return sv.data.Problem(np.zeros((n, T, 1)), z, np.ones(n), mask=mask, keys=keys), tokens, relaxed


def rows_of(p, tokens, relaxed):
    constrained = p.visible & (np.arange(p.T) != tokens[:, None])
    i, t = np.nonzero(constrained)
    A = np.einsum("se,sq->seq", p.differences(tokens)[i, t], p.z[i])
    A = A.reshape(len(i), p.keys.shape[-1] * p.z.shape[-1])
    return A, np.where(relaxed[i], 0.0, 1.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_instances(), NORMS)
def test_the_conic_solver_agrees(instance, norm):
    p, tokens, relaxed = instance
    svm = sv.svm.attention_svm(p, tokens, norm, errors="nan", relaxed=relaxed)
    assert (svm.solved == svm.feasible).all()  # none is given up
    if not svm.feasible:
        with pytest.raises(InfeasibleError):
            sv.svm.attention_svm_conic(p, tokens, norm, relaxed)
        return
    assume(svm.value < 1e3)
    conic = sv.svm.attention_svm_conic(p, tokens, norm, relaxed)
    np.testing.assert_allclose(conic.value, svm.value, rtol=1e-6)
    np.testing.assert_array_equal(conic.required, svm.required)
    assert svm.certificate.worst <= 1e-9
    A, rhs = rows_of(p, tokens, relaxed)
    assert (A @ svm.W.ravel() >= rhs - 1e-9).all()
    if norm == "fro":  # unique
        np.testing.assert_allclose(conic.W, svm.W, atol=2e-3 * max(float(svm.value), 1.0))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(any_instances())
def test_relaxed_feasibility_is_what_linear_programming_says(instance):
    from scipy.optimize import linprog

    p, tokens, relaxed = instance
    A, rhs = rows_of(p, tokens, relaxed)
    width = A.shape[1]
    if not len(A):
        assert sv.svm.feasible(p, tokens, relaxed)
        return
    answer = linprog(np.zeros(width), -A, -rhs, bounds=[(None, None)] * width)
    assert answer.status in (0, 2)
    assert bool(sv.svm.feasible(p, tokens, relaxed)) == (answer.status == 0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(any_instances(), NORMS)
def test_relaxing_never_enlarges(instance, norm):
    p, tokens, relaxed = instance
    value = np.inf
    for flags in (np.zeros_like(relaxed), relaxed, np.ones_like(relaxed)):
        svm = sv.svm.attention_svm(p, tokens, norm, errors="nan", relaxed=flags)
        now = float(svm.value) if svm.feasible else np.inf
        assert now <= value * (1 + 1e-9)
        value = now
    assert value == 0.0
