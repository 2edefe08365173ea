"""Scan and Snap's dynamics against autograd, published numbers, closed forms and their own invariants."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import scansnap
from svmlib.errors import DataError, ShapeError, SolverError
from svmlib.scansnap._engine import Batch, ascent

SMALL = scansnap.syn_small()


def test_directions_are_minus_the_gradients_that_autograd_finds():
    rng, (R, B, L, M, Q) = np.random.default_rng(0), (2, 5, 6, 9, 2)
    D, Z = (torch.tensor(rng.normal(size=s), requires_grad=True) for s in ((R, L, M), (R, Q, L)))
    counts = torch.tensor(rng.integers(0, 4, (R, B, L)) + np.eye(L)[:B]).double()
    row, label = torch.tensor(rng.integers(Q, size=(R, B))), torch.tensor(rng.integers(M, size=(R, B)))
    weight = torch.tensor(rng.dirichlet(np.ones(B)))
    step = ascent(D.detach(), Z.detach(), Batch(counts, row, label, weight))
    total = torch.zeros((), dtype=torch.float64)
    for r in range(R):
        for b in range(B):
            positions = torch.repeat_interleave(torch.arange(L), counts[r, b].long())
            attention = torch.softmax(Z[r, row[r, b]][positions], 0)  # over positions, as the layer has it
            x = torch.zeros(L, dtype=torch.float64).index_add(0, positions, attention)
            log_p = torch.log_softmax((x / x.norm()) @ D[r], 0)
            total = total - weight[b] * log_p[label[r, b]]
    gradients = torch.autograd.grad(total, (D, Z))
    assert float(step.loss.sum()) == pytest.approx(float(total.detach()), rel=1e-13)
    for got, want in zip((step.D, step.Z), gradients, strict=True):
        np.testing.assert_allclose(got, -want, rtol=1e-10, atol=1e-15)


def test_the_published_run_on_two_classes():
    # figure 4: the loss log of the published script; its attention lies among that of other seeds
    r = scansnap.simulate(
        SMALL, [1.0, 10.0], 1.0, 100, T=127, momentum=0.9, seeds=range(12), record=[0, 4, 10, 20, 98, 100]
    )
    assert r.loss[0, :, 0] == pytest.approx(np.log(34), abs=1e-12)
    np.testing.assert_allclose(r.loss[0].mean(0)[1:5], [0.733, 0.01295, 2.05e-4, 2.2e-5], rtol=0.25)
    common, top = scansnap.common_mass(SMALL, r.s)[..., 0], r.s[..., 0, 19]
    assert common[0, :, 0] == pytest.approx(20 / 31)
    for k, (mass, share) in enumerate(((0.355, 0.186), (0.566, 0.090))):
        for values, published in ((common[k, :, -1], mass), (top[k, :, -1], share)):
            assert abs(values.mean() - published) < 2 * values.std(ddof=1)
    assert common[0, :, -1].mean() < 0.42 < 0.5 < common[1, :, -1].mean()  # a fast decoder leaves it dense
    assert np.all(np.diff(r.s[0, :, -1, 0, 10:20].mean(0)) > -2e-3)


@pytest.mark.parametrize(
    ("queries", "rate", "ratio", "mean", "std"),
    [(1, 0.5, 1, 1.971, 0.028), (1, 1, 5, 2.022, 0.036), (3, 1, 2, 1.920, 0.018), (3, 2, 10, 1.955, 0.020)],
)
def test_published_entropies(queries, rate, ratio, mean, std):
    process = scansnap.syn_medium(queries)
    r = scansnap.simulate(
        process,
        rate * ratio,
        rate,
        100,
        T=127,
        momentum=0.9,
        start="uniform",
        seeds=range(10),
        record=[0, 100],
    )
    H = scansnap.distinct_entropy(process, r.s).mean(-1)
    assert H[:, 0].mean() == pytest.approx(2.151, abs=0.01)
    allowed = 4 * np.sqrt((std**2 + H[:, 1].var(ddof=1)) / 10)
    assert abs(H[:, 1].mean() - mean) <= allowed


def test_gradients_of_the_population_are_one_step_of_training():
    process = scansnap.syn_medium(2, 2, 3, 4)
    rng = np.random.default_rng(3)
    D, z = rng.normal(size=(process.M, process.M)), rng.normal(size=(2, process.M))
    g = scansnap.gradients(process, D, z)
    r = scansnap.simulate(process, 0.3, 0.2, 1, start=(D, z), record=[0, 1])
    np.testing.assert_allclose(r.D[0], D - 0.3 * g.D, atol=1e-14)
    np.testing.assert_allclose(r.z[0, 1], z - 0.2 * g.z, atol=1e-14)
    np.testing.assert_allclose([r.loss[0, 0], scansnap.loss(process, D, z)], g.loss)
    np.testing.assert_allclose(r.sent[0, 0][process.P > 0], g.sent[process.P > 0], atol=1e-14)
    f = scansnap.features(scansnap.attention(process, z))
    np.testing.assert_allclose(g.logits, f @ D, atol=1e-14)
    many = scansnap.gradients(process, np.stack([D, 2 * D]), z)
    np.testing.assert_allclose(many.D[0], g.D)
    assert many.z.shape == (2, 2, process.M)


def test_a_token_that_is_absent_does_not_drown_the_others():
    process = scansnap.TokenProcess([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]], [3, 3], [3, 4])
    z = np.array([[0.0, 1.0, 2000.0, 0.0, 0.0]])
    s = scansnap.attention(process, z)
    np.testing.assert_allclose(s[0, :2], [1 / (1 + np.e), np.e / (1 + np.e)])
    assert scansnap.gradients(process, np.zeros((5, 5)), z).loss == pytest.approx(np.log(5))
    np.testing.assert_allclose(scansnap.flow(process, [1e-9], z=z).s[0], s, atol=1e-9)
    assert scansnap.simulate(process, 1.0, 0.0, 1, start=(np.zeros((5, 5)), z)).s[
        0, 0, 0, 1
    ] == pytest.approx(s[0, 1])


def test_the_reduced_flow_is_what_its_formulas_say():
    process = scansnap.symmetric(3, [0.2], [0.5, 0.3], vocabulary=400)
    flow = scansnap.reduced_flow(process, [0.0, 50.0, 400.0], 1.0, 0.1)
    f = scansnap.features(flow.s)
    inverse = np.linalg.inv(f @ f.swapaxes(1, 2))
    np.testing.assert_allclose(flow.force, flow.speed * (np.einsum("rcc->rc", inverse) - 1), rtol=1e-12)
    np.testing.assert_allclose(flow.speed, scansnap.speed(flow.times, 400, 3)[:, None] * np.ones(3))
    v = scansnap.velocity(process, flow.z[1])
    own = process.distinct[0]
    np.testing.assert_allclose(v[0, own], f[1, 0, own] ** 2 * scansnap.force(process, flow.z[1])[0] / 3)
    np.testing.assert_allclose(flow.z.sum(-1), 0, atol=1e-9)
    # the law of growth: one constant for all distinct tokens of a class
    law = (1 - np.exp(-2 * flow.z[-1, 0, own])) / process.P[0, own] ** 2
    assert law[0] == pytest.approx(law[1], rel=1e-6)
    assert (np.diff(flow.growth, axis=0) > 0).all()
    assert scansnap.reduced_flow(process, [9.0], 0.0, 1.0).z == pytest.approx(0.0)


def test_flow_from_other_logits_and_without_time():
    process = scansnap.symmetric(2, [0.2], [0.5, 0.3])
    z = np.random.default_rng(0).normal(size=(1, process.M))
    flow = scansnap.flow(process, [0.0], z=z)
    np.testing.assert_allclose(flow.z[0], z)
    np.testing.assert_allclose(flow.s[0], scansnap.attention(process, z))
    later = scansnap.flow(process, [1e-3, 0.1], 1.0, 0.5, z=z)
    steps = scansnap.simulate(process, 1e-3, 5e-4, 100, start=(np.zeros((process.M,) * 2), z), record=[100])
    np.testing.assert_allclose(steps.z[0, 0], later.z[1], atol=1e-5)
    np.testing.assert_allclose(steps.logits[0, 0], later.logits[1], atol=1e-3)
    np.testing.assert_allclose(steps.sent[0, 0], later.sent[1], atol=1e-3)


def test_a_frozen_decoder_and_attention_that_is_not_normalised():
    process = scansnap.symmetric(2, [0.2], [0.5, 0.3], vocabulary=12)
    trained = scansnap.flow(process, [30.0], 1.0, 0.0)
    frozen = scansnap.flow(process, [0.0, 5.0], 0.0, 1.0, decoder=trained.decoder[-1])
    np.testing.assert_allclose(frozen.decoder[1], trained.decoder[-1])
    assert frozen.loss[0] == pytest.approx(trained.loss[-1], rel=1e-9)
    assert frozen.loss[1] < frozen.loss[0]
    # without the norm: minus the gradient in z by differences of the loss, sum_l s (g - s'g)
    D, s, L = trained.decoder[-1], process.P[:, :5], 5
    full = np.zeros((L, 12))
    full[:] = D[:, -1:]
    full[:, process.label] = D[:, :2]

    def loss(z):
        mass = s * np.exp(z)
        logits = (mass / mass.sum(1, keepdims=True)) @ full
        picked = logits[[0, 1], process.label]
        return (np.log(np.exp(logits).sum(1)) - picked).mean()

    slope = [(loss(1e-5 * e) - loss(-1e-5 * e)) / 2e-5 for e in np.eye(L)]
    run = scansnap.flow(process, [0.0, 1e-4], 0.0, 1.0, decoder=D, normalize=False, rtol=1e-12)
    np.testing.assert_allclose(run.z[1, 0, :L] / 1e-4, -np.array(slope), rtol=1e-3, atol=1e-7)
    assert run.loss[0] == pytest.approx(loss(np.zeros(L)))
    tiny = scansnap.flow(process, [0.0], 0.0, 0.0, decoder=40 * D / np.abs(D).max() * (s.sum(0) > 0)[:, None])
    assert tiny.loss[0] > 0
    with pytest.raises(ShapeError, match="decoder must end in axes"):
        scansnap.flow(process, [1.0], decoder=np.eye(3))


def test_infinite_sequences_with_drawn_classes():
    process = scansnap.symmetric(3, [0.2], [0.5, 0.3])
    r = scansnap.simulate(process, 0.5, 0.0, 3000, T=np.inf, batch=1, record=[3000])
    whole = scansnap.simulate(process, 0.5, 0.0, 3000, record=[3000])
    np.testing.assert_allclose(r.logits, whole.logits, rtol=0.05, atol=0.05)


def test_rows_keep_their_sums():
    r = scansnap.simulate(SMALL, 1.0, 0.5, 60, T=31, batch=16)
    np.testing.assert_allclose(r.D.sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose(r.z.sum(-1), 0, atol=1e-12)


def test_population_steps_approach_the_flow():
    times = [1.0, 10.0, 40.0]
    flow = scansnap.flow(SMALL, times, 1.0, 1.0)
    errors = []
    for eta in (0.2, 0.1):
        steps = [round(t / eta) for t in times]
        r = scansnap.simulate(SMALL, eta, eta, steps[-1], record=steps)
        errors.append(np.abs(r.s[0] - flow.s).max((1, 2)))
        np.testing.assert_allclose(r.loss[0], flow.loss, rtol=0.06)
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_long_sequences_approach_the_limit():
    limit = scansnap.simulate(SMALL, 1.0, 1.0, 40, record=[40]).s[0, 0]
    off = [
        np.abs(scansnap.simulate(SMALL, 1.0, 1.0, 40, T=T, batch=512, record=[40]).s[0, 0] - limit).max()
        for T in (16, 1024)
    ]
    assert off[1] < off[0] / 3


def test_closed_forms():
    assert scansnap.accumulated_speed(300, 1000, 10, 1.0, 0.5) == pytest.approx(244.95975, abs=1e-4)
    rates = {"M": 1000, "C": 10, "attention_rate": 0.5}
    for rate, want in ((0.5, [11.2, 21.8, 45.2]), (5.0, [13.7, 15.0, 18.0])):
        got = np.exp(2 * scansnap.suppression([50, 100, 700], rate=rate, **rates))
        np.testing.assert_allclose(got, want, atol=0.051)
    t = np.linspace(0.01, 200, 4001)
    s = scansnap.speed(t, 1000, 10)
    assert t[s.argmax()] / scansnap.transition(1000, 10) == pytest.approx(0.816, abs=0.01)
    assert s.max() == pytest.approx(4.416, abs=0.001)
    numeric = np.trapezoid(scansnap.speed(t, 1000, 10), t)
    assert numeric == pytest.approx(float(scansnap.accumulated_speed(200, 1000, 10)), rel=1e-3)


@pytest.mark.parametrize("M", [2, 50, 10_000])
def test_progress_solves_its_equation(M):
    for t in (1e-12, 1e-3, 1.0, 1e3, 1e9, 1e15):
        u = M * float(scansnap.progress(t, M))
        assert np.expm1(u) + (M - 1) * u == pytest.approx(M * t, rel=1e-13)
    steps, exact = scansnap.progress_steps(4000, M, 0.5), scansnap.progress(np.arange(4001), M, 0.5)
    gap = steps - exact
    assert gap.min() >= -1e-15
    assert gap.max() <= 2 * 0.5 / M


def test_the_decoder_of_one_class_makes_the_predicted_progress():
    process = scansnap.TokenProcess(np.eye(1, 20), [5], [6])
    r = scansnap.simulate(process, 0.5, 0.0, 300)
    h = scansnap.progress_steps(300, 20, 0.5)[-1]
    column = np.full(20, -h)
    column[6] = 19 * h
    np.testing.assert_allclose(r.D[0, 0], column, atol=1e-13)


def test_counts_have_the_frequencies_of_their_class():
    classes, counts = SMALL.sample(np.random.default_rng(0), 4000, 128)
    assert (counts.sum(1) == 128).all()
    for c in (0, 1):
        share = counts[classes == c].mean(0) / 128
        np.testing.assert_allclose(share, SMALL.P[c], atol=2e-3)
        assert (share[SMALL.P[c] == 0] == 0).all()
    skewed = scansnap.TokenProcess([[1, 0, 0], [0, 1, 0]], [2, 2], [0, 1], [3, 1])
    assert (skewed.sample(np.random.default_rng(1), 4000, 1)[0] == 0).mean() == pytest.approx(0.75, abs=0.03)


def test_runs_do_not_depend_on_what_runs_beside_them(monkeypatch):
    options = {"T": 32, "batch": 8, "start": "uniform", "record": [5, 20]}
    whole = scansnap.simulate(SMALL, [[1.0], [2.0]], [0.5, 1.0], 20, seeds=[4, 7], **options)
    assert whole.s.shape == (2, 2, 2, 2, 2, 34)
    monkeypatch.setattr(
        scansnap.simulate.__globals__["torch"], "manual_seed", None
    )  # nothing global is seeded
    monkeypatch.setitem(scansnap.simulate.__globals__, "WORKSPACE", 1)
    alone = scansnap.simulate(SMALL, 2.0, 0.5, 20, seeds=[7], **options)
    np.testing.assert_allclose(alone.s[0], whole.s[1, 0, 1], rtol=1e-11)


def test_adam_is_torch_s():
    process = scansnap.TokenProcess([[2, 1, 0, 0], [2, 0, 1, 0]], [3, 3], [0, 1])
    r = scansnap.simulate(process, 0.1, 0.05, 30, optimizer="adam", record=[30])
    D, z = torch.zeros(3, 4, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    D.requires_grad_(), z.requires_grad_()
    P = torch.tensor(process.P[:, :3])
    optimizer = torch.optim.Adam([{"params": [D], "lr": 0.1}, {"params": [z], "lr": 0.05}])
    for _ in range(30):
        optimizer.zero_grad()
        mass = P * z.exp()
        f = mass / mass.norm(dim=1, keepdim=True)
        torch.nn.functional.cross_entropy(f @ D, torch.tensor([0, 1])).backward()
        optimizer.step()
    np.testing.assert_allclose(r.z[0, 0, 0, :3], z.detach(), atol=1e-9)


def test_bad_input_is_named():
    for bad, error, message in (
        (lambda: scansnap.TokenProcess([[1.0, -1.0]], [0], [1]), DataError, "none negative"),
        (lambda: scansnap.TokenProcess([[0.0, 0.0]], [0], [1]), DataError, "a positive one in each row"),
        (
            lambda: scansnap.TokenProcess(np.eye(2), [0, 2], [0, 1]),
            DataError,
            r"query must hold tokens 0\.\.1",
        ),
        (lambda: scansnap.TokenProcess(np.eye(2), [0, 0], [1, 1]), DataError, "another next token"),
        (
            lambda: scansnap.TokenProcess(np.eye(2), [0, 0], [0, 1], [1, 0]),
            DataError,
            "prior must be positive",
        ),
        (lambda: scansnap.TokenProcess(np.eye(2), [0], [0, 1]), ShapeError, "query"),
        (lambda: scansnap.simulate(SMALL, [1, 2], [1, 2, 3], 3), ShapeError, "do not broadcast"),
        (lambda: scansnap.simulate(SMALL, -1, 1, 3), DataError, "must not be negative"),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, momentum=1), DataError, r"momentum must lie in \[0, 1\)"),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, optimizer="lion"), DataError, "optimizer must be"),
        (
            lambda: scansnap.simulate(SMALL, 1, 1, 3, optimizer="adam", momentum=0.9),
            DataError,
            "Adam has its own",
        ),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, start="random"), DataError, "start must be"),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, start=(np.eye(3), 0)), ShapeError, "D of start"),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, T=0.5), ShapeError, "T "),
        (lambda: scansnap.simulate(SMALL, 1, 1, 3, seeds=[]), DataError, "seeds is empty"),
        (
            lambda: scansnap.symmetric(3, [0.5], [0.5], vocabulary=7),
            DataError,
            "vocabulary is 7, but 3 classes need 8",
        ),
        (lambda: scansnap.features(np.zeros(3)), DataError, "no direction"),
        (lambda: scansnap.gradients(SMALL, np.eye(3), np.zeros((2, 34))), ShapeError, "D must end in axes"),
        (lambda: scansnap.force(scansnap.symmetric(2, [1.0], []), np.zeros((1, 4))), DataError, "dependent"),
        (lambda: scansnap.flow(SMALL, [2.0, 1.0]), DataError, "times must be increasing"),
        (lambda: scansnap.progress(-1.0, 5), DataError, "t must not be negative"),
        (
            lambda: scansnap.simulate(SMALL, 1e308, 1e308, 99, momentum=0.9),
            SolverError,
            "left the finite numbers",
        ),
        (
            lambda: scansnap.distinct_entropy(
                scansnap.TokenProcess([[1, 0], [1, 1]], [0, 0], [0, 1]), np.eye(2)
            ),
            DataError,
            "without distinct tokens",
        ),
    ):
        with pytest.raises(error, match=message):
            bad()


def test_a_seed_is_as_good_as_a_generator():
    p = scansnap.symmetric(3, [0.4], [0.35, 0.25], vocabulary=20)
    for by_seed, by_generator in zip(
        p.sequences(3, 5, 7), p.sequences(np.random.default_rng(3), 5, 7), strict=True
    ):
        np.testing.assert_array_equal(by_seed, by_generator)
    assert repr(scansnap.TokenProcess([[0.5, 0.5, 0]], [0], [2])).startswith("TokenProcess(1 class,")
