"""The claims of the attention SVM's chapter fail when the library is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import svmlib as sv
from svmlib.checks import attention_svm as module

SOLVE, FEASIBLE = sv.svm.attention_svm, sv.svm.feasible


def too_long(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm=norm, **rest)
    return dataclasses.replace(s, W=1.01 * s.W, value=1.01 * s.value)


def one_norm_for_both(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm="fro", **rest)
    return dataclasses.replace(s, norm=norm, value=sv.norms.get(norm)(s.W))


def transposed(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm=norm, **rest)
    return dataclasses.replace(s, W=np.swapaxes(s.W, -1, -2))


def negative_multipliers(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm=norm, **rest)
    return dataclasses.replace(s, multipliers=-s.multipliers)


def masks_forgotten(problem, tokens=None, norm="fro", **rest):
    index = problem.checked_tokens(tokens)
    return SOLVE(sv.data.Problem(problem.X, problem.z, problem.y, problem.v), index, norm=norm, **rest)


def nobody_supports(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm=norm, **rest)
    return dataclasses.replace(s, support=np.zeros_like(s.support))


def full_rank(problem, tokens=None, norm="fro", **rest):
    s = SOLVE(problem, tokens, norm=norm, **rest)
    return dataclasses.replace(s, rank=np.full_like(s.rank, problem.d))


@pytest.fixture
def fresh_cache():
    module.solved.cache_clear()
    yield
    module.solved.cache_clear()


@pytest.mark.parametrize(
    ("label", "mutant"),
    [
        ("prop-att-margin", too_long),
        ("prop-att-margin", one_norm_for_both),
        ("prop-kkt-fro", too_long),
        ("prop-kkt-fro", transposed),
        ("prop-kkt-nuc", one_norm_for_both),
        ("prop-kkt-nuc", negative_multipliers),
        ("prop-certificate", one_norm_for_both),
        ("prop-planted", transposed),
        ("prop-planted", nobody_supports),
        ("prop-att-alternative", too_long),
        ("lem-slack", masks_forgotten),
        ("lem-rank", full_rank),
        ("prop-nuclear-rank", full_rank),
        ("prop-norms-agree", one_norm_for_both),
        ("prop-invariance", transposed),
        ("prop-opt-local", nobody_supports),
    ],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_a_wrong_solution_is_noticed(label, mutant, monkeypatch, fresh_cache):
    monkeypatch.setattr(sv.svm, "attention_svm", mutant)
    with pytest.raises(sv.checks.CheckFailed):
        sv.checks.run(label)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("label", ["thm-feasibility", "prop-att-alternative"])
def test_a_wrong_answer_on_feasibility_is_noticed(label, answer, monkeypatch, fresh_cache):
    monkeypatch.setattr(sv.svm, "feasible", lambda p, tokens=None: np.full_like(FEASIBLE(p, tokens), answer))
    with pytest.raises((sv.checks.CheckFailed, sv.errors.InfeasibleError, ValueError)):
        sv.checks.run(label)


def test_a_wrong_norm_is_noticed(monkeypatch):
    monkeypatch.setattr(sv.norms, "NUC", sv.norms.FRO)
    for label in ("lem-nuclear-factors", "prop-nuc-nonunique"):
        with pytest.raises(sv.checks.CheckFailed):
            sv.checks.run(label)
