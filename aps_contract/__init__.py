"""The contract of the HTTP API: models that service, worker and client share. Pydantic only."""

from aps_contract.batches import MAX_PICTURES, BatchPicture, BatchView, PictureState
from aps_contract.estimates import EstimateRequest, EstimateView
from aps_contract.events import MAX_URL, WEBHOOK_EVENTS, Event, Webhook
from aps_contract.files import StoredPicture
from aps_contract.jobs import (
    ArtifactView,
    JobError,
    JobPage,
    JobState,
    JobView,
    Phase,
    Priority,
    Progress,
)
from aps_contract.problems import FieldError, Problem
from aps_contract.shares import LinkView, SharedView, ShareRequest

__all__ = [
    "MAX_PICTURES",
    "MAX_URL",
    "WEBHOOK_EVENTS",
    "ArtifactView",
    "BatchPicture",
    "BatchView",
    "EstimateRequest",
    "EstimateView",
    "Event",
    "FieldError",
    "JobError",
    "JobPage",
    "JobState",
    "JobView",
    "LinkView",
    "Phase",
    "PictureState",
    "Priority",
    "Problem",
    "Progress",
    "ShareRequest",
    "SharedView",
    "StoredPicture",
    "Webhook",
]
