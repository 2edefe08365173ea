"""Claims of the chapter on long sequences: embeddings and factors against the independent matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .long_sequences import PAGE, PAPER, Sequences, drawn, random_process, read_positions
from .registry import Measured, claim


class Factors(NamedTuple):
    """Embeddings and the matrices of a transformer's layer."""

    U: Tensor  # (M, d) embeddings
    K: Tensor  # (d, m)
    Q: Tensor  # (d, m)
    V: Tensor  # (d, d)

    @property
    def D(self) -> Tensor:
        """Decoder logits of pairs of tokens."""
        return self.U @ self.V.T @ self.U.T

    @property
    def Z(self) -> Tensor:
        """Attention logits, one row for each query token."""
        return self.U @ self.Q @ self.K.T @ self.U.T


def random_factors(M: int, d: int, m: int, seed: int, *, orthonormal: bool = False) -> Factors:
    """Draw embeddings of length one and Gaussian matrices.

    Parameters
    ----------
    M, d, m : int
        Tokens, dimension of embeddings, width of keys.
    seed : int
        Seed.
    orthonormal : bool
        Whether embeddings are orthonormal; needs d >= M.

    Returns
    -------
    Factors
        Tensors that ask for gradients.
    """
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(M, d))
    U = np.linalg.qr(U.T)[0].T if orthonormal else U / np.linalg.norm(U, axis=1, keepdims=True)
    parts = [U, *(rng.normal(size=s) for s in ((d, m), (d, m), (d, d)))]
    return Factors(*(torch.tensor(np.ascontiguousarray(a), requires_grad=True) for a in parts))


def read_embeddings(data: Sequences, factors: Factors) -> Tensor:
    """Mean cross-entropy of the layer as a transformer computes it, from embeddings.

    Parameters
    ----------
    data : Sequences
        B sequences.
    factors : Factors
        Weights.

    Returns
    -------
    Tensor
        A number.
    """
    U, K, Q, V = factors
    seen = U[torch.tensor(data.tokens)]
    asked = U[torch.tensor(data.query)]
    b = torch.softmax(((seen @ K) @ (asked @ Q)[..., None])[..., 0], -1)
    share = torch.zeros(len(b), len(U), dtype=b.dtype).scatter_add(1, torch.tensor(data.tokens), b)
    output = (b[:, None] @ seen)[:, 0] / share.norm(dim=-1, keepdim=True)
    return torch.nn.functional.cross_entropy(output @ V.T @ U.T, torch.tensor(data.label))


@claim(
    "prop-long-factors",
    title="Gradients of embeddings and factors; what the flow of $W$ does to $Z$",
    kind="proposition",
    source=f"{PAPER}, section 3, for $D$ and $Z$; factors: proof in the chapter",
    chapter=PAGE,
    scope="M = 12, T = 20, batches of 8; d = 6, m = 3, and d = 16 with orthonormal embeddings",
    seeds="0 to trials − 1",
    trials=(20, 6),
)
def factors(trials: int) -> list[Measured]:
    """Differentiate the layer that is computed from embeddings, and compare with the gradients of D and Z."""
    same, slopes, flows, rank, length, reach = [], [], [], [], [], []
    leak: list[float] = []
    free: list[float] = []
    for seed in range(trials):
        process = random_process(2, 8, seed)
        data = drawn(process, 8, 20, seed)
        for wide in (False, True):
            w = random_factors(process.M, 16 if wide else 6, 3, seed, orthonormal=wide)
            loss = read_embeddings(data, w)
            found = torch.autograd.grad(loss, tuple(w))
            D, Z = (a.detach().clone().requires_grad_() for a in (w.D, w.Z))
            direct = read_positions(data, D, Z)[0]
            GD, GZ = torch.autograd.grad(direct, (D, Z))
            U, K, Q, V = (a.detach() for a in w)
            W = K @ Q.T
            GW = U.T @ GZ.T @ U
            expected = (
                GZ @ U @ W + GZ.T @ U @ W.T + GD @ U @ V + GD.T @ U @ V.T,
                GW @ Q,
                GW.T @ K,
                U.T @ GD.T @ U,
            )
            same.append(abs(loss.item() - direct.item()))
            slopes += [float((a - b).norm() / b.norm()) for a, b in zip(expected, found, strict=True)]
            # what small steps of the factors, and of W, do to Z
            moved = U @ (Q @ (GW @ Q).T + GW.T @ K @ K.T) @ U.T
            rule = (U @ Q @ Q.T @ U.T) @ GZ @ (U @ U.T) + (U @ U.T) @ GZ @ (U @ K @ K.T @ U.T)
            flows.append(float((moved - rule).norm() / moved.norm()))
            gram = U @ U.T
            step = U @ (W - 0.1 * GW).T @ U.T - Z.detach()
            flows.append(float((step + 0.1 * gram @ GZ @ gram).norm() / step.norm()))
            read = U @ (V - 0.1 * U.T @ GD.T @ U).T @ U.T - D.detach()
            flows.append(float((read + 0.1 * gram @ GD @ gram).norm() / read.norm()))
            off = step.clone()
            off[process.query[0]] = 0.0
            (free if wide else leak).append(float(off.norm() / step.norm()))
            rank.append(int(torch.linalg.matrix_rank(Z.detach())))
        length.append(_length(random_factors(process.M, 6, 3, seed).U.detach(), seed))
        reach.append(_reached(random_factors(process.M, 16, 3, seed).U.detach(), seed))
    return [
        Measured("loss from embeddings against $D,Z$: largest difference", max(same), "<=", 1e-12),
        Measured("largest relative error of a gradient", max(slopes), "<=", 1e-11),
        Measured(
            "motion of $D,Z$ by steps of $W_V$, $W$, and $K,Q$: largest relative error",
            max(flows),
            "<=",
            1e-10,
        ),
        Measured("largest rank of $Z$, keys of width 3", max(rank), "<=", 3),
        Measured(
            "independent embeddings: relative error of the $Z$ reached for a random one",
            max(reach),
            "<=",
            1e-9,
        ),
        Measured(
            "$\\lvert\\,\\|U^\\top s\\|^2/\\|s\\|^2-1\\rvert$ over its bound, largest over $s$ (attained)",
            max(length),
            "==",
            1.0,
            tol=1e-10,
        ),
        Measured("orthonormal: part of the step outside the query's row", max(free), "<=", 1e-10),
        Measured(
            "six dimensions: part of the step outside the query's row, smallest",
            min(leak),
            ">",
            0.2,
            breaks=True,
        ),
    ]


def _length(U: Tensor, seed: int) -> float:
    """Largest change of a squared length by the embeddings over its bound: random s, and the extreme one."""
    off = U @ U.T - torch.eye(len(U), dtype=U.dtype)
    values, vectors = torch.linalg.eigh(off)
    drawn_s = torch.tensor(np.random.default_rng([seed, 4]).dirichlet(np.ones(len(U)), 20))
    s = torch.cat([drawn_s, vectors.T])
    change = ((s @ U).norm(dim=1) ** 2 / s.norm(dim=1) ** 2 - 1.0).abs()
    return float(change.max() / values.abs().max())


def _reached(U: Tensor, seed: int) -> float:
    """Relative error of the attention matrix that the proof finds for random logits."""
    Z = torch.tensor(np.random.default_rng([seed, 5]).normal(size=(len(U), len(U))))
    inverse = torch.linalg.inv(U @ U.T)
    transposed = U.T @ inverse @ Z @ inverse @ U
    return float((U @ transposed @ U.T - Z).norm() / Z.norm())
