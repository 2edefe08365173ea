"""Symmetries of the generalised SVM and of the finite part, on instances of drawn sizes and seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import svmlib as sv

NORMS = st.sampled_from(["fro", "nuc"])


class Drawn(NamedTuple):
    X: np.ndarray
    z: np.ndarray
    mask: np.ndarray
    selected: np.ndarray
    s: np.ndarray
    rng: np.random.Generator

    def solve(self, norm, **changed):
        """Both solutions, with some of the arrays exchanged."""
        a = self._replace(**changed)
        p = sv.data.Problem(a.X, a.z, np.ones(a.X.shape[:-2]), mask=a.mask)
        svm = sv.svm.generalized_svm(p, a.selected, norm=norm)
        return svm, sv.svm.finite_part(p, a.s, a.selected & a.mask, norm=norm)


@st.composite
def instances(draw):
    n, T, d = (draw(st.integers(low, top)) for low, top in ((1, 4), (2, 5), (2, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    X, z = rng.normal(size=(n, T, d)), rng.normal(size=(n, d))
    mask, selected = rng.random((n, T)) < 0.9, rng.random((n, T)) < 0.4
    mask[:, 0] = selected[:, 0] = True
    a = np.einsum("nte,ef,nf->nt", X, rng.normal(size=(d, d)) / d, z)
    p = sv.data.Problem(X, z, np.ones(n), mask=mask)
    svm = sv.svm.generalized_svm(p, selected, errors="nan")
    # nearly contradictory draws have solutions so large that round-off shows at the tolerances below
    assume(svm.solved and svm.value < 1e3)
    return Drawn(X, z, mask, selected, np.exp(a), rng)


def prop(test):
    return settings(max_examples=40, deadline=None, derandomize=True)(given(instances(), NORMS)(test))


def close(A, B, scale, tol=1e-8):
    np.testing.assert_allclose(A, B, rtol=0, atol=tol * max(float(scale), 1e-300))


@prop
def test_rotation(drawn, norm):
    d = drawn.X.shape[-1]
    U, V = (np.linalg.qr(drawn.rng.normal(size=(d, d)))[0] for _ in range(2))
    for one, turned in zip(
        drawn.solve(norm), drawn.solve(norm, X=drawn.X @ U.T, z=drawn.z @ V.T), strict=True
    ):
        np.testing.assert_allclose(turned.value, one.value, rtol=1e-8, atol=1e-12)
        if norm == "fro":  # unique
            close(turned.W, U @ one.W @ V.T, one.value)


@prop
def test_permutations(drawn, norm):
    n, T, _ = drawn.X.shape
    rows, places = drawn.rng.permutation(n), drawn.rng.permutation(T)

    def moved(a):
        return a[rows][:, places]

    changed = {name: moved(getattr(drawn, name)) for name in ("X", "mask", "selected", "s")}
    for one, other in zip(drawn.solve(norm), drawn.solve(norm, z=drawn.z[rows], **changed), strict=True):
        np.testing.assert_allclose(other.value, one.value, rtol=1e-8, atol=1e-12)
        if norm == "fro":  # whatever token the others are compared with
            close(other.W, one.W, one.value)


@prop
def test_scaling_and_shifts(drawn, norm):
    svm, fin = drawn.solve(norm)
    c = 10.0 ** drawn.rng.uniform(-2, 2, size=(len(drawn.z), 1))
    for changed, factor in (({"z": c[0] * drawn.z}, c[0]), ({"X": c[0] * drawn.X}, c[0])):
        for one, other in zip((svm, fin), drawn.solve(norm, **changed), strict=True):
            np.testing.assert_allclose(other.value * factor, one.value, rtol=1e-8, atol=1e-12)
            if norm == "fro":
                close(other.W * factor, one.W, one.value)
    shifted = drawn.X + drawn.rng.normal(size=(len(drawn.X), 1, drawn.X.shape[-1]))  # differences stay
    weights = drawn.s * 10.0 ** drawn.rng.uniform(-1, 1, size=(len(drawn.s), 1))  # ratios stay
    for one, other in zip((svm, fin), drawn.solve(norm, X=shifted, s=weights), strict=True):
        np.testing.assert_allclose(other.value, one.value, rtol=1e-8, atol=1e-12)
    tripled = drawn.solve(norm, s=drawn.s**3)[1]  # log-ratios times three
    np.testing.assert_allclose(tripled.value, 3 * fin.value, rtol=1e-8, atol=1e-12)


@prop
def test_queries_of_selected_sets_may_be_scaled_one_by_one(drawn, norm):
    # where every visible token is selected the equalities are homogeneous: the length of a query is nothing
    selected = drawn.selected.copy()
    selected[0] = True
    z = drawn.z.copy()
    p = sv.data.Problem(drawn.X, z, np.ones(len(z)), mask=drawn.mask)
    one = sv.svm.generalized_svm(p, selected, norm=norm, errors="nan")
    assume(bool(one.solved and one.value < 1e3))
    z[0] *= -37.0
    p = sv.data.Problem(drawn.X, z, np.ones(len(z)), mask=drawn.mask)
    np.testing.assert_allclose(
        sv.svm.generalized_svm(p, selected, norm=norm).value, one.value, rtol=1e-8, atol=1e-12
    )


@prop
def test_a_batch_of_one_and_copies(drawn, norm):
    one = drawn.solve(norm)
    arrays = {name: getattr(drawn, name) for name in ("X", "z", "mask", "selected", "s")}
    for lead in ((1,), (2, 1)):
        batch = drawn.solve(norm, **{name: np.tile(a, (*lead, *(1,) * a.ndim)) for name, a in arrays.items()})
        for a, b in zip(one, batch, strict=True):
            assert b.value.shape == lead
            np.testing.assert_allclose(b.value, np.broadcast_to(a.value, lead), rtol=1e-9, atol=1e-12)
            close(b.W, np.broadcast_to(a.W, b.W.shape), a.value)


@prop
def test_masking_a_token_is_leaving_it_out(drawn, norm):
    n, _, d = drawn.X.shape
    far = np.concatenate([drawn.X, 1e3 * drawn.rng.normal(size=(n, 1, d))], axis=1)

    def wider(a, fill):
        return np.concatenate([a, np.full((n, 1), fill)], axis=1)

    more = drawn.solve(
        norm,
        X=far,
        mask=wider(drawn.mask, False),
        selected=wider(drawn.selected, True),
        s=wider(drawn.s, 5.0),
    )
    for one, other in zip(drawn.solve(norm), more, strict=True):
        np.testing.assert_allclose(other.value, one.value, rtol=1e-8, atol=1e-12)
        assert not other.selected[:, -1].any() and not other.multipliers[:, -1].any()


@prop
def test_the_parts_are_orthogonal_and_optimal(drawn, norm):
    svm, fin = drawn.solve(norm)
    assert svm.certificate.worst <= 1e-9 and fin.certificate.worst <= 1e-9
    if norm == "fro":
        assert abs((svm.W * fin.W).sum()) <= 1e-10 * svm.value * fin.value + 1e-300
    # no feasible point nearby has a smaller norm: those that keep the equalities and the margins
    p = sv.data.Problem(drawn.X, drawn.z, np.ones(len(drawn.X)), mask=drawn.mask)
    other = sv.svm.generalized_svm(p, drawn.selected, norm="nuc" if norm == "fro" else "fro")
    assert sv.norms.get(norm)(other.W) >= svm.value * (1 - 1e-9)
