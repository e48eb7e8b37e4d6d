"""Version information for Prometheus."""

from __future__ import annotations

import platform

from prometheus_client import Gauge

from aps_core import __version__

BUILD = Gauge(
    "aps_build_info", "Always 1; the labels are versions.", ["version", "python", "torch"]
)


def describe(torch: str = "") -> None:
    """Exports versions; ``torch`` is empty where it is not loaded."""
    BUILD.labels(__version__, platform.python_version(), torch).set(1)
