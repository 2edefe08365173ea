"""The data of one attention layer: one frozen record with its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, check_integer, frozen
from svmlib.compare import token_index
from svmlib.errors import DataError, ShapeError

__all__ = ["Problem", "check_problem"]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    r"""Sequences with their queries and labels, and the head that reads the attention output.

    Attention weighs the tokens by :math:`s_i=\mathbb S(K_iWz_i)`, where the rows of :math:`K_i` are the keys:
    the tokens themselves unless ``keys`` are given. So W has shape (e, q): the width of the keys times that
    of the queries.

    All arrays may carry the same leading batch axes, and one without them is shared by the batch.

    Parameters
    ----------
    X : array_like, shape (..., n, T, d)
        Tokens: n sequences of T tokens in d dimensions.
    z : array_like, shape (..., n, q)
        Queries, of any width q; q = d where they are tokens. With q = 1 and z = 1 the matrix W is one column,
        the vector p of *Max-Margin Token Selection*.
    y : array_like, shape (..., n)
        Labels, each +1 or -1.
    v : array_like, shape (..., d), optional
        Linear head :math:`u\mapsto v^\top u`.
    head : callable, optional
        Any other head: maps tensors (..., d) to (...), see :mod:`svmlib.attention`. Exclusive with ``v``.
        A head made there may have parameters with the same batch axes, one set for every instance; any other
        callable is shared by the batch.
    mask : array_like of bool, shape (..., n, T), optional
        True where there is a token, for sequences of unequal length. Masked entries of X are set to 0.
    keys : array_like, shape (..., n, T, e), optional
        What the logits read, where that differs from the tokens; X by default. Masked entries are set to 0.

    Raises
    ------
    ShapeError
        If shapes do not fit, or a size is 0.
    DataError
        If values are not finite, labels are not ±1, a sequence has no token, or there are two heads.

    Examples
    --------
    >>> p = Problem(X=[[[0.0, 1.0], [1.0, 0.0]]], z=[[1.0, 0.0]], y=[1], v=[0.0, 2.0])
    >>> p.scores
    array([[2., 0.]])
    >>> p.optimal
    array([0])
    """

    X: FloatArray
    z: FloatArray
    y: FloatArray
    v: FloatArray | None = None
    head: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    mask: BoolArray | None = field(default=None, kw_only=True)
    keys: Any = field(default=None, kw_only=True)  # an array once the problem is made

    def __post_init__(self) -> None:
        x = as_float(self.X, "X", min_ndim=3, finite=False)
        n, T, d = x.shape[-3:]
        if min(n, T, d) < 1:
            raise ShapeError(f"X must have shape (..., n, T, d) with n, T, d >= 1, got {x.shape}.")
        z = as_float(self.z, "z", last=(n, None), meaning=f"n of X, which has shape {x.shape}")
        y = as_float(self.y, "y", last=(n,), meaning=f"n of X, which has shape {x.shape}")
        if not np.isin(y, (-1.0, 1.0)).all():
            raise DataError(f"y must hold labels +1 and -1, got the values {np.unique(y)[:5].tolist()}.")
        parts: dict[str, tuple[Any, int]] = {"X": (x, 3), "z": (z, 2), "y": (y, 1)}
        if self.v is not None:
            if self.head is not None:
                raise DataError("Give either v (a linear head) or head (any callable), not both.")
            parts["v"] = (
                as_float(self.v, "v", last=(d,), meaning=f"d of X, which has shape {x.shape}"),
                1,
            )
        elif self.head is not None and not callable(self.head):
            raise DataError(f"head must be callable, (..., d) -> (...), got {type(self.head).__name__}.")
        if self.keys is not None:
            meaning = f"n and T of X, which has shape {x.shape}"
            parts["keys"] = (as_float(self.keys, "keys", last=(n, T, None), finite=False, meaning=meaning), 3)
        for name in ("z", "keys"):
            if name in parts and not parts[name][0].shape[-1]:
                raise ShapeError(f"{name} must have at least one column, got shape {parts[name][0].shape}.")
        if self.mask is not None:
            parts["mask"] = (self._checked_mask(self.mask, n, T), 2)
        leads = {name: a.shape[: a.ndim - own] for name, (a, own) in parts.items()}
        batch = _batch_of(leads | _head_batch(self.head, d))
        full = {k: np.broadcast_to(a, batch + a.shape[a.ndim - own :]) for k, (a, own) in parts.items()}
        for name in ("X", "keys"):
            if name in full:
                if "mask" in full:
                    full[name] = np.where(full["mask"][..., None], full[name], 0.0)
                as_float(full[name], name)
        for name in ("X", "keys", "z", "v"):
            _check_scale(full.get(name), name)
        for name, value in full.items():
            object.__setattr__(self, name, frozen(value))
        if self.keys is None:
            object.__setattr__(self, "keys", self.X)
        head = _mapped_head(self.head, lambda a, own: np.broadcast_to(a, batch + a.shape[a.ndim - own :]))
        object.__setattr__(self, "head", head)

    @staticmethod
    def _checked_mask(mask: ArrayLike, n: int, T: int) -> BoolArray:
        flags = as_float(mask, "mask", last=(n, T))
        if not np.isin(flags, (0.0, 1.0)).all():
            raise DataError("mask must be boolean: True where there is a token.")
        if not flags.any(axis=-1).all():
            raise DataError("mask leaves a sequence without any token; every sequence needs at least one.")
        return flags.astype(bool)

    @property
    def n(self) -> int:
        """Number of sequences."""
        return int(self.X.shape[-3])

    @property
    def T(self) -> int:
        """Number of tokens of a sequence."""
        return int(self.X.shape[-2])

    @property
    def d(self) -> int:
        """Dimension of a token."""
        return int(self.X.shape[-1])

    @property
    def key_dim(self) -> int:
        """Width e of a key: number of rows of W; d unless keys were given."""
        return int(self.keys.shape[-1])

    @property
    def query_dim(self) -> int:
        """Width q of a query: number of columns of W."""
        return int(self.z.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes, () for a single problem."""
        return tuple(self.X.shape[:-3])

    @property
    def visible(self) -> BoolArray:
        """(..., n, T) True where there is a token."""
        return np.ones(self.X.shape[:-1], dtype=bool) if self.mask is None else self.mask

    @property
    def scores(self) -> FloatArray:
        r"""(..., n, T) token scores :math:`\gamma_{it}=y_iv^\top x_{it}`; minus infinity at masked tokens.

        Raises
        ------
        DataError
            If the head is not linear: a token then has no fixed score.
        """
        if self.v is None:
            raise DataError(
                "Token scores need a linear head v; this problem has none. Pass v= to Problem, name the "
                "selected tokens yourself (tokens=), or ask attention.best_attention what its head is after."
            )
        gamma = self.y[..., None] * np.einsum("...ntd,...d->...nt", self.X, self.v)
        return np.where(self.visible, gamma, -np.inf)

    @property
    def optimal(self) -> IntArray:
        """(..., n) best-scored token of each sequence, the first one in a tie (see ``tied``)."""
        return np.asarray(self.scores.argmax(-1), dtype=np.int64)

    @property
    def tied(self) -> BoolArray:
        """(..., n) whether another token shares the best score up to round-off: the theory excludes that."""
        gamma = self.scores
        best = gamma.max(-1, keepdims=True)
        scale = np.abs(np.where(np.isfinite(gamma), gamma, 0.0)).max(-1, keepdims=True)
        return np.asarray((gamma >= best - 1e-14 * scale).sum(-1) > 1)

    def differences(self, tokens: ArrayLike | None = None) -> FloatArray:
        r"""(..., n, T, e) differences :math:`k_{i\alpha_i}-k_{it}` of keys; 0 at masked tokens.

        Parameters
        ----------
        tokens : array_like of int, shape (..., n), optional
            Selected tokens :math:`\alpha`; the optimal tokens by default.

        Returns
        -------
        ndarray, shape (..., n, T, e)
            Differences, exact where keys are near each other.
        """
        index = self.checked_tokens(tokens)
        delta = np.take_along_axis(self.keys, index[..., None, None], axis=-2) - self.keys
        return np.where(self.visible[..., None], delta, 0.0)

    def checked_tokens(self, tokens: ArrayLike | None = None) -> IntArray:
        """Check selected tokens and broadcast them to the batch.

        Parameters
        ----------
        tokens : array_like of int, shape (..., n), optional
            Positions; the optimal tokens by default.

        Returns
        -------
        ndarray of int, shape (..., n)
            Positions for every problem of the batch.

        Raises
        ------
        ShapeError
            If the positions do not fit.
        DataError
            If a masked token is selected.
        """
        index = self.optimal if tokens is None else token_index(tokens, self.X.shape[:-1])
        if self.mask is not None and not np.take_along_axis(self.mask, index[..., None], -1).all():
            raise DataError("tokens selects a masked position; choose tokens that the mask leaves visible.")
        return index

    def __len__(self) -> int:
        """Length of the first batch axis."""
        if not self.batch_shape:
            raise ShapeError("This problem has no batch axes, so it has no length.")
        return self.batch_shape[0]

    def __getitem__(self, key: Any) -> Problem:
        """Pick from the batch: ``p[3]`` is one problem, ``p[:10]`` or ``p[flags]`` a smaller batch."""
        batch = self.batch_shape
        if not batch:
            raise ShapeError("This problem has no batch axes to index; its arrays are p.X, p.z, p.y, p.v.")
        try:
            picked = np.arange(int(np.prod(batch))).reshape(batch)[key]
        except IndexError as exc:  # stays an IndexError: iteration ends with it
            raise IndexError(f"The batch of this problem has shape {batch}: {exc}.") from None
        if np.ndim(picked) > len(batch):
            raise ShapeError(f"An index may only pick from the batch axes {batch}, not add to them.")

        def of(a: Any, own: int) -> Any:
            return a.reshape(-1, *a.shape[a.ndim - own :])[picked]

        return self._mapped(of)

    def _mapped(self, f: Callable[[Any, int], Any]) -> Problem:
        """Problem whose arrays are ``f(array, number of its own axes)``."""
        own = {"X": 3, "z": 2, "y": 1, "v": 1, "mask": 2, "keys": 3}
        arrays = {k: getattr(self, k) for k in own if getattr(self, k) is not None}
        if self.keys is self.X:
            del arrays["keys"]
        return Problem(**{k: f(a, own[k]) for k, a in arrays.items()}, head=_mapped_head(self.head, f))

    def flat(self) -> Problem:
        """Return the problem with all batch axes made into one, of length 1 for a single problem."""
        return self._mapped(lambda a, own: a.reshape(-1, *a.shape[a.ndim - own :]))

    def expand(self, *shape: int) -> Problem:
        """Repeat the problem along new batch axes in front: one copy for each of many starts.

        Parameters
        ----------
        *shape : int
            Lengths of the new axes.

        Returns
        -------
        Problem
            With batch shape ``shape + batch_shape``.

        Raises
        ------
        ShapeError
            If a length is not a positive integer.

        Examples
        --------
        >>> import svmlib as sv
        >>> sv.data.planar(1).expand(100)
        Problem(n=2, T=3, d=2, batch (100,), linear head)
        """
        new = tuple(check_integer(s, "Each length of shape") for s in shape)
        return self._mapped(lambda a, own: np.broadcast_to(a, new + a.shape))

    def __repr__(self) -> str:
        head = "linear head" if self.v is not None else "no head" if self.head is None else "head"
        batch = f", batch {self.batch_shape}" if self.batch_shape else ""
        mask = ", masked" if self.mask is not None else ""
        keys = "" if self.keys is self.X else f", keys of width {self.key_dim}"
        keys += "" if self.query_dim == self.key_dim else f", queries of width {self.query_dim}"
        return f"Problem(n={self.n}, T={self.T}, d={self.d}{batch}, {head}{mask}{keys})"


def _batch_of(leads: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*leads.values())
    except ValueError:
        found = ", ".join(f"{name} has {shape}" for name, shape in leads.items())
        raise ShapeError(f"The leading (batch) axes do not fit: {found}.") from None


@runtime_checkable
class _InstanceHead(Protocol):
    """A head that may have parameters of its own for every instance, as those of ``svmlib.attention``."""

    batch_shape: tuple[int, ...]
    width: int

    def mapped(self, f: Callable[[Any, int], Any]) -> Any: ...


def _head_batch(head: Any, d: int) -> dict[str, tuple[int, ...]]:
    """Batch axes of a head's parameters; nothing where all instances share them."""
    if not isinstance(head, _InstanceHead):
        return {}
    if head.width != d:
        raise ShapeError(f"head reads outputs of width {head.width}, but the tokens of X have width d = {d}.")
    return {"head": head.batch_shape}


def _mapped_head(head: Any, f: Callable[[Any, int], Any]) -> Any:
    """Head whose parameters for every instance are ``f(array, number of its own axes)``."""
    return head.mapped(f) if isinstance(head, _InstanceHead) and head.batch_shape else head


def _check_scale(a: FloatArray | None, name: str) -> None:
    # products of three such numbers and their squares stay within float64
    top = 0.0 if a is None else float(np.abs(a).max(initial=0.0))
    if top and not 1e-60 < top < 1e60:
        raise DataError(
            f"The largest entry of {name} is {top:.1e}; it must lie between 1e-60 and 1e60. Rescale the data."
        )


def check_problem(problem: Any) -> Problem:
    """Check that an argument is a problem.

    Parameters
    ----------
    problem : Problem
        Anything.

    Returns
    -------
    Problem
        The same object.

    Raises
    ------
    DataError
        If it is something else.
    """
    if not isinstance(problem, Problem):
        raise DataError(
            f"problem must be a svmlib.data.Problem, got {type(problem).__name__}: make one with "
            "Problem(X, z, y, v)."
        )
    return problem
