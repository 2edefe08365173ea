"""An experiment gives the same numbers on a GPU; skipped where there is no CUDA device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import cli, experiments

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def test_an_experiment_on_cuda_equals_the_one_on_the_cpu():
    cpu, cuda = (experiments.p1_local_convergence(20, steps=100, device=device) for device in ("cpu", "cuda"))
    assert (cpu.device, cuda.device) == ("cpu", "cuda")
    for key in cpu:
        np.testing.assert_allclose(cuda[key], cpu[key], rtol=1e-7, atol=1e-9, err_msg=key)


def test_the_command_line_hands_the_device_on(tmp_path):
    words = ["reproduce", "p1_planar_1", "--device", "cuda", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    assert experiments.load(tmp_path / "p1_planar_1").device == "cuda"
