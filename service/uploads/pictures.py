"""The pictures of a job: sent as a file, as a URL, or by the content hash of a stored picture."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeGuard

from redis.exceptions import RedisError

from aps_contract import StoredPicture
from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis import Diagnosis
from aps_core.imaging.images import MaskCoverage
from service.api.problems.errors import UnknownPicture
from service.jobs import Artifact, ArtifactStore, KnownPictures, QuotaExceeded, new_job_id
from service.settings import Settings
from service.uploads.decoder import Decoder
from service.uploads.fetch_url import fetch
from service.uploads.lanes import Lane
from service.uploads.upload import Source, Upload

PREFIX = "sha256:"
"""Prefix of the content hash of a stored picture."""
REMEMBERED = 4096
"""Pictures of which a process remembers whether they are pages."""
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


def is_hash(sent: Source | str) -> TypeGuard[str]:
    """Whether a picture is named by its content hash."""
    return isinstance(sent, str) and sent.startswith(PREFIX)


@dataclass(frozen=True)
class Pictures:
    """Reads and stores pictures from clients."""

    settings: Settings
    decoder: Decoder
    artifacts: ArtifactStore
    known: KnownPictures
    fetching: Lane
    decoding: Lane
    _texts: dict[str, bool] = field(default_factory=dict)
    """Answers of :meth:`shows_text` by SHA-256, the latest last."""

    async def read(self, sent: Source | str, name: str, tenant: str) -> Upload:
        """Reads the picture of the slot ``name`` from a file or a URL.

        Raises:
            ImageRejected, BodyTooLarge: see :meth:`Decoder.sanitise`.
            UrlRefused, EgressFailed: see :func:`service.uploads.fetch_url.fetch`.
            Busy: the tenant or the service has too many pictures in progress.
        """
        if isinstance(sent, str):
            sent = await self.fetching.run(tenant, fetch, sent, name, self.settings)
        return await self.decoding.run(tenant, self.decoder.sanitise, sent, name, tenant)

    async def coverage(self, upload: Upload, name: str, tenant: str) -> MaskCoverage:
        """How much of the picture its mask keeps.

        Raises:
            ImageRejected, Busy: see :meth:`read`.
        """
        if upload.known is not None:
            return upload.known
        return await self.decoding.run(tenant, self.decoder.coverage, upload, name, tenant)

    async def check_kernel(self, upload: Upload, tenant: str) -> None:
        """Checks that a picture is a blur kernel.

        Raises:
            InvalidSpec: it is not, as all of it is black.
            ImageRejected, Busy: see :meth:`read`.
        """
        refusal = await self.decoding.run(tenant, self.decoder.kernel_refusal, upload, tenant)
        if refusal:
            raise InvalidSpec(refusal).at("kernel")

    async def shows_text(self, upload: Upload, name: str, tenant: str) -> bool:
        """Whether the picture is probably a page or screen. The last answers are remembered.

        Raises:
            ImageRejected, Busy: see :meth:`read`.
        """
        answer = self._texts.pop(upload.sha256, None)
        if answer is None:
            answer = await self.decoding.run(tenant, self.decoder.shows_text, upload, name, tenant)
        self._texts[upload.sha256] = answer
        if len(self._texts) > REMEMBERED:
            del self._texts[next(iter(self._texts))]
        return answer

    def put(self, job_id: str, name: str, upload: Upload) -> Artifact:
        """Stores the picture as a file of the job."""
        public = {"image": "measurement.png"}.get(name, f"{name}.png")
        if upload.holder:
            try:
                self.artifacts.copy(upload.holder, f"{upload.sha256}.png", job_id)
            except FileNotFoundError:  # it has just expired, but the open file can still be read
                pass
            else:
                return Artifact(
                    name=public,
                    file=f"{upload.sha256}.png",
                    media_type="image/png",
                    bytes=upload.length,
                )
        return self._put(job_id, public, upload)

    def _put(self, job_id: str, name: str, upload: Upload) -> Artifact:
        file = self.artifacts.put_upload(job_id, upload.file, upload.sha256, ".png")
        return Artifact(name=name, file=file, media_type="image/png", bytes=upload.length)

    async def diagnose(self, data: Source, tenant: str) -> Diagnosis:
        """What seems to have happened to a picture; nothing is stored.

        Raises:
            ImageRejected, BodyTooLarge, Busy: see :meth:`Decoder.sanitise`.
        """
        return await self.decoding.run(tenant, self.decoder.diagnosis, data, tenant)

    async def keep(self, data: Source, tenant: str, most_bytes: int = 0) -> StoredPicture:
        """Stores a picture for later jobs, if the tenant's storage stays within ``most_bytes``
        (0 = unlimited).

        Raises:
            ImageRejected, BodyTooLarge, Busy: see :meth:`Decoder.sanitise`.
            StorageUnavailable: the store is full or does not answer.
            QuotaExceeded: the tenant's limit of pictures or of bytes is reached.
        """
        return await self.decoding.run(tenant, self._keep, data, tenant, most_bytes)

    def _keep(self, data: Source, tenant: str, most_bytes: int) -> StoredPicture:
        upload = self.decoder.sanitise(data, "", tenant)
        with upload.file:
            return self._kept(upload, tenant, most_bytes)

    def _kept(self, upload: Upload, tenant: str, most_bytes: int) -> StoredPicture:
        upload_id = new_job_id()
        stored = self._put(upload_id, "image.png", upload)
        try:
            self.known.keep(upload_id, tenant, stored, self.settings.max_stored, most_bytes)
        except (QuotaExceeded, RedisError):
            self.artifacts.delete(upload_id)
            raise
        expires = datetime.now(UTC) + timedelta(seconds=self.settings.job_ttl_seconds)
        width, height = upload.size
        shape = {"width": width, "height": height, "has_alpha": upload.picture.has_alpha}
        return StoredPicture(
            sha256=upload.sha256,
            media_type=stored.media_type,
            bytes=stored.bytes,
            expires_at=expires,
            **shape,
        )

    def stored(self, named: str, name: str, tenant: str) -> Upload:
        """Opens a stored picture of the tenant by ``sha256:`` and its hash.

        Raises:
            UnknownPicture: the tenant has no picture with this hash.
        """
        found = _HASH.fullmatch(named)
        sha256 = found[1] if found else ""
        for holder in self.known.holders(tenant, sha256):
            try:
                file, size = self.artifacts.open(holder, f"{sha256}.png")
                return Upload(file, sha256, size, holder=holder)
            except FileNotFoundError:
                continue
        raise UnknownPicture(name, named)
