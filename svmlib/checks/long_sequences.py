"""Claims of the chapter on long sequences: what attention without positions computes, and its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from svmlib import scansnap
from svmlib.arrays import FloatArray, IntArray
from svmlib.scansnap import TokenProcess

from .registry import Measured, claim

PAGE = "scan_snap/long_sequences"
PAPER = "Scan and Snap (2023)"


class Sequences(NamedTuple):
    """Token by token: nothing is counted beforehand."""

    tokens: IntArray  # (B, T) contextual tokens
    query: IntArray  # (B,) query tokens
    label: IntArray  # (B,) next tokens


def drawn(process: TokenProcess, size: int, T: int, seed: int) -> Sequences:
    """Draw sequences of a process.

    Parameters
    ----------
    process : TokenProcess
        Classes.
    size, T : int
        Number of sequences, and of contextual tokens of each.
    seed : int
        Seed.

    Returns
    -------
    Sequences
        Tokens in their order.
    """
    classes, tokens = process.sequences(np.random.default_rng(seed), size, T)
    return Sequences(tokens, process.query[classes], process.label[classes])


def read_positions(
    data: Sequences,
    D: Tensor,
    Z: Tensor,
    *,
    bias: FloatArray | None = None,
    unit: bool = True,
) -> tuple[Tensor, Tensor]:
    """Run the layer position by position, by one-hot vectors.

    Parameters
    ----------
    data : Sequences
        B sequences of T tokens.
    D, Z : Tensor, shape (M, M)
        Decoder, and attention logits with one row for each query token.
    bias : ndarray, shape (T,), optional
        Numbers that are added to the logits of the positions.
    unit : bool
        Whether attention is scaled to length one before it is decoded.

    Returns
    -------
    loss : Tensor
        Mean cross-entropy.
    read : Tensor, shape (B, M)
        What the decoder reads.
    """
    X = torch.nn.functional.one_hot(torch.tensor(data.tokens), len(D)).to(D.dtype)
    logits = (X @ Z[torch.tensor(data.query)][..., None])[..., 0]
    if bias is not None:
        logits = logits + torch.tensor(bias)
    read = (torch.softmax(logits, -1)[:, None] @ X)[:, 0]
    if unit:
        read = read / read.norm(dim=-1, keepdim=True)
    return torch.nn.functional.cross_entropy(read @ D, torch.tensor(data.label)), read


def random_process(C: int, L: int, seed: int, *, one_query: bool = True) -> TokenProcess:
    """Draw a process with L contextual tokens, C next tokens and one or C query tokens.

    Parameters
    ----------
    C, L : int
        Classes and contextual tokens.
    seed : int
        Seed.
    one_query : bool
        Whether all classes share their query token.

    Returns
    -------
    TokenProcess
        Frequencies uniform before scaling; about a third of them zero.
    """
    rng = np.random.default_rng(seed)
    P = rng.uniform(size=(C, L)) * (rng.uniform(size=(C, L)) < 0.67)
    P[:, 0] += 0.1
    Q = 1 if one_query else C
    query = L + (np.zeros(C, dtype=int) if one_query else np.arange(C))
    return TokenProcess(np.pad(P, ((0, 0), (0, Q + C + 1))), query, L + Q + np.arange(C))


def _random_weights(M: int, seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng([seed, 7])
    D, Z = (torch.tensor(rng.normal(size=(M, M)), requires_grad=True) for _ in range(2))
    return D, Z


def by_counts(counts: FloatArray, z: FloatArray) -> FloatArray:
    """Attention by token type from counts alone.

    Parameters
    ----------
    counts : ndarray, shape (..., M)
        How often each token occurs; any positive multiple will do.
    z : ndarray, shape (..., M)
        Attention logits of the query token.

    Returns
    -------
    ndarray, shape (..., M)
        Attention with sum 1.
    """
    mass = counts * np.exp(z - z.max(-1, keepdims=True))
    return np.asarray(mass / mass.sum(-1, keepdims=True))


@claim(
    "prop-long-types",
    title="Without positions the layer reads counts, up to a factor",
    kind="proposition",
    source=f"{PAPER}, section 3",
    chapter=PAGE,
    scope="4 classes, 12 contextual tokens, T = 30, Gaussian weights; layer by positions",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def types(trials: int) -> list[Measured]:
    """Compare the layer by positions with counts, with shuffled, repeated and other sequences."""
    apart: dict[str, list[float]] = {k: [] for k in ("counts", "shuffled", "repeated", "other", "bias")}
    for seed in range(trials):
        process = random_process(4, 12, seed)
        D, Z = (w.detach() for w in _random_weights(process.M, seed))
        data = drawn(process, 20, 30, seed)
        rng = np.random.default_rng([seed, 1])
        order = rng.permuted(np.tile(np.arange(30), (20, 1)), axis=1)
        shuffled = data._replace(tokens=np.take_along_axis(data.tokens, order, 1))
        counts = np.array([np.bincount(t, minlength=process.M) for t in data.tokens], dtype=float)
        read = read_positions(data, D, Z)[1].numpy()
        mine = scansnap.features(by_counts(counts, Z.numpy()[data.query]))
        apart["counts"].append(np.abs(mine - read).max())
        apart["shuffled"].append(np.abs(read_positions(shuffled, D, Z)[1].numpy() - read).max())
        thrice = data._replace(tokens=np.tile(data.tokens, (1, 3)))
        apart["repeated"].append(np.abs(read_positions(thrice, D, Z)[1].numpy() - read).max())
        # one token replaced by another: counts are no longer proportional
        other = data.tokens.copy()
        other[:, 0] = (other[:, 0] + 1) % 12
        apart["other"].append(
            np.abs(read_positions(data._replace(tokens=other), D, Z)[1].numpy() - read).max(1).min()
        )
        bias = np.zeros(30)
        bias[-3:] = 2.0
        placed = [read_positions(d, D, Z, bias=bias)[1].numpy() for d in (data, shuffled)]
        apart["bias"].append(np.abs(placed[0] - placed[1]).max())
    return [
        Measured("positions against counts: largest difference of $f$", max(apart["counts"]), "<=", 1e-13),
        Measured("shuffled: largest change of $f$", max(apart["shuffled"]), "<=", 1e-13),
        Measured("every token three times: largest change of $f$", max(apart["repeated"]), "<=", 1e-13),
        Measured("one token replaced: smallest change of $f$", min(apart["other"]), ">", 1e-6),
        Measured(
            "a bias of 2 at the last three positions, shuffled: smallest change of $f$",
            min(apart["bias"]),
            ">",
            1e-2,
            breaks=True,
        ),
    ]


@claim(
    "lem-long-gradients",
    title="Gradients of one sequence, and of the population",
    kind="lemma",
    source=f"{PAPER}, Lemma 1",
    chapter=PAGE,
    scope="4 classes, 12 contextual tokens, T = 30, Gaussian weights, autograd by positions",
    seeds="0 to trials − 1",
    trials=(40, 10),
)
def lemma_one(trials: int) -> list[Measured]:
    """Differentiate the layer by positions, one sequence at a time, and the population by hand."""
    names = ("D", "z", "rows", "diag", "population", "raw", "turned")
    off: dict[str, list[float]] = {k: [] for k in names}
    for seed in range(trials):
        process = random_process(4, 12, seed, one_query=seed % 2 == 0)
        D, Z = _random_weights(process.M, seed)
        data = drawn(process, 1, 30, seed)
        q, label = int(data.query[0]), int(data.label[0])
        slope = [a.numpy() for a in torch.autograd.grad(read_positions(data, D, Z)[0], (D, Z))]
        X = np.eye(process.M)[data.tokens[0]]
        b = np.exp(X @ Z.detach().numpy()[q])
        b /= b.sum()
        s = X.T @ b
        off["diag"].append(np.abs(X.T @ np.diag(b) @ X - np.diag(s)).max())
        down, row = lemma_formula(s, D.detach().numpy(), label)
        off["D"].append(_apart(-down, slope[0]))
        off["z"].append(_apart(-row, slope[1][q]))
        off["rows"].append(np.abs(np.delete(slope[1], q, 0)).max())
        raw = torch.autograd.grad(read_positions(data, D, Z, unit=False)[0], Z)[0].numpy()[q]
        off["raw"].append(_apart(-row, raw))
        turned = lemma_formula(s, D.detach().numpy().T, label)[1]
        off["turned"].append(_apart(-turned, slope[1][q]))
        # classes of different probability: their mean is not the plain one
        prior = np.random.default_rng([seed, 2]).uniform(0.2, 1.0, process.C)
        uneven = TokenProcess(process.P, process.query, process.label, prior)
        off["population"].append(_population(uneven, D, Z))
    return [
        Measured("$\\nabla_D$: largest relative error", max(off["D"]), "<=", 1e-13),
        Measured("$\\nabla_{z_q}$: largest relative error", max(off["z"]), "<=", 1e-12),
        Measured("gradient in the rows of other queries, largest", max(off["rows"]), "==", 0.0),
        Measured(
            "$X^\\top\\mathrm{diag}(b)X-\\mathrm{diag}(s)$, largest entry", max(off["diag"]), "<=", 1e-15
        ),
        Measured("population: largest relative error of a gradient", max(off["population"]), "<=", 1e-12),
        Measured(
            "with $D$ transposed: smallest relative error of $\\nabla_{z_q}$", min(off["turned"]), ">", 0.1
        ),
        Measured(
            "layer without normalisation: smallest relative error of $\\nabla_{z_q}$",
            min(off["raw"]),
            ">",
            0.05,
            breaks=True,
        ),
    ]


def lemma_formula(s: FloatArray, D: FloatArray, label: int) -> tuple[FloatArray, FloatArray]:
    """Descent directions of single sequences in the decoder and in the row of their query.

    Parameters
    ----------
    s : ndarray, shape (..., M)
        Attention by token type.
    D : ndarray, shape (M, M)
        Decoder.
    label : int
        Next token.

    Returns
    -------
    D, z : ndarray, shapes (..., M, M) and (..., M)
        Minus the gradients.
    """
    f = s / np.linalg.norm(s, axis=-1, keepdims=True)
    w = f @ D
    odds = np.exp(w - w.max(-1, keepdims=True))
    residual = -odds / odds.sum(-1, keepdims=True)
    residual[..., label] += 1.0
    g = residual @ D.T
    return f[..., None] * residual[..., None, :], f * (g - f * (f * g).sum(-1, keepdims=True))


def _apart(a: FloatArray, b: FloatArray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _population(process: TokenProcess, D: Tensor, Z: Tensor) -> float:
    """Relative error of the library's gradients of the population against autograd."""
    mass = torch.tensor(process.P) * torch.exp(Z[torch.tensor(process.query)])
    f = mass / mass.norm(dim=-1, keepdim=True)
    each = torch.nn.functional.cross_entropy(f @ D, torch.tensor(process.label), reduction="none")
    loss = (each * torch.tensor(process.prior)).sum()
    GD, GZ = (a.numpy() for a in torch.autograd.grad(loss, (D, Z)))
    found = scansnap.gradients(process, D.detach().numpy(), Z.detach().numpy()[process.queries])
    return max(
        _apart(found.D, GD), _apart(found.z, GZ[process.queries]), abs(float(found.loss) - loss.item())
    )
