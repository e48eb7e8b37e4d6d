"""Links to results: the job store keeps the hash of each link's token and the time it ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from service.jobs.admission import NotNow
from service.jobs.base import StoreBase


class TooManyLinks(NotNow):
    """The result has as many links as it may have."""

    code = "too_many_links"
    title = "Too many links to this result"


class ShareSide(StoreBase):
    """Operations of links to results."""

    def share(
        self, job_id: str, digest: str, seconds: float, most: int
    ) -> datetime | Literal["no result", "expired"]:
        """Makes a link to a job's result; returns when it ends, which is not after the result's
        files expire, or why there is none.

        Args:
            job_id: The job.
            digest: Hash of the link's token.
            seconds: Lifetime of the link.
            most: Maximum number of links to a result.

        Raises:
            TooManyLinks: the result already has ``most`` links.
        """
        word, value = (raw.decode() for raw in self._run("share", job_id, digest, seconds, most))
        if word == "full":
            raise TooManyLinks(
                f"This result already has {most} links, which is the limit; end them, or wait for"
                " one to end.",
                float(value),
            )
        if word == "shared":
            return datetime.fromtimestamp(float(value), UTC)
        return "expired" if word == "expired" else "no result"

    def shared_until(self, job_id: str, digest: str) -> datetime | None:
        """When the link with this hash ends; None if it does not exist or has ended."""
        ends = self._word("shared", job_id, digest)
        return datetime.fromtimestamp(float(ends), UTC) if ends else None

    def unshare(self, job_id: str) -> None:
        """Ends all links to the job's result."""
        self._run("unshare", job_id)
