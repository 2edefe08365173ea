"""Compare the sweep of learning rates on Syn-Medium with the loop that its description suggests.

A torch module, autograd and SGD for one run at a time, sequences drawn one after the other: a few iterations
for each of the four sizes, in the same process and on one thread, extrapolated to the whole sweep of
4 sizes x 16 pairs of rates x 10 seeds x 100 iterations. Run it alone: ``python benchmarks/bench_scansnap.py``
(``--tenth``: one seed, and the loop extrapolated to that).
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import torch

from svmlib import experiments, scansnap

SIZES, RATES, RATIOS = (1, 3, 5, 10), 4, 4
SEEDS, STEPS, SAMPLE, LENGTH, BATCH = 10, 100, 30, 127, 128


class Layer(torch.nn.Module):
    """Attention over the contextual tokens, normalisation and decoder, as the paper writes them."""

    def __init__(self, M: int) -> None:
        super().__init__()
        self.M = M
        self.decoder = torch.nn.Linear(M, M, bias=False, dtype=torch.float64)
        self.attention = torch.nn.Linear(M, M, bias=False, dtype=torch.float64)

    def forward(self, tokens: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        X = torch.nn.functional.one_hot(tokens, self.M).double()  # (B, T, M)
        z = self.attention(torch.nn.functional.one_hot(query, self.M).double())
        b = torch.softmax((X @ z[:, :, None])[..., 0], -1)
        u = (b[..., None] * X).sum(1)
        return self.decoder(u / u.norm(dim=-1, keepdim=True))


def draw(process: scansnap.TokenProcess, rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """One batch, one sequence after the other."""
    tokens, query, label = [], [], []
    for _ in range(BATCH):
        c = rng.choice(process.C)
        tokens.append(rng.choice(process.M, LENGTH, p=process.P[c]))
        query.append(process.query[c])
        label.append(process.label[c])
    return tuple(torch.from_numpy(np.array(a)) for a in (tokens, query, label))


def plain(process: scansnap.TokenProcess, steps: int) -> float:
    """Train as described; returns the loss of the last batch."""
    rng, model = np.random.default_rng(0), Layer(process.M)  # starts at random, as torch does
    optimizer = torch.optim.SGD(
        [
            {"params": model.decoder.parameters(), "lr": 1.0},
            {"params": model.attention.parameters(), "lr": 0.5},
        ],
        momentum=0.9,
    )
    for _ in range(steps):
        tokens, query, label = draw(process, rng)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens, query), label)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def small() -> float:
    """Seconds for both rates of figure 4."""
    clock = time.perf_counter()
    experiments.p3_syn_small(1)
    return time.perf_counter() - clock


def main() -> None:
    torch.set_num_threads(1)
    part = 1 if "--tenth" in sys.argv else SEEDS
    small()  # once to warm up
    figure = small()
    started, clock = time.process_time(), time.perf_counter()
    experiments.p3_syn_medium(part)
    mine, wall = time.process_time() - started, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    loop, loop_wall = [], 0.0
    for queries in SIZES:
        process = scansnap.syn_medium(queries)
        plain(process, 1)
        started, clock = time.process_time(), time.perf_counter()
        plain(process, SAMPLE)
        runs = RATES * RATIOS * part * STEPS / SAMPLE
        loop.append((time.process_time() - started) * runs)
        loop_wall += (time.perf_counter() - clock) * runs
    total = sum(loop)
    print(
        f"{len(SIZES) * RATES * RATIOS * part} runs of {STEPS} iterations, {torch.get_num_threads()} threads"
    )
    print(f"svmlib  {mine:10.1f} s of processor time, {wall:.1f} s elapsed, peak memory {peak:.0f} MB")
    print(f"loop    {total:10.0f} s, {loop_wall:.0f} s elapsed, from {SAMPLE} iterations a size:")
    print(f"        {' + '.join(f'{seconds:.0f}' for seconds in loop)} s")
    print(f"ratio   {total / mine:10.0f} of processor time, {loop_wall / wall:.0f} elapsed")
    print(f"figure 4 in {figure:.2f} s")


if __name__ == "__main__":
    main()
