"""Width: coordinates of the spans, the slope along a direction, and the shares that the chapter measures."""

import numpy as np
import pytest

import svmlib as sv
from svmlib.attention import Direct, Factored, gradient, logits, loss, probabilities
from svmlib.checks import overparam as overparam_claims
from svmlib.checks.overparam_orthogonal import _spaced, _start
from svmlib.data import Problem, random_problem
from svmlib.dynamics import normalized, train
from svmlib.errors import DataError, SvmlibError
from svmlib.experiments import _wide, overparam
from svmlib.experiments._wide import compressed, first_step_separates, slope_along

# Global runs of W from 0 after 2000 normalised steps, in percent, seeds 0 to 199, n = T = 5; measured once
# with independent code.
GLOBAL = {"cross": {3: 46.0, 8: 87.0, 20: 98.0}, "self": {3: 54.5, 20: 97.5}}
SIZES = {(10, 5, 8): 49.0, (5, 20, 16): 59.0}  # cross-attention, seeds 0 to 99
TRIALS = 60
STEPS = 1000  # half of them: at these sizes few runs change after that, and the bands are wide


def band(percent: float, trials: int = TRIALS) -> float:
    """Four standard errors of a share, in percent, at least those of a share of 3 %."""
    p = min(max(percent / 100.0, 0.03), 0.97)
    return float(400.0 * np.sqrt(p * (1.0 - p) / trials))


@pytest.fixture
def shorter(monkeypatch):
    monkeypatch.setattr(overparam, "STEPS", STEPS)


def global_share(n: int, T: int, d: int, self_attention: bool = False) -> float:
    part = overparam._outcomes(n, T, d, self_attention, "W", TRIALS, 0, None)
    return float(100.0 * np.mean(np.asarray(part["outcome"]) == 0))


@pytest.mark.parametrize("d", [2, 7, 60])
@pytest.mark.parametrize("self_attention", [False, True])
def test_compressed_keeps_every_inner_product(d, self_attention):
    p = random_problem(3, 4, d, batch=5, self_attention=self_attention)
    q = compressed(p)
    assert q.d == min(d, 12) and q.query_dim == min(d, 3)
    for a, b in ((p.X.reshape(5, 12, d), q.X.reshape(5, 12, -1)), (p.z, q.z)):
        np.testing.assert_allclose(a @ np.swapaxes(a, -1, -2), b @ np.swapaxes(b, -1, -2), atol=1e-13)
    np.testing.assert_allclose(p.scores, q.scores, atol=1e-13)


def test_compressed_runs_have_the_same_logits():
    p = random_problem(3, 4, 40, batch=6)
    runs = [train(c, Direct.zeros(c), normalized(0.1), 300, record=[300]) for c in (p, compressed(p))]
    a, b = (logits(c, r.W[:, -1]) for c, r in zip((p, compressed(p)), runs, strict=True))
    np.testing.assert_allclose(a, b, atol=1e-8)
    np.testing.assert_allclose(runs[0].gap, runs[1].gap, rtol=1e-6)


def test_compressed_factors_have_the_same_logits_where_k_is_seen_in_the_frame():
    # one step of (K, Q): with K of full width in the frame of the tokens nothing else is read or moved
    p = random_problem(2, 3, 20, batch=4)
    q = compressed(p)
    frame = np.linalg.qr(np.swapaxes(p.X.reshape(4, 6, 20), -1, -2))[0]
    K = np.random.default_rng(0).normal(size=(4, 20, 20)) * 0.1
    full = Factored(K, np.zeros((4, 20, 20)))
    small = Factored(np.swapaxes(frame, -1, -2) @ K, np.zeros((4, q.query_dim, 20)))
    runs = [train(c, w, normalized(0.1), 20, record=[20]) for c, w in ((p, full), (q, small))]
    np.testing.assert_allclose(logits(p, runs[0].W[:, -1]), logits(q, runs[1].W[:, -1]), atol=1e-9)


ONES = (np.ones((1, 2, 3, 4)), np.ones((1, 2, 4)), np.ones((1, 2)))


@pytest.mark.parametrize(
    "problem",
    [
        random_problem(2, 3, 4),
        Problem(*ONES),
        Problem(*ONES, np.ones(4), mask=np.ones((1, 2, 3))),
        Problem(*ONES, np.ones(4), keys=np.ones((1, 2, 3, 2))),
    ],
    ids=["no batch", "no head", "mask", "keys"],
)
def test_compressed_refuses_what_it_would_change(problem):
    with pytest.raises(DataError, match="compressed needs"):
        compressed(problem)


def test_slope_is_the_derivative_of_the_loss():
    p = random_problem(2, 3, 6, batch=3)
    direction = np.random.default_rng(1).normal(size=(3, 6, 6))
    slopes = slope_along(p, direction, 4, seed=5)
    a = _wide.SPREAD * np.random.default_rng(5).normal(size=(4, 3, 2, 3))
    for k in range(4):
        # weights with these logits: d >= max(T, n), so tokens and queries are independent
        W = np.stack(
            [
                sum(
                    np.outer(np.linalg.pinv(p.X[b, i]) @ a[k, b, i], np.linalg.pinv(p.z[b].T)[i])
                    for i in range(2)
                )
                for b in range(3)
            ]
        )
        np.testing.assert_allclose(probabilities(p, W), _softmax(a[k]), atol=1e-12)
        exact = (gradient(p, Direct(W)).W * direction).sum((-2, -1))
        np.testing.assert_allclose(slopes[k], exact, atol=1e-12)
        step = 1e-5 * direction
        np.testing.assert_allclose(slopes[k], (loss(p, W + step) - loss(p, W - step)) / 2e-5, atol=1e-8)


def _softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_first_step_is_a_margin_per_length():
    p = random_problem(3, 4, 9, batch=8)
    step = -gradient(p, Direct.zeros(p)).W
    unit = step / np.linalg.norm(step, axis=(-2, -1), keepdims=True)
    smallest = sv.compare.margins(unit, p.keys, p.z, p.optimal).min((-2, -1))
    np.testing.assert_allclose(first_step_separates(p), smallest, atol=1e-14)
    # one sequence of two tokens always separates; two that want the opposite of each other never do
    alone = random_problem(1, 2, 5, batch=10)
    assert (first_step_separates(alone) > 0).all()
    X = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2)
    torn = Problem(X, [[1.0, 0.0]] * 2, [1, -1], [1.0, 0.0])
    assert first_step_separates(torn) <= 0


@pytest.mark.parametrize("kind", ["cross", "self"])
def test_share_of_global_runs_rises_with_the_width(kind, shorter):
    shares = {d: global_share(5, 5, d, kind == "self") for d in GLOBAL[kind]}
    for d, expected in GLOBAL[kind].items():
        assert abs(shares[d] - expected) <= band(expected), (d, shares[d])
    values = list(shares.values())
    assert (np.diff(values) > 4.0).all(), values


def test_share_of_global_runs_falls_with_sequences_and_tokens(shorter):
    shares = {size: global_share(*size) for size in SIZES}
    for size, expected in SIZES.items():
        assert abs(shares[size] - expected) <= band(expected), (size, shares[size])
    # far below five sequences of five tokens, the longer ones even at twice the width
    assert max(shares.values()) + 10.0 < GLOBAL["cross"][8], shares


def test_share_of_support_tokens_rises_to_one():
    r = sv.experiments.p1_support_fraction(trials=40, widths=(5, 10, 20, 40, 80, 400), points=10)
    mean = r["support"].mean(1)
    assert (np.diff(mean) >= 0).all() and mean[-1] == 1.0
    np.testing.assert_allclose(mean[:5], [0.52, 0.70, 0.83, 0.96, 1.0], atol=0.05)
    assert (r["support"][0] == 1).mean() == 0.0 and (r["support"][-1] == 1).all()
    assert (np.diff((r["first_step"] > 0).mean(1)[[0, 2, 5]]) > 0.2).all()


def test_wrong_directions_disappear():
    r = sv.experiments.p1_spurious_directions(trials=40, widths=(5, 60))
    assert (r["by_wrong"].sum(-1) == r["local"]).all()
    assert (r["by_wrong"][..., 0] == 1).all()  # the optimal tokens themselves, feasible at these widths
    assert r["local"][0].mean() > 1.1 and (r["local"][1] == 1).mean() >= 0.9


def small(name):
    sizes = {"sizes": ((2, 2), (2, 3))} if name == "p1_global_map" else {"n": 2, "T": 2}
    return getattr(sv.experiments, name), {"widths": (2, 3), **sizes}


@pytest.mark.parametrize(
    "name", ["p1_global_fraction", "p1_global_map", "p1_support_fraction", "p1_spurious_directions"]
)
def test_an_interrupted_run_goes_on_to_the_same_record(name, tmp_path, monkeypatch):
    monkeypatch.setattr(overparam, "STEPS", 3)
    f, options = small(name)
    whole = f(trials=2, **options)
    functions = {"p1_support_fraction": "_geometry", "p1_spurious_directions": "_directions"}
    part = functions.get(name, "_outcomes")
    original, calls = getattr(overparam, part), []

    def stops(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(overparam, part, stops)
    with pytest.raises(KeyboardInterrupt):
        f(trials=2, folder=tmp_path, **options)
    again = f(trials=2, folder=tmp_path, **options)  # a key used twice would be refused or mix up two parts
    assert len(set(calls)) == len(calls) - 1  # only the interrupted part is asked for twice
    for key, value in whole.arrays.items():
        np.testing.assert_array_equal(again[key], value)


def test_map_counts_wrong_and_second_best_tokens(monkeypatch):
    monkeypatch.setattr(overparam, "STEPS", 200)
    r = sv.experiments.p1_global_map(trials=5, sizes=((3, 4),), widths=(4,))
    for which in ("W", "KQ"):
        wrong, second = r[f"wrong_{which}"], r[f"second_{which}"]
        assert wrong.shape == (1, 1, 5) and (second <= wrong).all() and (wrong <= 3).all()
        saturated = r[f"outcome_{which}"] != 3
        assert ((wrong == 0) == (r[f"outcome_{which}"] == 0))[saturated].all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("p1_global_map", {"sizes": (3, 4)}, "sizes must be a sequence of pairs"),
        ("p1_support_fraction", {"T": 1}, "T must be an integer >= 2"),
        ("p1_support_fraction", {"points": 0}, "points must be a positive integer"),
    ],
)
def test_experiments_say_what_they_need(name, options, message):
    with pytest.raises(SvmlibError, match=message):
        getattr(sv.experiments, name)(trials=1, **options)


def test_spaced_problems_meet_the_theorem_and_no_more():
    p = _spaced(5, 3, 4, 6, 0)
    for rows in (p.X, p.z):
        products = rows @ np.swapaxes(rows, -1, -2)
        assert np.abs(products * (1.0 - np.eye(rows.shape[-2]))).max() < 1e-12
    np.testing.assert_allclose(np.sort(p.scores, -1), np.broadcast_to([-1, 0, 1, 2], (5, 3, 4)), atol=1e-12)
    across = p.X[:, 0] @ np.swapaxes(p.X[:, 1], -1, -2)
    assert (np.abs(across).max((-2, -1)) > 0.1).all()  # only orthogonal queries keep the sequences apart
    a = logits(p, _start(p, 1.0, 1).W)
    np.testing.assert_allclose(a, np.random.default_rng(1).uniform(-1.0, 1.0, (5, 3, 4)), atol=1e-12)


@pytest.mark.parametrize(("n", "T"), [(1, 2), (2, 4), (3, 3)])
def test_condition_bounds_the_row_sums(n, T):
    for seed in range(5):
        p = random_problem(n, T, 50, seed=seed)
        sums = [overparam_claims.deviation(p, s) for s in overparam_claims.selections(n, T)]
        assert max(sums) <= overparam_claims.condition(p)
