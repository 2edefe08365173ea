"""Hard-margin programs: the attention SVM for the Frobenius and the nuclear norm, and the classical SVM.

Each solution comes with a certificate computed here from its primal and its dual point.
"""

from .classical import hard_margin
from .conic import attention_svm_conic
from .programs import attention_svm, feasible
from .records import AttentionSVM, Certificate, HardMargin

__all__ = [
    "AttentionSVM",
    "Certificate",
    "HardMargin",
    "attention_svm",
    "attention_svm_conic",
    "feasible",
    "hard_margin",
]
