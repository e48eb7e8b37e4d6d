"""Base of the job store: the Redis client, the Lua scripts, and reading a record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from redis import Redis

from service.jobs import transitions
from service.jobs.model import Job


class StoreBase:
    """The connection to the server and the limits that the transitions apply."""

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
        """
        Args:
            redis: Client of the server.
            prefix: Prefix of every key.
            lease_seconds: A worker that does not renew its claim for this long loses the job.
            ttl_seconds: How long the files of a finished job are kept.
            max_attempts: Starts without a finished step before a job is given up.
            max_job_seconds: A job lost after computing longer than this is failed rather than
                repeated; 0 = unlimited.
        """
        self.redis = redis
        self.prefix = prefix
        self.lease_seconds = lease_seconds
        self.ttl_seconds = ttl_seconds
        self.max_attempts = max_attempts
        self.max_job_seconds = max_job_seconds
        self._scripts = {
            name: redis.register_script(source) for name, source in transitions.SCRIPTS.items()
        }

    def get(self, job_id: str) -> Job | None:
        """The record, or None."""
        fields = cast("dict[bytes, bytes]", self.redis.hgetall(self._key(job_id)))
        return Job.from_hash(fields) if fields else None

    def now(self) -> datetime:
        """The store's clock. All expiry decisions use it, never a process's own clock."""
        return datetime.fromtimestamp(float(self._word("now", "")), UTC)

    def _run(self, script: str, job_id: str, *arguments: Any) -> Any:
        return self._scripts[script](keys=[self.prefix], args=[job_id, *arguments])

    def _word(self, script: str, job_id: str, *arguments: Any) -> str:
        return cast(bytes, self._run(script, job_id, *arguments)).decode()

    def _key(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"


def pairs(fields: dict[str, Any]) -> list[str]:
    """Flattens fields to [name, value, name, value, ...] as stored in the record; skips None."""
    return [
        text
        for name, value in fields.items()
        if value is not None
        for text in (name, value if isinstance(value, str) else json.dumps(value))
    ]
