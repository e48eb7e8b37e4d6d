"""Waiting for storage: a finished result is worth some patience before its job fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from service.jobs import StorageUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_PAUSE_SECONDS = 10.0


def patiently(store: Callable[[], T], seconds: float) -> T:
    """Calls ``store`` until it succeeds, with growing pauses.

    Raises:
        StorageUnavailable: it has not succeeded for so many seconds.
    """
    pause, deadline = 0.25, time.monotonic() + seconds
    while True:
        try:
            return store()
        except StorageUnavailable as error:
            if time.monotonic() + pause > deadline:
                raise
            log.warning("%s; once more in %.2g s", error, pause)
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
