"""Durations in words, for every message that mentions one. The studio's ``duration`` in
``service/ui/strings.js`` gives the same words; a test compares them.
"""

from __future__ import annotations

import math

MINUTE, HOUR, DAY = 60, 3600, 86_400


def in_words(seconds: float) -> str:
    """A duration in words: ``8 seconds``, ``2 minutes``, ``3.5 hours``, ``1.5 days``.

    Args:
        seconds: at least 0; durations under a second count as one second.
    """
    if seconds < 1.5 * MINUTE:
        whole = max(1, _rounded(seconds))
        return f"{whole} second{'s' if whole > 1 else ''}"
    for unit, name, limit in ((MINUTE, "minutes", 1.5 * HOUR), (HOUR, "hours", 1.5 * DAY)):
        if seconds < limit:
            return f"{_short(seconds / unit, whole=unit == MINUTE)} {name}"
    return f"{_short(seconds / DAY)} days"


def _short(count: float, whole: bool = False) -> str:
    """One decimal below 10, unless ``whole``; none above."""
    return f"{_rounded(count) if whole or count >= 10 else _rounded(10 * count) / 10:g}"


def _rounded(value: float) -> int:
    """Halves round up, as in JavaScript."""
    return math.floor(value + 0.5)
