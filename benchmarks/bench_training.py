"""Throughput of training on the CPU and on a CUDA device: instances per second for batches of many sizes.

An instance is one problem of ``--sizes`` trained for ``--steps`` steps of normalised gradient descent. Each
line is the best of ``--repeats`` runs by the clock, after one that is not counted; copying the data to the
device and the result back is part of a run. Run: python benchmarks/bench_training.py --batches 10 1000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch

from svmlib import attention, data, dynamics

BATCHES = (10, 100, 1_000, 10_000, 100_000)


def random_data(n: int, T: int, d: int, batch: int, seed: int) -> data.Problem:
    """Draw all instances at once: drawing each with a generator of its own takes longer than training."""
    rng = np.random.default_rng(seed)

    def unit(*shape: int) -> np.ndarray:
        a = rng.normal(size=shape)
        return a / np.linalg.norm(a, axis=-1, keepdims=True)

    labels = rng.choice([-1.0, 1.0], size=(batch, n))
    return data.Problem(unit(batch, n, T, d), unit(batch, n, d), labels, unit(batch, d))


def throughput(problem: data.Problem, kind: str, steps: int, device: str, repeats: int) -> float:
    """Instances per second."""
    weights = attention.Direct.zeros(problem) if kind == "W" else attention.Factored.random(problem)
    best = np.inf
    for k in range(repeats + 1):
        start = time.perf_counter()
        dynamics.train(problem, weights, dynamics.normalized(0.1), steps, record=[steps], device=device)
        seconds = time.perf_counter() - start
        best = min(best, seconds) if k else best  # the first run pays for loading kernels
    return len(problem) / best


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="instances side by side")
    parser.add_argument("--sizes", type=int, nargs=3, default=(5, 5, 10), metavar=("N", "T", "D"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=("W", "KQ"), default=("W", "KQ"))
    parser.add_argument("--devices", nargs="+", choices=("cpu", "cuda"), default=("cpu", "cuda"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if min(*options.batches, *options.sizes, options.steps, options.repeats) < 1:
        parser.error("batches, sizes, steps and repeats must be at least 1")
    devices = list(options.devices)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads, sizes {tuple(options.sizes)}")
    if "cuda" in devices and not torch.cuda.is_available():
        devices.remove("cuda")
        print("cuda: skipped, torch sees no CUDA device")
    elif "cuda" in devices:
        print(f"cuda: {torch.cuda.get_device_name()}")
    print(f"{'device':8}{'weights':8}{'batch':>10}{f'instances/s ({options.steps} steps)':>28}")
    for batch in options.batches:
        problem = random_data(*options.sizes, batch, options.seed)
        for device in devices:
            for kind in options.kinds:
                rate = throughput(problem, kind, options.steps, device, options.repeats)
                print(f"{device:8}{kind:8}{batch:10,}{rate:28,.0f}", flush=True)


if __name__ == "__main__":
    main()
