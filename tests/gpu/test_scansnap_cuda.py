"""Scan and Snap on a CUDA device gives the numbers of the CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from svmlib import scansnap

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("T", [None, math.inf, 31])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_devices_agree(T, optimizer):
    process = scansnap.syn_medium(2)
    options = {
        "T": T,
        "batch": 16,
        "optimizer": optimizer,
        "start": "uniform",
        "seeds": [0, 3],
        "record": [0, 20],
    }
    if optimizer == "sgd":
        options["momentum"] = 0.9
    cpu = scansnap.simulate(process, [0.1, 0.5], 0.1, 20, **options)
    gpu = scansnap.simulate(process, [0.1, 0.5], 0.1, 20, device="cuda", **options)
    for name in ("loss", "s", "z", "logits", "sent", "D"):
        np.testing.assert_allclose(getattr(gpu, name), getattr(cpu, name), rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_sweep_fits_on_one_device():
    process = scansnap.syn_medium(10)
    rates = np.array([0.5, 1.0, 2.0, 3.0])
    run = scansnap.simulate(
        process,
        rates[:, None] * [1.0, 2.0, 5.0, 10.0],
        rates[:, None],
        100,
        T=127,
        momentum=0.9,
        start="uniform",
        seeds=range(10),
        record=[100],
        device="cuda",
    )
    assert np.isfinite(run.loss).all()
