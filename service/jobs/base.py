"""What every side of the job store shares: the client, the scripts, and reading a record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from redis import Redis

from service.jobs import transitions
from service.jobs.model import Job


class StoreBase:
    """The connection to the server, and the limits the transitions apply."""

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str = "aps:",
        lease_seconds: float = 30,
        ttl_seconds: int = 86_400,
        max_attempts: int = 3,
        max_job_seconds: float = 0,
    ) -> None:
        """``max_job_seconds``: longest attempt whose job is repeated when its worker is lost;
        0 = any.
        """
        self.redis, self.prefix = redis, prefix
        self.lease_seconds, self.ttl_seconds = lease_seconds, ttl_seconds
        self.max_attempts, self.max_job_seconds = max_attempts, max_job_seconds
        self._scripts = {
            name: redis.register_script(source) for name, source in transitions.SCRIPTS.items()
        }

    def get(self, job_id: str) -> Job | None:
        """The record, or None."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self._key(job_id)))
        return Job.from_hash(fields) if fields else None

    def now(self) -> datetime:
        """The store's clock, the only one that decides whether something is over."""
        return datetime.fromtimestamp(float(self._word("now", "")), UTC)

    def _run(self, script: str, job_id: str, *arguments: Any) -> Any:
        return self._scripts[script](keys=[self.prefix], args=[job_id, *arguments])

    def _word(self, script: str, job_id: str, *arguments: Any) -> str:
        return cast(bytes, self._run(script, job_id, *arguments)).decode()

    def _key(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"


def pairs(fields: dict[str, Any]) -> list[str]:
    """Field, value, field, value, as they lie in the record."""
    return [
        text
        for name, value in fields.items()
        if value is not None
        for text in (name, value if isinstance(value, str) else json.dumps(value))
    ]
