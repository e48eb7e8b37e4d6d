"""Retrying storage: a finished result is not lost to a short outage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_before_delay,
    wait_exponential,
)

from service.jobs import StorageUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")


def retried(store: Callable[[], T], seconds: float) -> T:
    """Calls ``store`` until it succeeds, with exponential backoff from 0.25 s to 10 s.

    Raises:
        StorageUnavailable: it has not succeeded within ``seconds``.
    """
    return Retrying(
        retry=retry_if_exception_type(StorageUnavailable),
        wait=wait_exponential(0.25, max=10),
        stop=stop_before_delay(seconds),
        before_sleep=_warn,
        reraise=True,
    )(store)


def _warn(state: RetryCallState) -> None:
    assert state.outcome is not None
    log.warning("%s; retrying in %.2g s", state.outcome.exception(), state.upcoming_sleep)
