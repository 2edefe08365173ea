"""Hard-margin programs: the attention SVM for the Frobenius and the nuclear norm, and vector programs.

Each solution comes with a certificate computed here from its primal and its dual point.
"""

from .classical import hard_margin
from .conic import attention_svm_conic
from .programs import attention_svm, feasible
from .records import AttentionSVM, Certificate, HardMargin
from .vectors import token_svm, value_svm

__all__ = [
    "AttentionSVM",
    "Certificate",
    "HardMargin",
    "attention_svm",
    "attention_svm_conic",
    "feasible",
    "hard_margin",
    "token_svm",
    "value_svm",
]
