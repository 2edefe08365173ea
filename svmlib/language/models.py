r"""Language models whose attention can be read: the layer of the theory, and a causal transformer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from svmlib.arrays import check_integer
from svmlib.errors import DataError

__all__ = ["Reading", "ScanLayer", "Transformer", "sinusoids"]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What a model makes of sequences."""

    logits: Tensor
    """(B, T, V) logits of the next token at every position."""
    attention: tuple[Tensor, ...]
    """(B, H, T, T) for each layer: what the position in the third axis reads, over positions in the last."""


class ScanLayer(nn.Module):
    r"""The layer of *Scan and Snap*: a decoder D and attention logits Z over pairs of token types.

    The token at a position is the query; it reads the tokens before it, not itself, and nothing knows
    positions:

    .. math:: b_{\tau}\propto e^{Z_{x_t x_\tau}}\ (\tau<t),\quad u=\sum_\tau b_\tau e_{x_\tau},\quad
       \text{logits}=D^\top u/\|u\|

    Parameters
    ----------
    vocabulary : int
        Number of token types, V.
    width : int, optional
        None trains D and Z themselves (V x V each). A number d trains their factors
        :math:`D=UVU^\top` and :math:`Z=UQK^\top U^\top/\sqrt d`.
    normalise : bool
        Whether the vector u of token types is scaled to length one.
    seed : int
        Seed of the factors; D and Z start at 0.
    """

    def __init__(
        self, vocabulary: int, width: int | None = None, *, normalise: bool = True, seed: int = 0
    ) -> None:
        super().__init__()
        self.V, self.normalise = check_integer(vocabulary, "vocabulary", 2), normalise
        self.width = None if width is None else check_integer(width, "width")
        generator = torch.Generator().manual_seed(check_integer(seed, "seed", 0))
        if self.width is None:
            self.D, self.Z = (nn.Parameter(torch.zeros(self.V, self.V)) for _ in "DZ")
            return
        d = self.width
        self.U = nn.Parameter(torch.randn(self.V, d, generator=generator) / math.sqrt(d))
        self.K, self.Q, self.W = (
            nn.Parameter(torch.randn(d, d, generator=generator) / math.sqrt(d)) for _ in "KQW"
        )

    def logits_of_pairs(self, tokens: Tensor) -> Tensor:
        """Compute attention logits of queries for keys.

        Parameters
        ----------
        tokens : Tensor of int, shape (B, T)
            Sequences.

        Returns
        -------
        Tensor, shape (B, T, T)
            Queries in the second axis, keys in the last; keys that may not be read included.
        """
        if self.width is None:
            return self.Z[tokens[:, :, None], tokens[:, None, :]]
        x = self.U[tokens]
        return (x @ self.Q) @ (x @ self.K).transpose(1, 2) / math.sqrt(self.width)

    def forward(self, tokens: Tensor) -> Reading:
        """Read sequences of tokens.

        Parameters
        ----------
        tokens : Tensor of int, shape (B, T)
            Sequences.

        Returns
        -------
        Reading
            Logits of the next token at every position, and attention.
        """
        T = tokens.shape[1]
        before = torch.ones(T, T, dtype=torch.bool, device=tokens.device).tril(-1)
        a = self.logits_of_pairs(tokens).masked_fill(~before, -math.inf)
        a = torch.where(before.any(-1)[:, None], a, 0.0)  # the first position has nothing to read
        b = torch.softmax(a, -1) * before
        if self.normalise:
            same = (tokens[:, :, None] == tokens[:, None, :]).to(b.dtype)
            square = ((b @ same) * b).sum(-1, keepdim=True)  # |u|^2: equal tokens at several positions add up
            scaled = b * (square + (square == 0)).rsqrt()
        else:
            scaled = b
        if self.width is None:
            logits = scaled @ self.D[tokens]
        else:
            logits = (scaled @ self.U[tokens]) @ self.W @ self.U.T
        return Reading(logits, (b[:, None],))


class Transformer(nn.Module):
    """A causal transformer, as language models are built, that hands out its attention.

    Parameters
    ----------
    vocabulary : int
        Number of token types, V.
    layers, heads, width, hidden : int
        Numbers of layers and of heads, width of the stream, hidden width of the feed-forward part (0: none).
    positions : bool
        Whether sinusoids of the position are added to the embeddings.
    layer_norm : bool
        Whether the sums of residual connections are normalised.
    dropout : float
        Share of entries dropped in training.
    seed : int
        Seed of the weights.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int = 1,
        heads: int = 1,
        width: int = 128,
        hidden: int = 128,
        positions: bool = True,
        layer_norm: bool = True,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.V = check_integer(vocabulary, "vocabulary", 2)
        self.width, self.positions = check_integer(width, "width"), positions
        H = check_integer(heads, "heads")
        if self.width % H or self.width % 2:
            raise DataError(
                f"width must be even and a multiple of heads, got width {width} and {heads} heads."
            )
        if not 0 <= dropout < 1:
            raise DataError(f"dropout must lie in [0, 1), got {dropout!r}.")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(check_integer(seed, "seed", 0))
            self.embedding = nn.Embedding(self.V, self.width)
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            count = check_integer(layers, "layers")
            self.blocks = nn.ModuleList(
                _Block(self.width, H, hidden, layer_norm, dropout) for _ in range(count)
            )
            self.decoder = nn.Linear(self.width, self.V)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Reading:
        """Read sequences of tokens.

        Parameters
        ----------
        tokens : Tensor of int, shape (B, T)
            Sequences.

        Returns
        -------
        Reading
            Logits of the next token at every position, and attention.
        """
        x = self.embedding(tokens) * math.sqrt(self.width)
        if self.positions:
            x = x + sinusoids(tokens.shape[1], self.width).to(x)
        x, maps = self.dropout(x), []
        for block in self.blocks:
            x, attention = block(x)
            maps.append(attention)
        return Reading(self.decoder(x), tuple(maps))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, layer_norm: bool, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        parts = 2 if hidden else 1
        self.norms = nn.ModuleList(nn.LayerNorm(width) if layer_norm else nn.Identity() for _ in range(parts))
        self.feed = (
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width))
            if hidden
            else None
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        B, T, d = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        a = (q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)).masked_fill(future, -math.inf)
        attention = torch.softmax(a, -1)
        read = (self.dropout(attention) @ v).transpose(1, 2).reshape(B, T, d)
        x = self.norms[0](x + self.dropout(self.out(read)))
        if self.feed is not None:
            x = self.norms[1](x + self.dropout(self.feed(x)))
        return x, attention


def sinusoids(T: int, width: int) -> Tensor:
    """Compute the sinusoids of positions.

    Parameters
    ----------
    T : int
        Number of positions.
    width : int
        Width of the stream, even.

    Returns
    -------
    Tensor, shape (T, width)
        Sines and cosines of falling frequency.
    """
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angle = torch.arange(T)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(T, width)
