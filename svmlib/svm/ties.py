r"""Nuclear programs with equalities, in rows that depend on each other as little as possible.

Features of one query have one second factor, :math:`\epsilon_rz^\top`. So the equalities of a query may be
exchanged for those of an orthonormal basis of their first factors, and these may be projected out of its
margins, without leaving matrices of rank one: nearly equal tokens then do no harm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmlib.arrays import BoolArray, FloatArray

from .equalities import independent, row_space
from .nuclear import Program, Ties

__all__ = ["Tied"]

_CUT = 1e-10
"""Directions of smaller singular value are left out: what they ask is met to less than a certificate sees,
while their multipliers would be so large that round-off shows."""


class Tied(NamedTuple):
    """A program in new rows, and the rows that it stands for.

    Attributes
    ----------
    program : Program
        Margins first, in their order, then independent equalities.
    delta, q : ndarray, shapes (m, a) and (m, e)
        Factors of the features as they were.
    equal : ndarray of bool, shape (m,)
        Which of these are equalities.
    short : ndarray
        Length of what was left of the first factor of each margin.
    """

    program: Program
    delta: FloatArray
    q: FloatArray
    equal: BoolArray
    short: FloatArray

    @classmethod
    def of(cls, program: Program, equal: BoolArray, group: NDArray[np.intp], point: FloatArray) -> Tied:
        """Exchange the rows of a program.

        Parameters
        ----------
        program : Program
            Its constraints, as if all were margins.
        equal : ndarray of bool, shape (m,)
            Which of them are equalities.
        group : ndarray of int, shape (m,)
            Query of each constraint.
        point : ndarray, shape (a, e)
            The Frobenius solution.

        Returns
        -------
        Tied
            The same program.
        """
        delta, q, c, scale = program[:4]
        rest, length = delta.copy(), np.ones(len(c))
        bases, queries = [], []
        for g in np.unique(group[equal]):
            here = group == g
            basis = row_space(delta[here & equal], _CUT)
            bases.append(basis)
            queries.append(np.broadcast_to(q[here & equal][0], (len(basis), q.shape[1])))
            margins = here & ~equal
            for _ in range(2):  # the second time removes what round-off left
                rest[margins] -= (rest[margins] @ basis.T) @ basis
            length[margins] = np.linalg.norm(rest[margins], axis=1)
        first, second = np.concatenate(bases), np.concatenate(queries)
        rows = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
        span = row_space(rows, _CUT)
        chosen = independent(rows, len(span))
        first, second = first[chosen], second[chosen]
        # equalities alone get the sides that their shortest solution meets, which round-off may have moved
        target = point if equal.all() else np.zeros_like(point)
        short = length[~equal]
        new = Program(
            np.concatenate([rest[~equal] / short[:, None], first]),
            np.concatenate([q[~equal], second]),
            np.append(c[~equal] / short, ((first @ target) * second).sum(1)),
            np.append(scale[~equal] / short, np.ones(len(first))),
            Ties(np.arange(len(short) + len(first)) >= len(short), span, target),
        )
        return cls(new, delta, q, equal, short)

    def multipliers(self, lam: FloatArray) -> FloatArray:
        """Express multipliers of the new rows by those of the old ones.

        Parameters
        ----------
        lam : ndarray
            Multipliers of the new program.

        Returns
        -------
        ndarray, shape (m,)
            Multipliers with the same combination of features.
        """
        out = np.zeros(len(self.equal))
        out[~self.equal] = lam[: len(self.short)] / self.short
        G = (self.program.delta * lam[:, None]).T @ self.program.q
        G -= (self.delta * out[:, None]).T @ self.q
        rows = self.delta[self.equal][:, :, None] * self.q[self.equal][:, None, :]
        rows = rows.reshape(int(self.equal.sum()), -1)
        out[self.equal] = np.linalg.lstsq(rows.T, G.ravel(), rcond=_CUT)[0]
        return out
