"""Dedicated, fairly shared threads for one kind of work, so that one tenant's pictures or requests
block neither other tenants nor other work.

The general thread pool (:func:`starlette.concurrency.run_in_threadpool`) then waits for nothing but
the job store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from service.api.problems.errors import Busy

R = TypeVar("R")

MAX_WAITING = 32
"""Maximum pending calls of one tenant; further ones are refused immediately."""


@dataclass
class _Share:
    turns: asyncio.Semaphore
    calls: int = 0


class Lane:
    """Threads for one kind of work, of which each tenant may use a share."""

    def __init__(
        self,
        what: str,
        threads: int,
        wait_seconds: float,
        *,
        share: int,
        line: int = MAX_WAITING,
    ) -> None:
        """
        Args:
            what: The kind of work, for messages.
            threads: Number of threads.
            wait_seconds: How long a call may wait for a thread.
            share: Number of threads that one tenant may use at a time.
            line: Maximum number of pending calls of one tenant.
        """
        self.what = what
        self.share = share
        self.wait_seconds = wait_seconds
        self.line = line
        self._turns = asyncio.Semaphore(threads)
        self._limiter = CapacityLimiter(threads)
        self._shares: dict[str, _Share] = {}

    async def run(self, tenant: str, call: Callable[..., R], *args: object) -> R:
        """Runs ``call`` in a thread and returns its result.

        Raises:
            Busy: the tenant has too many calls waiting, or this one waited too long.
        """
        async with self._share(tenant) as share:
            try:
                async with asyncio.timeout(self.wait_seconds) as wait:
                    async with share.turns, self._turns:
                        wait.reschedule(None)
                        return await to_thread.run_sync(call, *args, limiter=self._limiter)
            except TimeoutError as error:
                if not wait.expired():
                    raise
                raise Busy(f"The service has too many {self.what}; try again.") from error

    @asynccontextmanager
    async def _share(self, tenant: str) -> AsyncIterator[_Share]:
        share = self._shares.setdefault(tenant, _Share(asyncio.Semaphore(self.share)))
        if share.calls >= self.line:
            raise Busy(f"You have too many {self.what}; try again when some are done.")
        share.calls += 1
        try:
            yield share
        finally:
            share.calls -= 1
            if not share.calls:
                del self._shares[tenant]
