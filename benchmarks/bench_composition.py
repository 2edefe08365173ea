"""Compare the predictivity experiment with the loop that its description suggests.

A torch module and autograd, one instance at a time, for the training, and one cvxpy constraint for each pair
of tokens for the three programs: a sample of instances for each d, in the same process, extrapolated to the
numbers of the whole experiment. Run it alone: ``python benchmarks/bench_composition.py`` (``--full`` runs all
4 x 500 accepted runs; without it a tenth).
"""

from __future__ import annotations

import resource
import sys
import time

import cvxpy as cp
import numpy as np
import torch

from svmlib import data, experiments

WIDTHS, STEPS, SAMPLE, SOLVED = (4, 6, 8, 10), 2000, 2, 3


class Layer(torch.nn.Module):
    """One attention layer with a fixed ReLU head."""

    def __init__(self, d: int, V: torch.Tensor) -> None:
        super().__init__()
        self.W = torch.nn.Linear(d, d, bias=False, dtype=torch.float64)
        torch.nn.init.zeros_(self.W.weight)
        self.V = V

    def forward(self, X: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        attention = torch.softmax((X @ self.W(z)[:, :, None])[..., 0], -1)
        return torch.relu((attention[..., None] * X).sum(1) @ self.V).sum(-1)


def plain_training(problem: data.Problem) -> np.ndarray:
    """Autograd, one step after the other, snapshots every 100 steps."""
    X, z, y, V = map(torch.from_numpy, map(np.array, (problem.X, problem.z, problem.y, problem.head.V)))
    model, snapshots = Layer(problem.d, V), []
    for k in range(STEPS + 1):
        if k and k % 100 == 0:
            snapshots.append(model.W.weight.detach().clone().numpy())
        model.zero_grad()
        loss = torch.nn.functional.softplus(-y * model(X, z)).mean()
        loss.backward()
        with torch.no_grad():
            g = model.W.weight.grad
            model.W.weight -= 0.1 * g / (g.norm() + 2.2e-16)
    return np.stack(snapshots)


def plain_programs(problem: data.Problem, s: np.ndarray) -> None:
    """One cvxpy constraint for each pair of tokens, for all three predictions."""
    chosen, top = s > 1e-3, s.argmax(-1)
    pairs = [
        (i, t, u) for i in range(problem.n) for t in range(problem.T) for u in range(problem.T) if t != u
    ]

    def difference(W: cp.Variable, i: int, t: int, u: int) -> cp.Expression:
        return (problem.X[i, t] - problem.X[i, u]) @ W @ problem.z[i]

    W = cp.Variable((problem.d, problem.d))
    inside = [(i, t, u) for i, t, u in pairs if chosen[i, t] and chosen[i, u]]
    across = [(i, t, u) for i, t, u in pairs if chosen[i, t] and not chosen[i, u]]
    programs = [
        [difference(W, *q) == 0 for q in inside] + [difference(W, *q) >= 1 for q in across],
        [difference(W, i, t, u) == np.log(s[i, t] / s[i, u]) for i, t, u in inside],
        [difference(W, i, t, u) >= 1 for i, t, u in pairs if t == top[i]],
    ]
    for constraints in programs:
        cp.Problem(cp.Minimize(cp.norm(W, "fro")), constraints).solve()


def main() -> None:
    torch.set_num_threads(1)
    full = "--full" in sys.argv
    started, clock = time.process_time(), time.perf_counter()
    record = experiments.p1_composition(trials=500 if full else 50, widths=WIDTHS, progress=full)
    mine, wall = time.process_time() - started, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    loop = {"training": 0.0, "programs": 0.0}
    for j, d in enumerate(WIDTHS):
        trained = int(record["tried"][j] - record["counts"][j, 1])  # both labels present
        sample = [experiments.composition_problem(3, 4, d, seed=int(s)) for s in record["seed"][j, :SOLVED]]
        started = time.process_time()
        for p in sample[:SAMPLE]:
            plain_training(p)
        loop["training"] += (time.process_time() - started) / SAMPLE * trained
        started = time.process_time()
        for p, s in zip(sample, record["probability"][j], strict=False):
            plain_programs(p, s)
        loop["programs"] += (time.process_time() - started) / SOLVED * record.trials
    total = sum(loop.values())
    print(f"{record['tried'].sum():,} instances, {record['seed'].size:,} accepted")
    print(f"svmlib      {mine:10.1f} s of processor time ({wall:.1f} s elapsed), peak memory {peak:.0f} MB")
    parts = {key: round(seconds) for key, seconds in loop.items()}
    print(f"loop        {total:10.1f} s, extrapolated: {parts}")
    print(f"ratio       {total / mine:10.0f}")


if __name__ == "__main__":
    main()
