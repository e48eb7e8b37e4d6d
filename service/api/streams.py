"""Limits on requests that stay open, event streams and ``Prefer: wait``: each holds a file
descriptor of the process.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from service.api.problems import Busy, TooManyStreams

MAX_STREAMS = 4096
"""Of an API process, whatever its file descriptors allow."""

RESERVED_FILES = 256
"""File descriptors for everything else: other requests, files, decoders."""


class Streams:
    """Counts the open streams of an API process, in all and by principal."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self.most, self.most_of_one = most, most_of_one
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, principal: str) -> Iterator[None]:
        """One more stream, for as long as the context lasts.

        Raises:
            TooManyStreams: the principal has too many.
            Busy: the process has too many.
        """
        self.take(principal)
        try:
            yield
        finally:
            self.release(principal)

    def take(self, principal: str) -> None:
        """Counts a stream that :meth:`release` will end; see :meth:`opened`."""
        if self._open[principal] >= self.most_of_one:
            raise TooManyStreams(
                f"You have {self.most_of_one} event streams open, as many as you may; close some,"
                " or follow jobs by webhooks or by asking now and then.",
                5,
            )
        if self._open.total() >= self.most:
            raise Busy("The service has too many event streams open; ask for the job instead.")
        self._open[principal] += 1

    def release(self, principal: str) -> None:
        """Ends a stream."""
        self._open[principal] -= 1
        if not self._open[principal]:
            del self._open[principal]


class CountedEventSource(EventSourceResponse):
    """An event stream that is counted until it ends, however it ends."""

    def __init__(self, events: AsyncIterator[Any], streams: Streams, principal: str) -> None:
        super().__init__(events, ping=15, send_timeout=30)
        self._streams, self._principal = streams, principal
        streams.take(principal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.release(self._principal)


def most_streams() -> int:
    """Streams the process has file descriptors for, after it has taken all it can get."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(MAX_STREAMS, files - RESERVED_FILES))
