"""Cells of tables."""

from __future__ import annotations

from collections.abc import Sequence

from aps_core.evaluation.tables import paired_interval


def gained(differences: Sequence[float], form: str = ".2f") -> str:
    """Mean of paired differences with its 95 % interval; ``form`` is a format of one number."""
    mean, low, high = paired_interval(differences)
    return f"{mean:+{form}} [{low:{form}}, {high:{form}}]"
