"""The same numbers on a GPU as on the CPU; skipped where there is no CUDA device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import attention, data, dynamics

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.mark.parametrize("kind", [attention.Direct.random, attention.Factored.random])
def test_training_on_cuda_equals_training_on_the_cpu(kind):
    p = data.random_problem(6, 8, 10, batch=20)
    cpu, cuda = (
        dynamics.train(p, kind(p), dynamics.normalized(0.1), 100, record=[100], device=device)
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(cuda.W, cpu.W, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(cuda.selected, cpu.selected)


@pytest.mark.parametrize("name", ["linear", "quadratic", "mlp"])
def test_heads_with_parameters_for_every_instance(name):
    p, rng = data.random_problem(3, 4, 6, batch=20), np.random.default_rng(0)
    head = {
        "linear": lambda: attention.linear(p.v),
        "quadratic": lambda: attention.quadratic(p.v, rng.uniform(0.1, 1.0, 20)),
        "mlp": lambda: attention.mlp(rng.normal(size=(20, 6, 5))),
    }[name]()
    q = data.Problem(p.X, p.z, p.y, head=head)
    rule = dynamics.gradient_descent(0.5)
    cpu, cuda = (
        dynamics.train(q, attention.Direct.zeros(q), rule, 50, record=[50], device=device).W
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(cuda, cpu, rtol=1e-9, atol=1e-11)
