"""Decision thresholds of the verdict on a restoration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VerdictThresholds:
    """When a result agrees with its measurement. ``explains`` and ``fails`` were chosen with
    ``research/fit_verdict/calibrate.py --half choose``; ``--half report`` checks them on other
    pictures, and ``--results`` checks ``reaches``.
    """

    explains: float = 2.4
    """Largest misfit of the fitted picture in any frequency band, relative to noise, with which the
    operator explains the measurement.
    """
    fails: float = 2.8
    """Smallest such misfit with which it does not; in between, the verdict is undecided."""
    reaches: float = 2.0
    """Largest misfit of a result that agrees, relative to noise and tokenizer error together."""
    least_noise: float = 0.01
    """Standard deviation on the [-1, 1] scale (1.3 grey levels) to which lower noise is raised: no
    operator is exact.
    """
    modelled: float = 0.97
    """Share of a band's power that an operator must explain: no operator is exact."""


VERDICT = VerdictThresholds()
