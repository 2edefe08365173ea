r"""What the theory says of the first steps on real text, from counts alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from svmlib.arrays import FloatArray, IntArray, check_integer
from svmlib.errors import DataError
from svmlib.scansnap import TokenProcess
from svmlib.text import Cooccurrence
from svmlib.text.cooccurrence import as_tokens

__all__ = ["expected_velocity", "initial_velocity", "measured_process"]

BLOCK = 1 << 19  # pairs of positions in memory at a time


def measured_process(cooc: Cooccurrence, query: int | None = None) -> TokenProcess:
    """Turn measured counts into sequence classes of the theory.

    Parameters
    ----------
    cooc : Cooccurrence
        Counts.
    query : int, optional
        Take the classes of this query token alone; by default those of all queries.

    Returns
    -------
    TokenProcess
        A class for each pair of a query and a next token, in the order of ``cooc``, with the frequencies of
        tokens before it, and as probability its share of the windows.

    Raises
    ------
    DataError
        If the query is none of ``cooc``, or two queries share a next token: the theory wants another next
        token for each class.
    """
    rows = np.arange(len(cooc.queries)) if query is None else np.flatnonzero(cooc.queries == query)
    if not len(rows):
        raise DataError(f"{query!r} is none of the queries, {cooc.queries.tolist()}.")
    q, n = np.nonzero(cooc.windows[rows] > 0)
    q = rows[q]
    label = cooc.following[q, n]
    if len(np.unique(label)) < len(label):
        raise DataError(
            "Several queries have the same next token, but a TokenProcess wants another one for each class. "
            f"Name one query of {cooc.queries.tolist()}."
        )
    return TokenProcess(cooc.shares[q, n], cooc.queries[q], label, cooc.windows[q, n])


def expected_velocity(cooc: Cooccurrence) -> FloatArray:
    r"""Compute the direction in which attention logits start, from counts alone.

    Classes c = (q, n) are those of ``cooc``, with :math:`P(c)` their shares of the windows, and
    :math:`f_c=s_c/\|s_c\|` with :math:`s_{cl}=\mathbb P(l\mid c)`, attention at :math:`Z=0`. A decoder that
    starts at 0 predicts all V tokens alike, so after a time t of plain gradients it is

    .. math:: D=\eta_Dt\sum_cP(c)\,f_c\bigl(e_{n(c)}-\tfrac1V\mathbf 1\bigr)^\top

    to first order. What it sends down, :math:`D(e_{n(c)}-\frac1V\mathbf 1)`, is :math:`\eta_Dt\,g_c` with

    .. math:: g_c=\sum_{c'}P(c')\bigl(\mathbb 1[n(c')=n(c)]-\tfrac1V\bigr)f_{c'},

    and :math:`\dot z_q=\eta_Z\eta_Dt` times the result,

    .. math:: \sum_{c:\,q(c)=q}P(c)\,\mathrm{diag}(f_c)(I-f_cf_c^\top)\,g_c .

    So :math:`z_q=\frac12\eta_Z\eta_Dt^2` times the result while decoder and attention are near 0.

    Parameters
    ----------
    cooc : Cooccurrence
        Counts.

    Returns
    -------
    ndarray, shape (Q, V)
        Velocities; rows have sum 0, types that never occur with a query have 0.

    Notes
    -----
    *Scan and Snap* (2023), Lemma 1 with Lemma 2, at :math:`D=Z=0`. There each class has a next token of its
    own; here queries may share one, and the decoder, which does not see the query, learns from both. It is
    the limit of long sequences, in which all windows of a class are alike; windows of a few dozen tokens are
    not, and attention then also moves for what tells one window of a class from another:
    :func:`initial_velocity` is what becomes of it.
    """
    q, n = np.nonzero(cooc.windows > 0)
    f = cooc.shares[q, n]
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    prior = cooc.windows[q, n] / cooc.windows.sum()
    labels, label = np.unique(cooc.following[q, n], return_inverse=True)
    by_label = np.zeros((len(labels), cooc.vocabulary))
    np.add.at(by_label, label, prior[:, None] * f)
    g = by_label[label] - by_label.sum(0) / cooc.vocabulary
    push = prior[:, None] * f * (g - (f * g).sum(1, keepdims=True) * f)
    out = np.zeros((len(cooc.queries), cooc.vocabulary))
    np.add.at(out, q, push)
    return out


def initial_velocity(
    ids: ArrayLike, queries: ArrayLike, *, length: int, vocabulary: int, stride: int | None = None
) -> FloatArray:
    r"""Compute the direction in which the layer's attention logits start on a text, its windows as they are.

    As :func:`expected_velocity`, but every position i of a window is a class of its own, with the feature
    :math:`f_i` of the few tokens before it, and no query or next token is left out of the decoder:

    .. math:: D\propto\frac1W\sum_if_i\bigl(e_{n(i)}-\tfrac1V\mathbf 1\bigr)^\top,\qquad
       \frac1W\sum_{i:\,q(i)=q}\mathrm{diag}(f_i)(I-f_if_i^\top)\,De_{n(i)} .

    This is exact for a :class:`~svmlib.language.ScanLayer` with D = Z = 0, trained on all these windows.

    Parameters
    ----------
    ids : array_like of int, shape (words,)
        The stream of tokens.
    queries : array_like of int, shape (Q,)
        Query tokens.
    length : int
        Tokens of a window, at least 2; its position t reads the t tokens before it.
    vocabulary : int
        Number V of token types; needs memory for V x V numbers.
    stride : int, optional
        Tokens from the start of a window to that of the next; by default ``length``, windows side by side.
        Training draws starts at random: 1 is its mean, and takes ``length`` times as long.

    Returns
    -------
    ndarray, shape (Q, V)
        Velocities; rows have sum 0.

    Raises
    ------
    ShapeError
        If a size is no whole number or too small, or ids or queries are not lists.
    DataError
        If tokens lie outside the vocabulary, or there is not one window with a next token.

    Notes
    -----
    The gradients are those of *Scan and Snap* (2023), Lemma 1, for single sequences.
    """
    V, T = check_integer(vocabulary, "vocabulary", 2), check_integer(length, "length", 2)
    stream, asked = as_tokens(ids, "ids", V), as_tokens(queries, "queries", V)
    apart = T if stride is None else check_integer(stride, "stride")
    if len(stream) <= T:
        raise DataError(f"ids has {len(stream)} tokens, but one window of {T} and its next token are needed.")
    windows = np.lib.stride_tricks.sliding_window_view(stream, T + 1)[::apart]
    total = len(windows) * (T - 1)
    D = np.zeros((V, V))
    for x, n, size, _ in _positions(windows):
        t, tau = np.tril_indices(T, -1)
        np.add.at(D, (x[:, tau], n[:, t]), 1 / size[:, t])
    D -= D.mean(1, keepdims=True)
    D /= total
    rows, place = np.unique(asked, return_inverse=True)
    row = np.full(V, -1)
    row[rows] = np.arange(len(rows))
    out = np.zeros((len(rows), V))
    for x, n, size, f in _positions(windows):
        b, t = np.nonzero(row[x] >= 0)
        b, t = b[t > 0], t[t > 0]
        f, size = f[b, t], size[b, t, None]
        g = D[x[b], n[b, t, None]] * (np.arange(T) < t[:, None])
        push = (g - (g.sum(1, keepdims=True) / size) * f) / size
        np.add.at(out, (row[x[b, t]][:, None], x[b]), push)
    return np.asarray(out[place] / total)


def _positions(windows: IntArray) -> Iterator[tuple[IntArray, IntArray, FloatArray, FloatArray]]:
    """Tokens (B, T), next tokens, norms (B, T) of the counts before, features (B, T, T) by token."""
    T = windows.shape[1] - 1
    before = np.tri(T, k=-1)
    step = max(1, BLOCK // T**2)
    for k in range(0, len(windows), step):
        x, n = windows[k : k + step, :-1], windows[k : k + step, 1:]
        same = (x[:, :, None] == x[:, None, :]).astype(float)
        held = (before @ same) * before  # how often the token at tau stands before t, for tau < t
        size = np.sqrt(held.sum(-1))
        size[:, 0] = 1.0  # nothing is read there
        yield x, n, size, held / size[:, :, None]
