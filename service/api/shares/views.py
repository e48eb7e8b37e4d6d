"""The view of a shared result."""

from __future__ import annotations

from datetime import datetime

from aps_contract import SharedView
from service.api.jobs.views import artifact_views
from service.jobs import Job


def shared_base(job_id: str) -> str:
    """Address under which a shared result and its files are found."""
    return f"/v1/shared/{job_id}"


def shared_view(job: Job, until: datetime) -> SharedView:
    """The view of a succeeded ``job`` for whoever has a link that lasts ``until`` then."""
    base, ours = shared_base(job.id), {"artifacts", "expires_at", "urls"}
    return SharedView(
        **job.model_dump(include=set(SharedView.model_fields) - ours),
        artifacts=artifact_views(base, job),
        expires_at=until,
        urls={"self": base, "steps": f"{base}/steps"},
    )
