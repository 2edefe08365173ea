"""Training in extended precision by the textbook formulas: slow, and independent of svmlib's engine.

The softmax gradient is written as everybody writes it, s_t (gamma_t - s' gamma); with some hundred digits
its cancellation is harmless, so these runs say what float64 should have found.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np


def _matrix(a):
    return [[mp.mpf(float(x)) for x in row] for row in np.asarray(a)]


def _dot(a, b):
    return mp.fdot(zip(a, b, strict=True))


def _columns(A):
    return list(zip(*A, strict=True))


def _product(A, B):
    columns = _columns(B)
    return [[_dot(row, column) for column in columns] for row in A]


SLOPES = {
    "logistic": lambda f: -1 / (1 + mp.exp(f)),
    "exponential": lambda f: -mp.exp(-f),
    "linear": lambda f: -1,
}


def gradient(X, z, y, v, W, loss="logistic"):
    """Gradient of the mean loss with respect to W, lists of mpf in and out."""
    n, d = len(X), len(z[0])
    G = [[mp.mpf(0)] * d for _ in range(d)]
    for tokens, query, label in zip(X, z, y, strict=True):
        mapped = [_dot(row, query) for row in W]
        a = [_dot(x, mapped) for x in tokens]
        top = max(a)
        e = [mp.exp(t - top) for t in a]
        s = [t / mp.fsum(e) for t in e]
        gamma = [label * _dot(v, x) for x in tokens]
        f = _dot(s, gamma)
        c = [SLOPES[loss](f) * st * (g - f) / n for st, g in zip(s, gamma, strict=True)]
        rows = [_dot(c, column) for column in _columns(tokens)]
        for i in range(d):
            for j in range(d):
                G[i][j] += rows[i] * query[j]
    return G


def _norm(A):
    return mp.sqrt(mp.fsum(x * x for row in A for x in row))


def _moved(A, G, rate):
    size = _norm(G)
    return [[a - rate * g / size for a, g in zip(ra, rg, strict=True)] for ra, rg in zip(A, G, strict=True)]


def _shaken(A, jitter, rng):
    return [[x * (1 + mp.mpf(jitter * rng.choice([-1, 1]))) for x in row] for row in A]


def _data(problem):
    X = [_matrix(x) for x in problem.X]
    return X, _matrix(problem.z), [mp.mpf(float(t)) for t in problem.y], [mp.mpf(float(t)) for t in problem.v]


def direct(problem, W, rate, steps, digits, loss="logistic"):
    """Normalised gradient descent on W; returns the last iterate rounded to float64."""
    with mp.workdps(digits):
        data, weights = _data(problem), _matrix(W)
        for _ in range(steps):
            weights = _moved(weights, gradient(*data, weights, loss), mp.mpf(float(rate)))
        return np.array([[float(x) for x in row] for row in weights])


def factored(problem, K, Q, rate, record, digits, jitter=0.0):
    """Normalised gradient descent on (K, Q), each by its own norm; K Q' at the recorded steps.

    ``jitter`` multiplies every entry by 1 +- jitter after every step, as rounding would: comparing with a
    run without it shows for how long the dynamics itself lets an agreement to round-off last.
    """
    out, rng = [], np.random.default_rng(0)
    with mp.workdps(digits):
        data, K, Q = _data(problem), _matrix(K), _matrix(Q)
        for step in range(max(record) + 1):
            W = _product(K, _columns(Q))
            if step in record:
                out.append([[float(x) for x in row] for row in W])
            G = gradient(*data, W)
            GK, GQ = _product(G, Q), _product(_columns(G), K)
            rate_mp = mp.mpf(float(rate))
            K, Q = (_moved(A, B, rate_mp) if _norm(B) > 0 else A for A, B in ((K, GK), (Q, GQ)))
            if jitter:
                K, Q = (_shaken(A, jitter, rng) for A in (K, Q))
    return np.array(out)
