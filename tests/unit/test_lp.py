"""Entry-wise norms: the norms themselves, their SVMs, and the rules that descend in them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import svmlib as sv
from svmlib import norms
from svmlib.errors import DataError, InfeasibleError, SolverError
from svmlib.experiments import mirror

EXPONENTS = (1.0, 1.2, 1.75, 2.0, 3.0, 10.0, np.inf)


@pytest.mark.parametrize("p", EXPONENTS)
def test_an_entrywise_norm_and_its_steepest_direction(p):
    norm, G = norms.lp(p), np.random.default_rng(0).normal(size=(5, 4, 3))
    flat = G.reshape(5, -1)
    np.testing.assert_allclose(norm(G), np.linalg.norm(flat, ord=p, axis=1), rtol=1e-13)
    D = norm.steepest(G)
    np.testing.assert_allclose(norm(D), 1.0, rtol=1e-13)
    np.testing.assert_allclose((G * D).sum((-2, -1)), norm.dual(G), rtol=1e-13)
    assert norm.dual.dual is norm and norms.lp(p) is norm
    assert norm.exponents[0] == p and sum(1 / e for e in norm.exponents) == pytest.approx(1.0)
    for size in (1e-308, 1e308 / np.abs(G).max()):
        np.testing.assert_allclose(norm.steepest(G * size), D, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(norm(G * size / 16) / size, norm(G) / 16, rtol=1e-12)
    assert not norm.steepest(np.zeros((3, 2))).any() and norm(np.zeros((3, 2))) == 0.0
    again = pickle.loads(pickle.dumps(norm))
    assert again.exponents == norm.exponents and again(G[0]) == norm(G[0])
    assert norms.get(norm) is norm


def test_entries_that_share_the_largest_value_share_the_step():
    G = [[2.0, -2.0], [1.0, 0.0]]
    np.testing.assert_array_equal(norms.lp(1).steepest(G), [[0.5, -0.5], [0.0, 0.0]])
    np.testing.assert_array_equal(norms.lp(np.inf).steepest(G), [[1.0, -1.0], [1.0, 0.0]])
    near = norms.lp(1 + 1e-7).steepest(G)  # the limit from above
    np.testing.assert_allclose(near, norms.lp(1).steepest(G), atol=1e-6)


def test_exponents_below_one_are_no_norms():
    for p in (0.5, -1, np.nan, True):
        with pytest.raises(DataError, match="p must be a number from 1 to infinity"):
            norms.lp(p)
    with pytest.raises(DataError, match="p must be"):
        norms.lp("two")


@pytest.mark.parametrize("p", EXPONENTS)
def test_solutions_are_certified_and_those_of_a_second_formulation(p):
    import cvxpy as cp

    q = sv.data.random_problem(3, 4, 4, batch=4, seed=11)
    found = sv.svm.lp_svm(q, p=p)
    assert found.certificate.worst.max() <= 1e-9
    if p not in (1.0, np.inf):
        assert found.certificate.worst.max() <= 1e-12
    for b in range(4):
        W = cp.Variable((4, 4))
        rows = [(i, t) for i in range(3) for t in range(4) if found.constrained[b, i, t]]
        delta = q.differences()[b]
        limits = [delta[i, t] @ W @ q.z[b, i] >= 1 for i, t in rows]
        program = cp.Problem(cp.Minimize(cp.pnorm(cp.vec(W, order="C"), p)), limits)
        value = program.solve(solver=cp.CLARABEL)
        assert float(found.value[b]) == pytest.approx(value, rel=1e-5)
        if p not in (1.0, np.inf):  # solutions are unique
            assert 1 - float(sv.compare.correlation(found.W[b], W.value)) < 1e-5


def test_the_norm_of_two_is_the_frobenius_norm():
    q = sv.data.random_problem(4, 5, 6, batch=10)
    plain, found = sv.svm.attention_svm(q), sv.svm.lp_svm(q, p=2)
    np.testing.assert_allclose(found.W, plain.W, atol=1e-8)
    np.testing.assert_allclose(found.multipliers, plain.multipliers / plain.value[:, None, None], atol=1e-8)
    np.testing.assert_array_equal(found.support, plain.support)
    np.testing.assert_array_equal(found.rank, plain.rank)
    np.testing.assert_allclose(found.margin, 1 / found.value)


def test_each_norm_is_smallest_at_its_own_solution():
    q = sv.data.random_problem(4, 5, 6, batch=6, seed=3)
    solved = {p: sv.svm.lp_svm(q, p=p).W for p in EXPONENTS}
    for p in EXPONENTS:
        for other in EXPONENTS:
            assert (norms.lp(p)(solved[p]) <= norms.lp(p)(solved[other]) * (1 + 1e-9)).all()


def test_a_batch_and_its_elements_have_the_same_solutions():
    q = sv.data.random_problem(3, 4, 5, batch=6, seed=5)
    two = sv.data.Problem(*(a.reshape(2, 3, *a.shape[1:]) for a in (q.X, q.z, q.y, q.v)))
    found = sv.svm.lp_svm(two, p=3)
    assert found.W.shape == (2, 3, 5, 5) and found.value.shape == (2, 3) and found.p == 3.0
    one = sv.svm.lp_svm(q[4], p=3)
    np.testing.assert_allclose(found.W[1, 1], one.W, rtol=1e-12)
    assert "l3" in repr(found) and "6 of 6 solved" in repr(found) and "value" in repr(one)
    assert one.norm is norms.lp(3)
    with pytest.raises(ValueError):
        one.W[0, 0] = 1.0


def test_one_hot_tokens_repeated_tokens_and_masks():
    X = np.zeros((2, 4, 3))
    X[0, :3], X[1] = np.eye(3), np.eye(3)[[1, 0, 0, 2]]  # equal tokens: dependent constraints
    X[0, 3] = X[0, 2]
    z = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    mask = np.array([[True] * 4, [True, True, True, False]])
    q = sv.data.Problem(X, z, np.ones(2), mask=mask)
    for p in EXPONENTS:
        found = sv.svm.lp_svm(q, [0, 0], p=p)
        assert found.certificate.worst <= 1e-9
        assert not found.W[:, 2].any()  # no query sees that column
        assert not found.constrained[1, 3] and found.multipliers[1, 3] == 0
    free = sv.svm.lp_svm(sv.data.Problem(X[:, :1], z, np.ones(2)), [0, 0], p=3)  # a single token each
    assert free.value == 0 and free.margin == np.inf and not free.W.any() and free.rank == 0


def test_scale_does_not_matter():
    q = sv.data.random_problem(3, 4, 4, seed=2)
    plain = sv.svm.lp_svm(q, p=1.5)
    for size in (1e-40, 1e40):
        scaled = sv.svm.lp_svm(sv.data.Problem(size * q.X, q.z, q.y), plain.tokens, p=1.5)
        np.testing.assert_allclose(scaled.W * size, plain.W, rtol=1e-8)


def test_programs_without_a_solution():
    q = sv.data.random_problem(6, 6, 2, batch=5)
    able = sv.svm.feasible(q)
    assert not able.all()
    found = sv.svm.lp_svm(q, p=3, errors="nan")
    np.testing.assert_array_equal(found.feasible, able)
    np.testing.assert_array_equal(found.solved, able)
    lost = ~able
    assert np.isnan(found.W[lost]).all() and (found.rank[lost] == -1).all() and not found.support[lost].any()
    with pytest.raises(InfeasibleError, match="contradict each other"):
        sv.svm.lp_svm(q, p=3)
    with pytest.raises(DataError, match="errors must be"):
        sv.svm.lp_svm(q, errors="ignore")
    with pytest.raises(DataError, match="p must be"):
        sv.svm.lp_svm(q, p=0.5)


def test_a_point_that_is_not_certified_is_not_handed_out(monkeypatch):
    q = sv.data.random_problem(3, 4, 4)
    monkeypatch.setattr("svmlib.svm.lp.lp_point", lambda rows, c, p: (np.zeros(16), np.zeros(len(c))))
    with pytest.raises(SolverError, match="was solved only up to"):
        sv.svm.lp_svm(q)
    found = sv.svm.lp_svm(q, errors="nan")
    assert found.feasible and not found.solved and "no solution" in repr(found)


def _rules(rate):
    both = [sv.dynamics.steepest("fro", rate), sv.dynamics.steepest(norms.lp(2), rate)]
    return [*both, sv.dynamics.mirror_descent(2, rate)]


def test_three_ways_to_write_normalised_descent():
    q = sv.data.random_problem(4, 5, 6, batch=3)
    start = sv.attention.Direct.random(q, seed=1)
    plain = sv.dynamics.train(q, start, sv.dynamics.normalized(0.1), 2000)
    for rule in _rules(0.1):
        run = sv.dynamics.train(q, start, rule, 2000)
        np.testing.assert_allclose(run.W, plain.W, rtol=0, atol=1e-12 * np.abs(plain.W).max())
        np.testing.assert_allclose(run.gap, plain.gap, rtol=1e-8)


def test_the_first_step_has_length_one_in_the_norm_and_points_downhill():
    q = sv.data.random_problem(4, 5, 6, batch=3)
    zero = sv.attention.Direct.zeros(q)
    G = sv.attention.gradient(q, zero).W
    for norm in (norms.SPEC, norms.NUC, norms.FRO, norms.lp(1), norms.lp(3), norms.lp(np.inf)):
        W = sv.dynamics.train(q, zero, sv.dynamics.steepest(norm, 0.25), 1).W[:, -1]
        np.testing.assert_allclose(norm(W), 0.25, rtol=1e-12)
        np.testing.assert_allclose(-(G * W).sum((-2, -1)), 0.25 * norm.dual(G), rtol=1e-10)
    W = sv.dynamics.train(q, zero, sv.dynamics.mirror_descent(3, 0.25), 1).W[:, -1]
    np.testing.assert_allclose(norms.lp(3)(W), 0.25**0.5, rtol=1e-12)
    np.testing.assert_allclose(W / 0.25**0.5, norms.lp(3).steepest(-G), rtol=1e-9)


@pytest.mark.parametrize("rule", [sv.dynamics.steepest("spec", 0.1), sv.dynamics.mirror_descent(1.5, 0.1)])
def test_gradients_below_the_smallest_number_still_have_a_direction(rule):
    q = sv.data.random_problem(3, 4, 5, seed=1)
    far = sv.attention.Direct(3000.0 * sv.svm.attention_svm(q).W)
    assert not sv.attention.gradient(q, far).W.any()  # it underflows
    run = sv.dynamics.train(q, far, rule, 50)
    assert (np.diff(norms.FRO(run.W - far.W)) > 0).all()
    margins = sv.compare.margins(run.W, q.X, q.z, q.optimal).min((-2, -1))
    assert margins[-1] > margins[0] + 1.0
    small = sv.data.Problem(1e-40 * q.X, q.z, q.y, q.v)  # tiny differences of tokens: tiny rows
    zero = sv.attention.Direct.zeros(q)
    pair = [sv.dynamics.train(x, zero, rule, 1, loss="linear").W[-1] for x in (small, q)]
    assert float(sv.compare.correlation(*pair)) == pytest.approx(1.0, abs=1e-9)


def test_steps_may_shrink_and_runs_may_be_continued():
    q = sv.data.random_problem(3, 4, 5, batch=2)
    zero = sv.attention.Direct.zeros(q)
    rule = sv.dynamics.steepest("nuc", 0.3, decay=0.5)
    W = sv.dynamics.train(q, zero, rule, 9, record=range(10)).W
    lengths = norms.NUC(np.diff(W, axis=1))
    np.testing.assert_allclose(lengths, np.broadcast_to(0.3 / np.sqrt(np.arange(1, 10)), (2, 9)), rtol=1e-12)
    rule = sv.dynamics.mirror_descent(3, 0.1)
    half = sv.dynamics.train(q, zero, rule, 100)
    whole = sv.dynamics.train(q, zero, rule, 200)
    rest = sv.dynamics.train(q, half.weights, rule, 100)
    np.testing.assert_allclose(rest.W[:, -1], whole.W[:, -1], rtol=1e-9, atol=1e-9)


def test_a_batch_trains_as_its_elements_do():
    q = sv.data.random_problem(3, 4, 5, batch=4)
    rule = sv.dynamics.mirror_descent(1.75, 0.1)
    run = sv.dynamics.train(q, sv.attention.Direct.zeros(q), rule, 200)
    one = sv.dynamics.train(q[2], sv.attention.Direct.zeros(q[2]), rule, 200)
    np.testing.assert_allclose(run.W[2], one.W, rtol=1e-10, atol=1e-10)


def test_weights_that_overflow_are_named_and_leave_the_other_instances_alone():
    q = sv.data.planar(1).expand(2)
    rule = sv.dynamics.mirror_descent(30, 0.1)
    start = np.zeros((2, 2, 2))
    start[1] = 1e20  # its power 29 overflows
    with pytest.raises(SolverError, match=r"by step 1: 1 of 2 .* instance 1 .* in mirror descent, p nearer"):
        sv.dynamics.train(q, sv.attention.Direct(start), rule, 1, record=[1])
    one = sv.data.planar(1)
    rule = sv.dynamics.mirror_descent(1.001, 0.5)
    with pytest.raises(SolverError, match=r"left the finite numbers by step 90"):  # found when next looked at
        sv.dynamics.train(one, sv.attention.Direct.zeros(one), rule, 90, record=[90])


def test_wrong_arguments_of_the_rules():
    q = sv.data.planar(1)
    with pytest.raises(DataError, match=r"needs weights Direct\(W\), got Factored"):
        sv.dynamics.train(q, sv.attention.Factored.random(q), sv.dynamics.steepest("spec", 0.1), 1)
    for p in (1, np.inf):
        with pytest.raises(DataError, match="p must be above 1 and finite"):
            sv.dynamics.mirror_descent(p, 0.1)
    for decay in (-1.0, np.nan, np.inf):
        with pytest.raises(DataError, match="decay must be a finite number >= 0"):
            sv.dynamics.steepest("fro", 0.1, decay=decay)
    assert repr(sv.dynamics.steepest("fro", 0.1)) == "MatrixRule('steepest descent, fro, rate 0.1')"
    with pytest.raises(DataError, match="norm must be one of"):
        sv.dynamics.steepest("max", 0.1)
    with pytest.raises(DataError, match="step size"):
        sv.dynamics.mirror_descent(2, 0.0)
    with pytest.raises(DataError, match=r"steepest\(norm, rate\) or mirror_descent\(p, rate\)"):
        sv.dynamics.train(q, sv.attention.Direct.zeros(q), "steepest", 1)


def test_spectral_steps_approach_the_spectral_svm():
    import cvxpy as cp

    q = sv.data.random_problem(3, 4, 5, seed=4)
    run = sv.dynamics.train(q, sv.attention.Direct.zeros(q), sv.dynamics.steepest("spec", 0.3, 0.25), 3000)
    assert (run.selected == q.optimal).all()
    W, delta = cp.Variable((5, 5)), q.differences()
    limits = [delta[i, t] @ W @ q.z[i] >= 1 for i in range(3) for t in range(4) if t != q.optimal[i]]
    best = 1 / cp.Problem(cp.Minimize(cp.sigma_max(W)), limits).solve(solver=cp.CLARABEL)
    margin = sv.compare.margins(run.W[-1], q.X, q.z, q.optimal).min()
    share = {norm.name: float(margin / norm(run.W[-1])) for norm in (norms.SPEC, norms.FRO)}
    assert 0.96 <= share["spec"] / best <= 1 + 1e-6
    assert share["fro"] <= 0.97 * float(sv.svm.attention_svm(q).margin)


def test_the_stored_record_is_what_the_experiment_measures():
    stored = sv.experiments.stored("mirror_descent")
    assert stored.trials == 100 and stored["exponents"].tolist() == [1.75, 2.0, 3.0]
    again = sv.experiments.mirror_descent(trials=2, exponents=(1.75, 3.0))
    for rule in mirror.RULES:
        old, new = stored[f"{rule}_correlation"][[0, 2], :2], again[f"{rule}_correlation"]
        np.testing.assert_allclose(new, old[..., [0, 2]], atol=1e-6)
        np.testing.assert_allclose(again[f"{rule}_own"], stored[f"{rule}_own"][[0, 2], :2], atol=1e-6)
    ten = {rule: stored[f"{rule}_correlation"][:, :10].mean(1) for rule in mirror.RULES}
    near = np.abs(ten["mirror"] - mirror.reference_correlations())
    assert near.max() < 0.004 and np.delete(near.ravel(), 8).max() < 0.002
    for means in ten.values():  # the ledger's criterion
        assert (means.argmax(1) == np.arange(3)).all()
    with pytest.raises(DataError, match="at least one exponent"):
        sv.experiments.mirror_descent(trials=1, exponents=())
