"""Hard-margin programs: the attention SVM and its generalisations for two norms, and vector programs.

Each solution comes with a certificate computed here from its primal and its dual point.
"""

from .classical import hard_margin
from .conic import attention_svm_conic
from .general_conic import finite_part_conic, generalized_svm_conic, graph_svm_conic
from .general_records import FinitePart, GeneralizedSVM, GraphSVM
from .generalized import finite_part, generalized_svm
from .lp import LpSVM, lp_svm
from .priorities import graph_svm
from .programs import attention_svm, feasible
from .records import AttentionSVM, Certificate, HardMargin
from .vectors import token_svm, value_svm

__all__ = [
    "AttentionSVM",
    "Certificate",
    "FinitePart",
    "GeneralizedSVM",
    "GraphSVM",
    "HardMargin",
    "LpSVM",
    "attention_svm",
    "attention_svm_conic",
    "feasible",
    "finite_part",
    "finite_part_conic",
    "generalized_svm",
    "generalized_svm_conic",
    "graph_svm",
    "graph_svm_conic",
    "hard_margin",
    "lp_svm",
    "token_svm",
    "value_svm",
]
