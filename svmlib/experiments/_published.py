"""Numbers that the authors of the papers published, for comparison with ours."""

from __future__ import annotations

import numpy as np

from svmlib.arrays import FloatArray, frozen

__all__ = ["syn_medium_entropies", "syn_small_losses"]

# rows: attention's rate 0.5, 1, 2, 3; columns: ratio 1, 2, 5, 10; mean and standard deviation times 1000
_MEDIUM = """
1971 28 2007 32 2066 17 2092 16    1871 52 1937 52 2022 36 2053 30
1699 101 1810 99 1934 68 1900 200  1551 155 1708 152 1786 170 1825 331
2019 10 1988 12 2031 7 2063 5      1963 15 1920 18 1982 9 2024 8
1842 24 1809 27 1899 18 1955 20    1737 32 1715 38 1821 30 1839 100
2026 5 1994 7 2020 7 2055 6        1995 7 1931 11 1971 10 2014 9
1906 12 1816 22 1884 20 1926 25    1817 21 1718 32 1802 33 1831 50
2033 4 2012 4 2018 4 2051 3        2027 3 1975 5 1976 6 2015 6
1990 5 1888 9 1899 13 1947 15      1940 6 1805 13 1829 19 1875 23
"""


def syn_medium_entropies() -> FloatArray:
    """Return the entropies behind figure 6 of *Scan and Snap*: means and standard deviations of 10 seeds.

    Returns
    -------
    ndarray, shape (4, 4, 4, 2)
        By number of queries 1, 3, 5, 10, by rate of attention 0.5, 1, 2, 3, and by ratio 1, 2, 5, 10.
    """
    return frozen(np.array(_MEDIUM.split(), dtype=float).reshape(4, 4, 4, 2) / 1000)


def syn_small_losses() -> FloatArray:
    """Return the loss log of the run with both rates 1 in figure 4 of *Scan and Snap*.

    Returns
    -------
    ndarray, shape (8, 2)
        Iteration and loss.
    """
    steps = (0, 2, 4, 6, 8, 10, 20, 98)
    return frozen(np.array([steps, (3.5264, 2.368, 0.733, 0.161, 0.0444, 0.01295, 2.05e-4, 2.2e-5)]).T)
