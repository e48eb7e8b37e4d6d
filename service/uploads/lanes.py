"""Slow work in threads of its own, shared fairly: neither the service's other requests nor another
tenant's wait for one tenant's pictures.

The pool that answers everything else (:func:`starlette.concurrency.run_in_threadpool`) then only
ever waits for the job store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from service.api.problems import Busy

R = TypeVar("R")

LONGEST_LINE = 32
"""Calls of one tenant that may wait for its share; one more is refused at once."""


@dataclass
class _Share:
    turns: asyncio.Semaphore
    calls: int = 0


class Lane:
    """Some threads for one kind of work; a tenant gets half of them at most."""

    def __init__(self, what: str, threads: int, patience_seconds: float) -> None:
        self.what, self.threads, self.patience_seconds = what, threads, patience_seconds
        self._turns = asyncio.Semaphore(threads)
        self._limiter = CapacityLimiter(threads)
        self._shares: dict[str, _Share] = {}

    async def run(self, tenant: str, call: Callable[..., R], *args: object) -> R:
        """What ``call`` returns.

        Raises:
            Busy: the tenant has too many calls waiting, or this one waited too long.
        """
        async with self._share(tenant) as share:
            try:
                async with asyncio.timeout(self.patience_seconds) as patience:
                    async with share.turns, self._turns:
                        patience.reschedule(None)
                        return await to_thread.run_sync(call, *args, limiter=self._limiter)
            except TimeoutError as error:
                if not patience.expired():
                    raise
                raise Busy(f"The service has too many {self.what}; try again.") from error

    @asynccontextmanager
    async def _share(self, tenant: str) -> AsyncIterator[_Share]:
        share = self._shares.setdefault(
            tenant, _Share(asyncio.Semaphore(max(1, self.threads // 2)))
        )
        if share.calls >= LONGEST_LINE:
            raise Busy(f"You have too many {self.what} at a time; try again when some are done.")
        share.calls += 1
        try:
            yield share
        finally:
            share.calls -= 1
            if not share.calls:
                del self._shares[tenant]
