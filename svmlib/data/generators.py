"""Ways to make problems: the papers' random data, their planar instances, instances with a known solution."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, as_float, check_integer, torch_normals
from svmlib.errors import DataError, ShapeError

from .problem import Problem

__all__ = ["planar", "planted_problem", "prompt_problem", "random_problem", "self_attention"]


def self_attention(X: ArrayLike, y: ArrayLike, v: ArrayLike | None = None, **rest: Any) -> Problem:
    """Problem whose query is the first token of each sequence, z_i = x_i1.

    Parameters
    ----------
    X, y, v
        As for :class:`Problem`; ``head`` and ``mask`` too.
    **rest : dict
        Passed on to :class:`Problem`.

    Returns
    -------
    Problem
        The self-attention problem.
    """
    tokens = as_float(X, "X", min_ndim=3, finite=False)
    if tokens.shape[-2] < 1:
        raise ShapeError(f"X must hold at least one token in each sequence, got shape {tokens.shape}.")
    if rest.get("mask") is not None and not as_float(rest["mask"], "mask", min_ndim=2)[..., 0].all():
        raise DataError("mask hides a first token, which is the query in self-attention: leave it visible.")
    return Problem(tokens, tokens[..., 0, :], y, v, **rest)  # type: ignore[arg-type]


def prompt_problem(
    keys: ArrayLike, scores: ArrayLike, y: ArrayLike | None = None, mask: ArrayLike | None = None
) -> Problem:
    r"""Problem of one trained vector p that all sequences share: logits are :math:`k_{it}^\top p`.

    The query is the number 1, so that W is the column p, shape (e, 1). Keys and scores are chosen
    independently: the values are the one-dimensional :math:`x_{it}=y_i\gamma_{it}`, read by the head v = 1
    (*Max-Margin Token Selection* 2023, section 2).

    Parameters
    ----------
    keys : array_like, shape (..., n, T, e)
        Keys.
    scores : array_like, shape (..., n, T)
        Token scores :math:`\gamma_{it}`.
    y : array_like, shape (..., n), optional
        Labels, +1 by default. They do not matter to the training of p, since scores include them.
    mask : array_like of bool, shape (..., n, T), optional
        True where there is a token.

    Returns
    -------
    Problem
        With ``key_dim`` e and ``query_dim`` 1.

    Raises
    ------
    ShapeError
        If the shapes do not fit.
    DataError
        If values are not finite or labels are not ±1.

    Examples
    --------
    >>> prompt_problem(keys=[[[0.0, 1.0], [1.0, 0.0]]], scores=[[1.0, 0.5]]).optimal
    array([0])
    """
    k = as_float(keys, "keys", min_ndim=3, finite=False)
    n, T = k.shape[-3:-1]
    gamma = as_float(scores, "scores", last=(n, T), meaning=f"n and T of keys, which have shape {k.shape}")
    label = np.ones(n) if y is None else as_float(y, "y", last=(n,), meaning="n of keys")
    return Problem(
        (label[..., None] * gamma)[..., None],
        np.ones((n, 1)),
        label,
        np.ones(1),
        mask=mask,  # type: ignore[arg-type]
        keys=k,
    )


def _checked_sizes(
    n: int, T: int, d: int, batch: int | None, seed: int
) -> tuple[int, int, int, int | None, int]:
    n, T, d = (check_integer(value, name) for value, name in ((n, "n"), (T, "T"), (d, "d")))
    count = None if batch is None else check_integer(batch, "batch")
    return n, T, d, count, check_integer(seed, "seed", 0)


def _unit(a: FloatArray) -> FloatArray:
    return np.asarray(a / np.linalg.norm(a, axis=-1, keepdims=True))


def random_problem(
    n: int, T: int, d: int, batch: int | None = None, seed: int = 0, self_attention: bool = False
) -> Problem:
    r"""Random data of the papers: a unit head, fair labels, tokens and queries uniform on the sphere.

    Element b of a batch has its own seed, ``seed + b``, and draws v, y, X, z in this order in float32
    from torch's generator, as the papers' experiments do, so seeds name the same instances (up to one
    rounding in float32, by which two ways of normalising a vector differ).

    Parameters
    ----------
    n, T, d : int
        Sequences, tokens a sequence, dimension.
    batch : int, optional
        Number of instances; None gives one problem without a batch axis.
    seed : int
        Seed of the first instance.
    self_attention : bool
        Whether the query is the first token rather than a draw of its own.

    Returns
    -------
    Problem
        With linear head.

    Raises
    ------
    ShapeError
        If a size is not a positive integer.

    Examples
    --------
    >>> random_problem(n=6, T=8, d=10, batch=100)
    Problem(n=6, T=8, d=10, batch (100,), linear head)
    """
    n, T, d, batch, seed = _checked_sizes(n, T, d, batch, seed)
    X, z, y, v = [], [], [], []
    for b in range(1 if batch is None else batch):
        drawn = torch_normals(seed + b, (d,), (n,), (n, T, d), (n, d))
        head, label, tokens, query = drawn  # normalised in float32 too, before they are widened
        v.append(_unit(head))
        y.append(np.where(label < 0, -1.0, 1.0))
        X.append(_unit(tokens))
        z.append(X[-1][:, 0] if self_attention else _unit(query))
    arrays = [np.stack(a) if batch is not None else a[0] for a in (X, z, y, v)]
    return Problem(*arrays)


def planar(which: int) -> Problem:
    r"""Either of the two planar instances that the papers draw: n = 2 sequences in d = 2 dimensions.

    Parameters
    ----------
    which : int
        1: T = 3 tokens each, two clouds beside each other. 2: T = 5, one good token in front of a cloud each.

    Returns
    -------
    Problem
        With linear head and labels +1.

    Raises
    ------
    DataError
        If ``which`` is neither 1 nor 2.
    """
    if isinstance(which, bool) or not isinstance(which, int) or which not in (1, 2):
        raise DataError(f"which must be 1 or 2, got {which!r}.")
    v, X, z = torch_normals((1, 3)[which - 1], (2,), (2, (3, 5)[which - 1], 2), (2, 2))
    if which == 1:
        X = np.float32(0.3) * X + np.array([[[-1.0, 0.0]], [[1.0, 0.0]]], dtype=np.float32)
    else:
        X = np.float32(0.5) * X + np.array([-1.0, 0.0], dtype=np.float32)
        X[:, 0] = [[1.0, 0.5], [1.0, -0.5]]
    return Problem(X, _unit(z), np.ones(2), _unit(v))


def planted_problem(
    n: int, T: int, d: int, batch: int | None = None, seed: int = 0
) -> tuple[Problem, FloatArray]:
    r"""Instance whose SVM solution is known in closed form, for the Frobenius norm.

    The queries are orthogonal, and so are the differences :math:`\delta_{it}` between the optimal token and
    the others of one sequence. Then all constraints of the SVM are orthogonal to each other and

    .. math:: W^{mm}=\sum_{i,t}\frac{\delta_{it}z_i^\top}{\|\delta_{it}\|^2\|z_i\|^2}.

    Every token is a support token, and all tokens but the optimal one have score 0.

    Parameters
    ----------
    n, T, d : int
        Sizes, with :math:`d\ge n` and :math:`d\ge T-1`.
    batch : int, optional
        Number of instances; None gives one problem without a batch axis.
    seed : int
        Seed.

    Returns
    -------
    problem : Problem
        The optimal token stands at a random position.
    W : ndarray, shape (..., d, d)
        The solution.

    Raises
    ------
    ShapeError
        If d is too small.
    """
    n, T, d, batch, seed = _checked_sizes(n, T, d, batch, seed)
    if d < max(n, T - 1):
        raise ShapeError(f"planted_problem needs d >= max(n, T-1) = {max(n, T - 1)}, got d={d}.")
    made = [_planted(n, T, d, np.random.default_rng([seed, b])) for b in range(batch or 1)]
    arrays = [np.stack(a) if batch is not None else a[0] for a in zip(*made, strict=True)]
    return Problem(*arrays[:4]), arrays[4]


def _planted(n: int, T: int, d: int, rng: np.random.Generator) -> tuple[FloatArray, ...]:
    z = np.linalg.qr(rng.normal(size=(d, d)))[0][:n] * rng.uniform(0.5, 2.0, (n, 1))
    v = _unit(rng.normal(size=d))
    y = rng.choice([-1.0, 1.0], n)
    X, W = np.empty((n, T, d)), np.zeros((d, d))
    for i in range(n):
        # Orthogonal directions, turned so that each of them has the same positive inner product with
        # y v: all differences then carry the score 1, and every token but the optimal one scores 0.
        delta = np.linalg.qr(rng.normal(size=(d, d)))[0][: T - 1]
        if T > 1:
            basis = np.linalg.qr(np.c_[y[i] * v, rng.normal(size=(d, d - 1))])[0]
            basis[:, 0] = y[i] * v
            even = (
                np.linalg.qr(np.c_[np.ones(T - 1), rng.normal(size=(T - 1, T - 2))])[0]
                if T > 2
                else np.ones((1, 1))
            )
            even[:, 0] = 1.0 / np.sqrt(T - 1)
            delta = even @ basis[:, : T - 1].T * np.sqrt(T - 1)
        best = rng.integers(T)
        anchor = rng.normal(size=d)
        anchor += (1.0 - y[i] * anchor @ v) * y[i] * v  # score of the optimal token: 1
        others = np.delete(np.arange(T), best)
        X[i, best] = anchor
        X[i, others] = anchor - delta
        W += sum((np.outer(r, z[i]) / (r @ r) for r in delta), np.zeros((d, d))) / (z[i] @ z[i])
    return X, z, y, v, W
