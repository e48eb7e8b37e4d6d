"""Limits on long-lived requests (event streams and ``Prefer: wait``), as each one occupies a file
descriptor.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from service.api.problems.errors import Busy, TooManyStreams

MAX_STREAMS = 4096
"""Maximum streams of an API process, even if its file descriptors allow more."""

RESERVED_FILES = 256
"""File descriptors reserved for other requests, files and decoders."""


class Streams:
    """Counts the open streams of an API process, in total and by principal."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most = most
        self.most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, principal: str) -> Iterator[None]:
        """Counts a stream for the duration of the context.

        Raises:
            TooManyStreams, Busy: as for :meth:`take`.
        """
        self.take(principal)
        try:
            yield
        finally:
            self.release(principal)

    def take(self, principal: str) -> None:
        """Counts a stream until :meth:`release`.

        Raises:
            TooManyStreams: the principal has too many.
            Busy: the process has too many.
        """
        if self._open[principal] >= self.most_of_one:
            raise TooManyStreams(
                f"You have {self.most_of_one} open event streams, which is your limit; close some,"
                " or use webhooks or polling instead.",
                5,
            )
        if self._open.total() >= self.most:
            raise Busy("The service has too many open event streams; poll the job instead.")
        self._open[principal] += 1

    def release(self, principal: str) -> None:
        """Stops counting a stream."""
        self._open[principal] -= 1
        if not self._open[principal]:
            del self._open[principal]


class CountedEventSource(EventSourceResponse):
    """An event stream that is counted until it ends for any reason."""

    def __init__(self, events: AsyncIterator[Any], streams: Streams, principal: str) -> None:
        super().__init__(events, ping=15, send_timeout=30)
        self._streams = streams
        self._principal = principal
        streams.take(principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._principal)


def most_streams() -> int:
    """Raises the process's file descriptor limit; returns the number of streams it allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(MAX_STREAMS, files - RESERVED_FILES))
