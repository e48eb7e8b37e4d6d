"""Registry of live workers and their capabilities; each worker renews its entry until it stops."""

from __future__ import annotations

import time
from typing import cast

from pydantic import BaseModel, ConfigDict
from redis import Redis

from service.jobs import transitions

ALIVE_SECONDS = 20
"""Lifetime of an entry that is not renewed."""
RECENT_SECONDS = 0.25
"""Greatest age of the list of workers with which a submission is accepted."""


class WorkerInfo(BaseModel):
    """A worker that has loaded its prior and passed its canary computation."""

    model_config = ConfigDict(frozen=True)

    name: str
    prior: str
    device: str
    seconds_per_token: float
    """Measured seconds of one inner step, per token."""
    max_pixels: int
    """Largest restored picture it accepts, in pixels."""
    job_bytes: int
    """Device memory available to a job."""
    token_bytes: int
    """Device memory that a job needs per token."""
    checkpoints: tuple[str, ...] = ()
    """Downloaded checkpoints on its machine, by their names in the manifest."""


class WorkerRegistry:
    """The workers' entries: a hash of descriptions and a sorted set of expiry times."""

    def __init__(self, redis: Redis, prefix: str = "aps:") -> None:
        self.redis = redis
        self.prefix = prefix
        self._info = f"{prefix}workers"
        self._lapse = f"{prefix}workers:lapse"
        self._last = f"{prefix}workers:last"
        self._renew = redis.register_script(transitions.SCRIPTS["renew_worker"])
        self._live = redis.register_script(transitions.SCRIPTS["live_workers"])
        self._read: tuple[float, list[WorkerInfo]] = (-RECENT_SECONDS, [])

    def renew(self, worker: WorkerInfo) -> None:
        """Registers a worker, or renews its entry."""
        entry = (worker.name, worker.prior, worker.model_dump_json(), ALIVE_SECONDS)
        self._renew(keys=[self.prefix], args=entry)

    def remove(self, name: str) -> None:
        """Removes a worker's entry."""
        with self.redis.pipeline() as pipe:
            pipe.hdel(self._info, name)
            pipe.zrem(self._lapse, name)
            pipe.execute()

    def live(self) -> list[WorkerInfo]:
        """Workers whose entry has not expired; expired entries are removed."""
        entries = cast("list[bytes | None]", self._live(keys=[self.prefix], args=[""]))
        return [WorkerInfo.model_validate_json(entry) for entry in entries if entry is not None]

    def recent(self) -> list[WorkerInfo]:
        """As :meth:`live`, but up to ``RECENT_SECONDS`` old; costs no request if read before."""
        read_at, live = self._read
        if time.monotonic() - read_at >= RECENT_SECONDS:
            live = self.live()
            self._read = time.monotonic(), live
        return live

    def known(self) -> list[WorkerInfo]:
        """Live workers and, for priors without one, the last worker that was registered."""
        live = self.live()
        held = {worker.prior for worker in live}
        last = (
            WorkerInfo.model_validate_json(entry)
            for entry in cast("dict[bytes, bytes]", self.redis.hgetall(self._last)).values()
        )
        return [*live, *(worker for worker in last if worker.prior not in held)]
