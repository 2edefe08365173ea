r"""Data of one attention layer: tokens, queries, labels and a head, and ways to make them.

A layer reads tokens :math:`x_{it}` and a query :math:`z_i`, weighs the tokens by
:math:`s_i=\mathbb S(X_iWz_i)` and passes :math:`u_i=X_i^\top s_i` to a head
(Tarzanagh et al. 2023, *Transformers as Support Vector Machines*, section 2).
"""

from .generators import planar, planted_problem, prompt_problem, random_problem, self_attention
from .problem import Problem, check_problem
from .sequences import next_token_problem, random_next_tokens, random_sequence_problem, sequence_problem

__all__ = [
    "Problem",
    "check_problem",
    "next_token_problem",
    "planar",
    "planted_problem",
    "prompt_problem",
    "random_next_tokens",
    "random_problem",
    "random_sequence_problem",
    "self_attention",
    "sequence_problem",
]
