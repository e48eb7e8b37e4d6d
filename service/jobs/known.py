"""Stored pictures by their content: who holds the one a client names by its SHA-256."""

from __future__ import annotations

from typing import cast

from redis import Redis

from service.jobs import transitions
from service.jobs.admission import QuotaExceeded, StorageQuotaExceeded
from service.jobs.model import Artifact


class KnownPictures:
    """Every tenant knows the pictures of its own jobs, inputs and results, and of its uploads;
    nobody else's.
    """

    def __init__(self, redis: Redis, prefix: str, ttl_seconds: int) -> None:
        self.redis, self.prefix, self.ttl_seconds = redis, prefix, ttl_seconds
        self._keep = redis.register_script(transitions.SCRIPTS["keep"])
        self._holders = redis.register_script(transitions.SCRIPTS["holders"])

    def keep(
        self, upload_id: str, tenant: str, stored: Artifact, most: int, most_bytes: int
    ) -> None:
        """Makes an uploaded picture known, for as long as the files of a finished job are kept.
        (Those of jobs are made known by the transitions.)

        Raises:
            QuotaExceeded: the tenant has ``most`` of them already.
            StorageQuotaExceeded: its jobs and uploads would take more than ``most_bytes``.
        """
        limits = (self.ttl_seconds, stored.bytes, most, most_bytes)
        word, *value = self._keep(
            keys=[self.prefix], args=[upload_id, tenant, stored.file, *limits]
        )
        if word == b"bytes":
            raise StorageQuotaExceeded(value[0], most_bytes)
        if word == b"number":
            raise QuotaExceeded(
                f"{most} of your pictures are stored already, as many as you may have; the oldest"
                f" goes in {value[0]} s.",
                value[0],
            )

    def keeps(self, upload_id: str) -> bool:
        """Whether an upload's time is not over."""
        return bool(self.redis.exists(f"{self.prefix}upload:{upload_id}"))

    def holders(self, tenant: str, sha256: str) -> list[str]:
        """Jobs and uploads of the tenant that hold this picture, the one that is kept longest
        first.
        """
        found = cast("list[bytes]", self._holders(keys=[self.prefix], args=[tenant, sha256]))
        return [raw.decode() for raw in found]
