"""Simulated restoration with known truth: cases, runs, tables, and the paper's experiments."""

from aps_core.evaluation.baselines import BASELINES
from aps_core.evaluation.cases import (
    PROTOCOLS,
    Case,
    Setup,
    make_case,
    own_task,
    strengths,
)
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.rows import Row, read_rows
from aps_core.evaluation.run import Plan, Variant, evaluate, run_method

__all__ = [
    "BASELINES",
    "PROTOCOLS",
    "Case",
    "Plan",
    "Row",
    "Setup",
    "Variant",
    "evaluate",
    "make_case",
    "own_task",
    "photographs",
    "read_rows",
    "run_method",
    "strengths",
]
