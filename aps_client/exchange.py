"""One request of a flow: what to send, and retries of transient failures. Performs no input or
output; :mod:`aps_client.transport` does.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from aps_client.connection import Retry
from aps_client.errors import Unreachable, error_of

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One HTTP request; ``options`` are keyword arguments of :meth:`httpx.Client.request`."""

    method: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """Delay before the flow continues, in seconds."""

    seconds: float


Flow = Generator[Call | Pause, Any, T]


def exchange(call: Call, retry: Retry, patience: float = 0.0) -> Flow[httpx.Response]:
    """Sends ``call`` and retries transient failures with exponential backoff.

    Args:
        call: the request.
        retry: the policy.
        patience: seconds for which attempts continue, also beyond the policy's number.

    Raises:
        ServiceError: the error is not transient, or persists after the last attempt.
        Unreachable: the last attempt got no response.
    """
    end = time.monotonic() + patience
    attempt = 0
    while True:
        attempt += 1
        pause = retry.pause(attempt)
        try:
            answer: httpx.Response = yield call
        except (httpx.TransportError, httpx.InvalidURL) as error:
            failure: Exception = Unreachable(
                f"{call.method} {call.url}: {_reason(error)}. Is the service"
                " running and the address correct?"
            )
            failure.__cause__ = error
        else:
            if answer.status_code < 400:
                return answer
            refusal = failure = error_of(answer)
            pause = max(pause, refusal.retry_after)
            if not refusal.retryable or pause > retry.longest_seconds:
                raise refusal
        if attempt >= retry.attempts and time.monotonic() + pause > end:
            raise failure
        yield Pause(pause)


def _reason(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
