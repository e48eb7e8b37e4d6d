"""Client of the service, synchronous and asynchronous. Needs no torch.

    import aps_client

    aps_client.restore("blurred.jpg", "gaussian_blur").save("sharp.png")

:class:`Client` and :class:`AsyncClient` do the same in steps: submit, follow, download. Job,
batch and problem models are those of :mod:`aps_contract`, which the service sends, so both ends
agree by construction.
"""

from aps_client.aio import AsyncClient
from aps_client.connection import Connection, Retry
from aps_client.errors import (
    BatchTimeout,
    ClientError,
    Conflict,
    Corrupt,
    Expired,
    Forbidden,
    InvalidArgument,
    InvalidRequest,
    JobCanceled,
    JobFailed,
    NotFound,
    NotWritten,
    ServiceError,
    Unavailable,
    Unreachable,
    WaitTimeout,
    WebhookRejected,
)
from aps_client.models import Batch, Job, Link, Preview, Result
from aps_client.shortcut import restore
from aps_client.sync import Client
from aps_client.webhooks import WebhookEvent, verify_webhook
from aps_contract import Event, StoredPicture

__all__ = [
    "AsyncClient",
    "Batch",
    "BatchTimeout",
    "Client",
    "ClientError",
    "Conflict",
    "Connection",
    "Corrupt",
    "Event",
    "Expired",
    "Forbidden",
    "InvalidArgument",
    "InvalidRequest",
    "Job",
    "JobCanceled",
    "JobFailed",
    "Link",
    "NotFound",
    "NotWritten",
    "Preview",
    "Result",
    "Retry",
    "ServiceError",
    "StoredPicture",
    "Unavailable",
    "Unreachable",
    "WaitTimeout",
    "WebhookEvent",
    "WebhookRejected",
    "restore",
    "verify_webhook",
]
