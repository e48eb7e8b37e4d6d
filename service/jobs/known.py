"""Index of stored pictures by SHA-256: which jobs and uploads hold a given picture."""

from __future__ import annotations

from typing import cast

from redis import Redis

from service.jobs import transitions
from service.jobs.admission import QuotaExceeded, StorageQuotaExceeded
from service.jobs.model import Artifact


class KnownPictures:
    """Per-tenant index of the pictures in the tenant's jobs (inputs and results) and uploads."""

    def __init__(self, redis: Redis, prefix: str, ttl_seconds: int) -> None:
        self.redis = redis
        self.prefix = prefix
        self.ttl_seconds = ttl_seconds
        self._keep = redis.register_script(transitions.SCRIPTS["keep"])
        self._holders = redis.register_script(transitions.SCRIPTS["holders"])

    def keep(
        self, upload_id: str, tenant: str, stored: Artifact, most: int, most_bytes: int
    ) -> None:
        """Indexes an uploaded picture for ``ttl_seconds``, like the files of a finished job. (The
        transitions index the pictures of jobs.)

        Raises:
            QuotaExceeded: the tenant already has ``most`` uploads.
            StorageQuotaExceeded: the tenant's jobs and uploads would exceed ``most_bytes``.
        """
        limits = (self.ttl_seconds, stored.bytes, most, most_bytes)
        word, *value = self._keep(
            keys=[self.prefix], args=[upload_id, tenant, stored.file, *limits]
        )
        if word == b"bytes":
            raise StorageQuotaExceeded(value[0], most_bytes)
        if word == b"number":
            raise QuotaExceeded(
                f"{most} of your pictures are stored, which is your limit; the oldest expires in"
                f" {value[0]} s.",
                value[0],
            )

    def keeps(self, upload_id: str) -> bool:
        """Whether an upload has not expired yet."""
        return bool(self.redis.exists(f"{self.prefix}upload:{upload_id}"))

    def holders(self, tenant: str, sha256: str) -> list[str]:
        """Jobs and uploads of the tenant that hold this picture, latest expiry first."""
        found = cast("list[bytes]", self._holders(keys=[self.prefix], args=[tenant, sha256]))
        return [raw.decode() for raw in found]
