r"""Sequence classes of *Scan and Snap*: what is drawn, from which class, and which tokens classes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import BoolArray, FloatArray, IntArray, as_float, check_integer, frozen
from svmlib.errors import DataError, ShapeError

__all__ = ["TokenProcess", "symmetric", "syn_medium", "syn_small"]


@dataclass(frozen=True, slots=True, eq=False)
class TokenProcess:
    r"""Sequence classes: each has a query token, a next token, and frequencies of its contextual tokens.

    A sequence of class c consists of contextual tokens drawn independently with probabilities
    :math:`P(l\mid c)`, then the query token of the class; the next token of the class is to be predicted.

    Parameters
    ----------
    P : array_like, shape (C, M)
        Frequencies of contextual tokens; rows are scaled to sum 1.
    query : array_like of int, shape (C,)
        Query token of each class; classes may share it.
    label : array_like of int, shape (C,)
        Next token of each class, another one for each.
    prior : array_like, shape (C,), optional
        Probabilities of the classes, uniform by default; scaled to sum 1.

    Raises
    ------
    ShapeError
        If shapes do not fit.
    DataError
        If a frequency is negative, a class has no contextual token, tokens lie outside the vocabulary, or two
        classes share their next token.

    Notes
    -----
    *Scan and Snap* (2023), section 3, with its simplification that the query is a function of the class.

    Examples
    --------
    >>> process = TokenProcess([[2, 1, 0, 0, 0], [2, 0, 1, 0, 0]], query=[3, 3], label=[3, 4])
    >>> process.common
    array([ True, False, False, False, False])
    """

    P: FloatArray
    query: IntArray
    label: IntArray
    prior: FloatArray = None  # type: ignore[assignment]
    queries: IntArray = field(init=False)
    """(Q,) query tokens, each once."""
    row: IntArray = field(init=False)
    """(C,) position of each class's query token in ``queries``."""

    if TYPE_CHECKING:  # lists come in, arrays are kept

        def __init__(
            self, P: ArrayLike, query: ArrayLike, label: ArrayLike, prior: ArrayLike | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        P = as_float(self.P, "P", ndim=2)
        C, M = P.shape
        if not C or not M:
            raise ShapeError(f"P must have shape (C, M) with C, M >= 1, got {P.shape}.")
        if (P < 0).any() or not P.any(1).all():
            raise DataError("P must hold frequencies: none negative, and a positive one in each row.")
        prior = np.ones(C) if self.prior is None else as_float(self.prior, "prior", ndim=1, last=(C,))
        if not (prior > 0).all():
            raise DataError("prior must be positive: leave out classes that do not occur.")
        query, label = (_tokens(getattr(self, name), name, C, M) for name in ("query", "label"))
        if len(np.unique(label)) < C:
            raise DataError(f"label must name another next token for each class, got {label.tolist()}.")
        queries, row = np.unique(query, return_inverse=True)
        values = (P / P.sum(1, keepdims=True), query, label, prior / prior.sum(), queries, row)
        for name, value in zip(("P", "query", "label", "prior", "queries", "row"), values, strict=True):
            object.__setattr__(self, name, frozen(np.asarray(value)))

    @property
    def C(self) -> int:
        """Number of classes."""
        return int(self.P.shape[0])

    @property
    def M(self) -> int:
        """Number of tokens in the vocabulary."""
        return int(self.P.shape[1])

    @property
    def common(self) -> BoolArray:
        """(M,) tokens of more than one class."""
        return np.asarray((self.P > 0).sum(0) > 1)

    @property
    def distinct(self) -> BoolArray:
        """(C, M) tokens of this class alone."""
        return np.asarray((self.P > 0) & ((self.P > 0).sum(0) == 1))

    def sequences(self, generator: np.random.Generator | int, size: int, T: int) -> tuple[IntArray, IntArray]:
        """Draw sequences, all at once.

        Parameters
        ----------
        generator : numpy.random.Generator or int
            Source of randomness; it moves on.
        size : int
            Number of sequences.
        T : int
            Number of contextual tokens of each; the query token comes on top.

        Returns
        -------
        classes : ndarray of int, shape (size,)
            Classes, which fix query and next token.
        tokens : ndarray of int, shape (size, T)
            Contextual tokens in their order.
        """
        count, length = check_integer(size, "size"), check_integer(T, "T")
        rng = np.random.default_rng(generator)
        classes = rng.choice(self.C, count, p=self.prior)
        edges = np.cumsum(self.P, 1)
        # one search for all classes: row c of the table lies in (c, c + 1]
        table = (edges / edges[:, -1:] + np.arange(self.C)[:, None]).ravel()
        drawn = classes[:, None] + rng.random((count, length))
        tokens = np.searchsorted(table, drawn, side="right") - classes[:, None] * self.M
        return np.asarray(classes), np.asarray(tokens)

    def sample(self, generator: np.random.Generator | int, size: int, T: int) -> tuple[IntArray, IntArray]:
        """Draw sequences as counts of their tokens: without positions, attention sees nothing else.

        Parameters
        ----------
        generator : numpy.random.Generator or int
            Source of randomness; it moves on.
        size : int
            Number of sequences.
        T : int
            Number of contextual tokens of each.

        Returns
        -------
        classes : ndarray of int, shape (size,)
            Classes.
        counts : ndarray of int, shape (size, M)
            How often each token occurs among the contextual ones.
        """
        classes, tokens = self.sequences(generator, size, T)
        cells = tokens + np.arange(len(classes))[:, None] * self.M
        flat = np.bincount(cells.ravel(), minlength=len(classes) * self.M)
        return classes, np.asarray(flat.reshape(len(classes), self.M))

    def __repr__(self) -> str:
        return (
            f"TokenProcess({self.C} {'class' if self.C == 1 else 'classes'}, {self.M} tokens, "
            f"{int(self.common.sum())} of them common, "
            f"{len(self.queries)} query tokens)"
        )


def _tokens(a: ArrayLike, name: str, C: int, M: int) -> IntArray:
    value = as_float(a, name, ndim=1, last=(C,), meaning="C, one for each row of P")
    if not np.isin(value, np.arange(M)).all():
        raise DataError(f"{name} must hold tokens 0..{M - 1}, got {value.tolist()}.")
    return value.astype(np.int64)


def syn_small() -> TokenProcess:
    """Make two classes with ten common tokens and ten distinct ones each, of rising frequency.

    Each class has a query token of its own. Tokens 0 to 9 are common, 10 to 19 and 20 to 29 distinct,
    30 and 31 queries, 32 and 33 next tokens.

    Returns
    -------
    TokenProcess
        The data of *Scan and Snap* (2023), figures 4 and 5.
    """
    P = np.zeros((2, 34))
    P[:, :10] = 1.0
    P[0, 10:20] = P[1, 20:30] = np.linspace(0.1, 1.0, 10)
    return TokenProcess(P, [30, 31], [32, 33])


def syn_medium(queries: int = 1, labels: int = 2, common: int = 10, distinct: int = 10) -> TokenProcess:
    """Make several query tokens with several next tokens each; common tokens occur in all classes.

    Frequencies within a class are as in :func:`syn_small`: 1 for each common token, evenly spaced from 0.1 to
    1 for its distinct ones.

    Parameters
    ----------
    queries : int
        Number of query tokens.
    labels : int
        Next tokens of each of them.
    common, distinct : int
        Number of common tokens, and of distinct tokens of each class.

    Returns
    -------
    TokenProcess
        The data of *Scan and Snap* (2023), figures 6, 11 and 12.
    """
    queries, labels = check_integer(queries, "queries"), check_integer(labels, "labels")
    common, distinct = check_integer(common, "common", 0), check_integer(distinct, "distinct")
    C, contextual = queries * labels, common + distinct * queries * labels
    P = np.zeros((C, contextual + queries + C))
    P[:, :common] = 1.0
    for c in range(C):
        first = common + distinct * c
        P[c, first : first + distinct] = np.linspace(0.1, 1.0, distinct)
    query = contextual + np.arange(C) // labels
    return TokenProcess(P, query, contextual + queries + np.arange(C))


def symmetric(
    classes: int, common: ArrayLike, distinct: ArrayLike, vocabulary: int | None = None
) -> TokenProcess:
    """Make classes that are alike: one query, the same common tokens, and as many distinct tokens each.

    Common tokens come first, then the distinct ones of class 0, of class 1 and so on, the query, and the next
    tokens.

    Parameters
    ----------
    classes : int
        Number of classes, C.
    common : array_like, shape (k,)
        Frequencies of the common tokens in each class.
    distinct : array_like, shape (j,)
        Frequencies of the distinct tokens of each class; frequencies are scaled to sum 1 together.
    vocabulary : int, optional
        Number of tokens M; tokens are added that never occur. By default just those needed.

    Returns
    -------
    TokenProcess
        The setting of *Scan and Snap* (2023), Corollary 2.

    Raises
    ------
    DataError
        If the vocabulary is too small for the tokens.

    Examples
    --------
    >>> symmetric(3, [0.5], [0.3, 0.2])
    TokenProcess(3 classes, 11 tokens, 1 of them common, 1 query tokens)
    """
    C = check_integer(classes, "classes")
    shared, own = as_float(common, "common", ndim=1), as_float(distinct, "distinct", ndim=1)
    contextual = shared.size + C * own.size
    M = contextual + 1 + C if vocabulary is None else check_integer(vocabulary, "vocabulary")
    if contextual + 1 + C > M:
        raise DataError(
            f"vocabulary is {M}, but {C} classes need {contextual + 1 + C} tokens: {contextual} contextual "
            f"ones, a query and {C} next tokens."
        )
    P = np.zeros((C, M))
    P[:, : shared.size] = shared
    for c in range(C):
        first = shared.size + own.size * c
        P[c, first : first + own.size] = own
    return TokenProcess(P, np.full(C, contextual), contextual + 1 + np.arange(C))
