"""What the programs with equalities return: frozen records with read-only arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svmlib.arrays import BoolArray, FloatArray, IntArray

from .records import Certificate, widths

__all__ = ["FinitePart", "GeneralizedSVM", "GraphSVM"]


def _state(value: FloatArray, rank: IntArray, feasible: BoolArray) -> str:
    """Say what came out, for a repr."""
    if not value.ndim:
        if np.isfinite(value):
            return f"value {float(value):.6g}, rank {int(rank)}"
        return "not solved" if feasible else "infeasible"
    lost = int((feasible & ~np.isfinite(value)).sum())
    text = f"batch {value.shape}, {int(feasible.sum())} of {feasible.size} feasible"
    return text + (f", {lost} of them not solved" if lost else "")


@dataclass(frozen=True, slots=True, eq=False)
class GeneralizedSVM:
    r"""Solution of the generalised SVM (*Transformers as Support Vector Machines* 2023, Gen-SVM).

    Attributes
    ----------
    W : ndarray, shape (..., e, q)
        Minimiser; maps queries to keys. NaN where there is none, 0 where no token is masked out.
    value : ndarray, shape (...)
        Its norm: Frobenius or nuclear.
    rank : ndarray of int, shape (...)
        Singular values above 1e-6 of the largest; -1 where there is no solution.
    selected : ndarray of bool, shape (..., n, T)
        Selected tokens: their logits are equal.
    constrained : ndarray of bool, shape (..., n, T)
        Tokens that are masked out: visible and not selected.
    support : ndarray of bool, shape (..., n, T)
        Masked-out tokens whose margin is below 1.001.
    multipliers : ndarray, shape (..., n, T)
        Multipliers :math:`\lambda\ge0` of the margins of the first selected token, 0 elsewhere.
    equalities : ndarray, shape (..., n, T)
        Multipliers :math:`\mu`, of any sign, of the equalities with the first selected token, 0 elsewhere.
        Not unique where the equalities depend on each other. With
        :math:`G=\sum(\lambda_{it}+\mu_{it})(k_{ir_i}-k_{it})z_i^\top`, for :math:`r_i` the first selected
        token: :math:`W=G` for "fro", and :math:`\|G\|_{op}=1`, :math:`\langle G,W\rangle=\|W\|_\star` for
        "nuc".
    norm : str
        "fro" or "nuc".
    feasible : ndarray of bool, shape (...)
        False where it is proved that there is no solution.
    certificate : Certificate
        How far the solution may be from optimal; ``primal`` counts the values that equalities miss too.
    """

    W: FloatArray
    value: FloatArray
    rank: IntArray
    selected: BoolArray
    constrained: BoolArray
    support: BoolArray
    multipliers: FloatArray
    equalities: FloatArray
    norm: str
    feasible: BoolArray
    certificate: Certificate

    @property
    def solved(self) -> BoolArray:
        """(...) where there is a certified solution; elsewhere the entries are NaN."""
        return np.isfinite(self.value)

    @property
    def margin(self) -> FloatArray:
        """(...) largest margin of weights of norm 1, 1/value; infinite where no token is masked out."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.value)

    def __repr__(self) -> str:
        size = f"n={self.selected.shape[-2]}, T={self.selected.shape[-1]}, {widths(*self.W.shape[-2:])}"
        each = self.selected.sum(-1).mean()
        return (
            f'GeneralizedSVM("{self.norm}", {size}, {each:.3g} tokens selected a sequence, '
            f"{_state(self.value, self.rank, self.feasible)}, {self.certificate!r})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class FinitePart:
    r"""Weights of least norm that give the selected tokens their probabilities.

    *Transformers as Support Vector Machines* (2023), the finite component.

    Attributes
    ----------
    W : ndarray, shape (..., e, q)
        Minimiser. NaN where there is none, 0 where no sequence has two selected tokens.
    value : ndarray, shape (...)
        Its norm: Frobenius or nuclear.
    rank : ndarray of int, shape (...)
        Singular values above 1e-6 of the largest; -1 where there is no solution.
    selected : ndarray of bool, shape (..., n, T)
        Selected tokens.
    log_ratios : ndarray, shape (..., n, T)
        What the margins of the first selected token over the others are, 0 off the selected set.
    multipliers : ndarray, shape (..., n, T)
        Multipliers of these equalities, of any sign; not unique where they depend on each other.
    norm : str
        "fro" or "nuc".
    feasible : ndarray of bool, shape (...)
        False where the equations contradict each other.
    certificate : Certificate
        How far the solution may be from optimal; ``primal`` is the largest error of a log-ratio.
    """

    W: FloatArray
    value: FloatArray
    rank: IntArray
    selected: BoolArray
    log_ratios: FloatArray
    multipliers: FloatArray
    norm: str
    feasible: BoolArray
    certificate: Certificate

    @property
    def solved(self) -> BoolArray:
        """(...) where there is a certified solution; elsewhere the entries are NaN."""
        return np.isfinite(self.value)

    def __repr__(self) -> str:
        size = f"n={self.selected.shape[-2]}, T={self.selected.shape[-1]}, {widths(*self.W.shape[-2:])}"
        each = self.selected.sum(-1).mean()
        return (
            f'FinitePart("{self.norm}", {size}, {each:.3g} tokens selected a sequence, '
            f"{_state(self.value, self.rank, self.feasible)}, {self.certificate!r})"
        )


@dataclass(frozen=True, slots=True, eq=False)
class GraphSVM:
    r"""Solution of the SVM of token-priority graphs (Li et al. 2024, Graph-SVM).

    Attributes
    ----------
    W : ndarray, shape (e, q)
        Minimiser; NaN where there is none, 0 where no edge joins two components.
    value : ndarray, shape ()
        Its norm: Frobenius or nuclear.
    rank : ndarray of int, shape ()
        Singular values above 1e-6 of the largest; -1 where there is no solution.
    components : ndarray of int, shape (G, V)
        Strongly connected component of each token: the logits of a component are equal. -1 for tokens
        without an edge.
    edges : ndarray of bool, shape (G, V, V)
        Edges between components: margins of the first token over the second are at least 1.
    support : ndarray of bool, shape (G, V, V)
        Those with margin below 1.001.
    multipliers : ndarray, shape (G, V, V)
        Multipliers :math:`\lambda\ge0`; of the edges that join the same two components one carries all.
    equalities : ndarray, shape (G, V)
        Multipliers, of any sign, of the equalities with the first token of the component.
    norm : str
        "fro" or "nuc".
    feasible : ndarray of bool, shape ()
        False where it is proved that there is no solution.
    certificate : Certificate
        How far the solution may be from optimal; ``primal`` counts the values that equalities miss too.
    """

    W: FloatArray
    value: FloatArray
    rank: IntArray
    components: IntArray
    edges: BoolArray
    support: BoolArray
    multipliers: FloatArray
    equalities: FloatArray
    norm: str
    feasible: BoolArray
    certificate: Certificate

    @property
    def solved(self) -> BoolArray:
        """() whether there is a certified solution; otherwise the entries are NaN."""
        return np.isfinite(self.value)

    @property
    def margin(self) -> FloatArray:
        """() largest margin of weights of norm 1, 1/value; infinite where no edge joins two components."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.value)

    def __repr__(self) -> str:
        G, V = self.components.shape
        parts = int((self.components.max(-1, initial=-1) + 1).sum())
        return (
            f'GraphSVM("{self.norm}", {G} graph{"s" if G > 1 else ""} of {V} tokens, {parts} components, '
            f"{int(self.edges.sum())} edges between them, {widths(*self.W.shape)}, "
            f"{_state(self.value, self.rank, self.feasible)}, {self.certificate!r})"
        )
