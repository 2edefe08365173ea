"""The papers' experiments, one function per figure or table, each returning a record of numbers.

``svmlib reproduce --list`` names them; ``svmlib reproduce NAME --out FOLDER`` runs one and stores its record.
In Python the same is ``svmlib.experiments.NAME(folder=FOLDER)``:

>>> import svmlib as sv
>>> r = sv.experiments.p1_planar_1()
>>> r["W_path"].shape[1:]
(2, 2)
"""

from __future__ import annotations

from .beyond import beyond_fixed_head as beyond_fixed_head
from .composition import composition_problem
from .composition import p1_composition as p1_composition
from .composition import p1_composition_kq as p1_composition_kq
from .composition import p1_composition_longer as p1_composition_longer
from .composition import p1_composition_published as p1_composition_published
from .framework import EXPERIMENTS, Experiment, Task, experiment, trials
from .hierarchy import p1_hierarchy as p1_hierarchy
from .joint import p2_joint_training as p2_joint_training
from .joint import three_sequences
from .lambda_head import p1_lambda_head as p1_lambda_head
from .limits import p1_limits as p1_limits
from .local import LocalConvergence, local_convergence
from .local import p1_local_convergence as p1_local_convergence
from .mirror import mirror_descent as mirror_descent
from .one_query import p2_loss_functions as p2_loss_functions
from .one_query import p2_multiple_inputs as p2_multiple_inputs
from .one_query import p2_single_input as p2_single_input
from .overparam import p1_global_fraction as p1_global_fraction
from .overparam import p1_global_map as p1_global_map
from .overparam import p1_spurious_directions as p1_spurious_directions
from .overparam import p1_support_fraction as p1_support_fraction
from .paths import p1_regularization_path as p1_regularization_path
from .planar import PlanarPaths, planar_paths
from .planar import p1_planar_1 as p1_planar_1
from .planar import p1_planar_2 as p1_planar_2
from .planar_phase import beyond_planar_phase as beyond_planar_phase
from .rank import p1_rank as p1_rank
from .real_text import p3_embedded as p3_embedded
from .real_text import p3_embedded_models as p3_embedded_models
from .real_text import p3_embedded_scan as p3_embedded_scan
from .real_text import p3_wikitext2 as p3_wikitext2
from .real_text import p3_wikitext2_models as p3_wikitext2_models
from .real_text import p3_wikitext2_scan as p3_wikitext2_scan
from .record import Record, RecordError, load, stored
from .selection_count import p1_lambda_selection as p1_lambda_selection
from .selection_count import p1_relu_selection as p1_relu_selection
from .sequences import ntp_priority as ntp_priority
from .sequences import p1_causal as p1_causal
from .syn import p3_adam as p3_adam
from .syn import p3_recall as p3_recall
from .syn import p3_syn_medium as p3_syn_medium
from .syn import p3_syn_momentum as p3_syn_momentum
from .syn import p3_syn_small as p3_syn_small
from .syn_limits import p3_length as p3_length
from .syn_limits import p3_ratio as p3_ratio
from .two_theories import p3_two_theories as p3_two_theories
from .wrong_limits import p1_first_step as p1_first_step
from .wrong_limits import p2_equal_scores as p2_equal_scores
from .wrong_limits import p2_wrong_limit as p2_wrong_limit

# An experiment is added by one import above: "from .module import NAME as NAME".
__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "LocalConvergence",
    "PlanarPaths",
    "Record",
    "RecordError",
    "Task",
    "composition_problem",
    "experiment",
    "load",
    "local_convergence",
    "planar_paths",
    "stored",
    "three_sequences",
    "trials",
    *EXPERIMENTS,
]
