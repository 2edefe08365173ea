"""The numbers of the chapter on head and query together, and what would fail on wrong mathematics."""

from __future__ import annotations

import numpy as np
import pytest

import svmlib as sv
from svmlib.checks import head_query, head_query_path
from svmlib.checks.head_query_textbook import descend_jointly
from svmlib.experiments import joint

CORR = sv.compare.correlation


@pytest.fixture(scope="module")
def record():
    return sv.experiments.p2_joint_training(trials=25)


def at(record, name, k, step, target):
    where = record["published_steps"].tolist().index(step)
    return float(CORR(record[name][k, where, :, None], np.asarray(target, dtype=float)[:, None]))


def test_the_published_instances(record):
    tight, loose, relaxed = [4.0, 1.0], [5.0, 1.0], [1.0, 0.0]
    assert at(record, "published_p", 0, 60, tight) == pytest.approx(0.9994, abs=1e-4)
    assert at(record, "published_p", 0, 199, tight) == pytest.approx(0.9998, abs=1e-4)
    assert at(record, "published_v", 0, 199, [0.0, 1.0]) > 0.9998
    assert at(record, "published_p", 1, 90, relaxed) == pytest.approx(0.9988, abs=1e-4)
    assert at(record, "published_p", 1, 199, relaxed) > 0.9998
    assert at(record, "published_p", 1, 199, loose) == pytest.approx(0.984, abs=1e-3)
    # exact gradients go on where published runs stop
    assert at(record, "published_p", 1, 2000, relaxed) > 0.999998
    feature, label = record["published_feature"][0], record["published_label"][0]
    assert feature[0] == pytest.approx(0.423, abs=1e-3)
    assert 5 <= feature[:60].argmin() <= 10
    assert feature.min() == pytest.approx(0.38, abs=5e-3)
    assert label[0] == pytest.approx(0.525, abs=1e-3)
    assert label[60] > 0.99 > feature[60]


def test_the_limit_depends_on_slack_times_ratio(record):
    off = np.abs(record["family_angle"] - record["family_limit"][..., None])
    assert off[..., -1].max() < 0.1
    assert (off[..., -1] < np.maximum(0.6 * off[..., -6], 0.02)).all()
    c, e = record["family_ratio"][:, None], record["family_epsilon"]
    np.testing.assert_allclose(record["family_limit"], head_query_path.switch(e, c), atol=1e-8)
    assert (record["family_limit"][c * e < 0.49] > 0.1).all()


def test_plain_flow_grows_like_a_logarithm_and_relaxes(record):
    head, query = (np.linalg.norm(record[f"flow_{b}"], axis=-1) for b in "vp")
    slope = (query[:, -1] - query[:, -6]) / np.log(head[:, -1] / head[:, -6])
    np.testing.assert_allclose(slope, [2 * np.hypot(4 / 3, 1 / 3), 2.0, 2.0], rtol=0.01)
    turned = np.degrees(np.arctan2(record["flow_p"][1, -1, 1], record["flow_p"][1, -1, 0]))
    assert abs(turned) < 0.01 < head_query_path.switch(0.1, 1.0)


def test_random_instances_follow_the_joint_program(record):
    for size in ("small", "large"):
        kept = record[f"{size}_feasible"] & ~record[f"{size}_all_support"]
        assert kept.sum() >= 10
        gaps = {k: 1 - record[f"{size}_{k}"][kept, -1] for k in ("joint", "tight", "relaxed", "head")}
        assert np.median(gaps["joint"]) < 3e-4
        assert np.median(gaps["head"]) < 1e-3
        assert np.median(gaps["joint"]) < 0.1 * np.median(gaps["tight"])
        assert np.median(gaps["joint"]) < 0.1 * np.median(gaps["relaxed"])
        early = 1 - record[f"{size}_joint"][kept, 0]
        assert np.median(gaps["joint"]) < 0.3 * np.median(early)


def test_published_arithmetic_stops_the_query():
    p = joint.three_sequences(0.5)
    sizes = []
    for eps in (1e-9, 1e-19):
        _, query = descend_jointly(p, joint.HEAD, [0.0, -1.0], 600, eps=eps)
        sizes.append(np.linalg.norm(query[-1]))
        assert np.linalg.norm(query[-1] - query[-200]) < 0.01
    assert sizes == pytest.approx([11.0, 22.9], abs=0.2)


def test_a_degenerate_support_sequence_asks_for_half_a_margin():
    # values (0, 1) and (1, 1): the second lies on the margin with multiplier 0
    X = np.array([[[0.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]])
    p = sv.data.Problem(X, np.ones((2, 1)), [1, 1], keys=X)
    assert sv.svm.value_svm(p, [0, 0]).support.all()
    for eta in (1e-2, 1e-3):
        s = np.array([[1.0, 0.0], [1.0 - eta, eta]])
        cost = 1.0 - head_query.label_margin(p, np.einsum("nt,ntd->nd", s, X))
        assert cost == pytest.approx(eta**2 / 2, rel=0.03)


def test_wrong_limits_are_told_apart():
    # the same path against the limit of another ratio: the angle does not shrink
    p = joint.three_sequences(0.25)
    path = sv.dynamics.joint_path(p, 1.0, [40.0, 80.0], [1, 1, 1], starts=1)
    right, wrong = (sv.compare.angle(path.W, sv.dynamics.joint_limit(p, c, [1, 1, 1]).W) for c in (1.0, 1.2))
    assert right[1] < 0.6 * right[0]
    assert wrong[1] > 0.9 * wrong[0]
