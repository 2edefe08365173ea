"""Language models on a CUDA device: the same code, the numbers of the CPU up to round-off."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from svmlib import language

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
WORDS = np.random.default_rng(0).integers(0, 30, 3000)
SETTINGS = language.Training(rate=0.5, steps=20, batch=8, length=16, clip=1.0)


def train(name: str, **how) -> language.LanguageRun:
    models = {
        "scan": lambda: language.ScanLayer(30),
        "factors": lambda: language.ScanLayer(30, 8),
        "transformer": lambda: language.Transformer(30, layers=3, heads=2, width=16, hidden=16),
    }
    return language.train_language(
        models[name](), WORDS, SETTINGS, valid=WORDS[:500], probes=WORDS[:64].reshape(4, 16), record=5, **how
    )


@pytest.mark.parametrize("name", ["scan", "factors", "transformer"])
def test_devices_agree(name):
    cpu, gpu = train(name), train(name, device="cuda")
    np.testing.assert_allclose(gpu.valid, cpu.valid, rtol=1e-4)
    np.testing.assert_allclose(gpu.loss[1:], cpu.loss[1:], rtol=1e-4)
    for a, b in zip(gpu.attention, cpu.attention, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    assert next(gpu.model.parameters()).device.type == "cpu"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_stays_near(precision):
    np.testing.assert_allclose(
        train("transformer", device="cuda", precision=precision).valid, train("transformer").valid, rtol=0.03
    )


def test_a_run_goes_on_from_its_checkpoint_on_the_device(tmp_path):
    whole = train("transformer", device="cuda", checkpoint=tmp_path / "run.pt", every=7)
    again = train("transformer", device="cuda", checkpoint=tmp_path / "run.pt", every=7)
    np.testing.assert_array_equal(again.valid, whole.valid)
