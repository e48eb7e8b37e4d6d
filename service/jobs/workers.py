"""Which workers live, and what they can do: each one renews its entry until it stops."""

from __future__ import annotations

from typing import cast

from pydantic import BaseModel, ConfigDict
from redis import Redis

from service.jobs import transitions

ALIVE_SECONDS = 20
"""An entry not renewed for this long is dead."""


class WorkerInfo(BaseModel):
    """A worker that has loaded its prior and computed a canary."""

    model_config = ConfigDict(frozen=True)

    name: str
    prior: str
    device: str
    seconds_per_token: float
    """Measured cost of one inner step, per token."""
    max_pixels: int
    """Largest restored picture it takes."""
    job_bytes: int
    """Memory its device has left for a job."""
    token_bytes: int
    """Memory a job takes for every token."""
    checkpoints: tuple[str, ...] = ()
    """Downloaded weights on its machine, by their names in the manifest."""


class WorkerRegistry:
    """The workers' entries: a hash of descriptions and a sorted set of when they lapse."""

    def __init__(self, redis: Redis, prefix: str = "aps:") -> None:
        self.redis, self.prefix = redis, prefix
        self._info, self._lapse, self._last = (
            f"{prefix}workers",
            f"{prefix}workers:lapse",
            f"{prefix}workers:last",
        )
        self._renew = redis.register_script(transitions.SCRIPTS["renew_worker"])
        self._live = redis.register_script(transitions.SCRIPTS["live_workers"])

    def renew(self, worker: WorkerInfo) -> None:
        """Enters a worker, or keeps it alive."""
        entry = (worker.name, worker.prior, worker.model_dump_json(), ALIVE_SECONDS)
        self._renew(keys=[self.prefix], args=entry)

    def remove(self, name: str) -> None:
        """Takes a worker out at once."""
        with self.redis.pipeline() as pipe:
            pipe.hdel(self._info, name)
            pipe.zrem(self._lapse, name)
            pipe.execute()

    def live(self) -> list[WorkerInfo]:
        """Workers whose entry has not lapsed; lapsed ones are removed."""
        entries = cast("list[bytes | None]", self._live(keys=[self.prefix], args=[""]))
        return [WorkerInfo.model_validate_json(entry) for entry in entries if entry is not None]

    def known(self) -> list[WorkerInfo]:
        """Live workers, and for priors without one the last that lived."""
        live = self.live()
        held = {worker.prior for worker in live}
        last = (
            WorkerInfo.model_validate_json(entry)
            for entry in cast("dict[bytes, bytes]", self.redis.hgetall(self._last)).values()
        )
        return [*live, *(worker for worker in last if worker.prior not in held)]
