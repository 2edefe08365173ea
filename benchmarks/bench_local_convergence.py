"""The local-convergence experiment against the loop that one would write first, in one run.

100 instances x {W, (K, Q)} x 2,000 steps and both SVMs of every end point. The loop trains one instance
at a time by autograd and hands cvxpy one constraint per token; it is measured on a few instances and
scaled to 100, since all instances cost the same. Run: python benchmarks/bench_local_convergence.py
"""

from __future__ import annotations

import resource
import time

import cvxpy as cp
import numpy as np
import torch

from svmlib import attention, data, dynamics, svm

RUNS, STEPS, SAMPLE = 100, 2000, 2
N, T, D = 6, 8, 10


def plain_loop(problem: data.Problem, factored: bool, steps: int) -> np.ndarray:
    """Normalised gradient descent as a notebook has it: autograd, one instance, one step at a time."""
    X, z, y, v = (torch.tensor(a) for a in (problem.X, problem.z, problem.y, problem.v))
    draw = torch.Generator().manual_seed(0)
    shape = (problem.d, problem.d)
    if factored:
        K = (0.1 * torch.randn(shape, generator=draw, dtype=torch.float64)).requires_grad_(True)
        parameters = [K, torch.zeros(shape, dtype=torch.float64, requires_grad=True)]
    else:
        parameters = [torch.rand(shape, generator=draw, dtype=torch.float64).sub_(0.5).requires_grad_(True)]
    for _ in range(steps):
        W = parameters[0] @ parameters[1].T if factored else parameters[0]
        attention = torch.softmax((X @ W @ z[:, :, None])[..., 0], -1)
        output = (attention[..., None] * X).sum(1)
        loss = torch.nn.functional.softplus(-y * (output @ v)).mean()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g in zip(parameters, gradients, strict=True):
                p -= 0.1 * g / (g.norm() + 2.2e-16)
    with torch.no_grad():
        W = parameters[0] @ parameters[1].T if factored else parameters[0]
        return (X @ W @ z[:, :, None])[..., 0].argmax(-1).numpy()


def plain_svm(problem: data.Problem, tokens: np.ndarray, norm: str) -> float:
    """One cvxpy constraint for each token."""
    W = cp.Variable((problem.d, problem.d))
    constraints = [
        (problem.X[i, tokens[i]] - problem.X[i, t]) @ W @ problem.z[i] >= 1
        for i in range(problem.n)
        for t in range(problem.T)
        if t != tokens[i]
    ]
    objective = cp.norm(W, "fro") if norm == "fro" else cp.normNuc(W)
    return float(cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL))


def timed(call, *args):
    """Return the result and the processor seconds it took: other programs on the machine do not count."""
    start = time.process_time()
    result = call(*args)
    return result, time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    problem = data.random_problem(N, T, D, batch=RUNS)
    rule = dynamics.normalized(0.1)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mine = {"training": 0.0, "fro": 0.0, "nuc": 0.0}
    for kind in (attention.Direct, attention.Factored):
        run, seconds = timed(dynamics.train, problem, kind.random(problem), rule, STEPS)
        mine["training"] += seconds
        for norm in ("fro", "nuc"):
            mine[norm] += timed(svm.attention_svm, problem, run.selected, norm)[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    loop = {"training": 0.0, "fro": 0.0, "nuc": 0.0}
    for b in range(SAMPLE):
        for factored in (False, True):
            tokens, seconds = timed(plain_loop, problem[b], factored, STEPS)
            loop["training"] += seconds
            for norm in ("fro", "nuc"):
                loop[norm] += timed(plain_svm, problem[b], tokens, norm)[1]
    loop = {k: v * RUNS / SAMPLE for k, v in loop.items()}

    print(f"{'':10}{'loop (s)':>12}{'svmlib (s)':>12}{'ratio':>8}")
    for part in ("training", "fro", "nuc"):
        print(f"{part:10}{loop[part]:12.1f}{mine[part]:12.3f}{loop[part] / mine[part]:8.0f}")
    both = sum(loop.values()), sum(mine.values())
    print(f"{'together':10}{both[0]:12.1f}{both[1]:12.3f}{both[0] / both[1]:8.0f}")
    print(f"memory: peak {peak / 1024:.0f} MB, of which {base / 1024:.0f} MB before the experiment")


if __name__ == "__main__":
    main()
