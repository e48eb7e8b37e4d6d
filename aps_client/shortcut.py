"""Restoring a picture with one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aps_client.flows import Source
from aps_client.models import Result
from aps_client.sync import Client


def restore(
    image: Source,
    operator: str | Mapping[str, Any] = "denoise",
    *,
    server: str | None = None,
    api_key: str | None = None,
    **spec: Any,
) -> Result:
    """Restores a picture with one call: opens a client, submits, waits and downloads.

    Args:
        image: the degraded picture: path, bytes or open binary file.
        operator: the degradation: a name, or a mapping with ``type`` and the operator's fields.
        server: URL of the service. Default: ``APS_SERVER``, else ``http://127.0.0.1:8000``.
        api_key: API key. Default: ``APS_API_KEY``.
        spec: ``mask``, ``timeout`` (seconds) and other fields of the restore spec.

    Raises:
        JobFailed, JobCanceled: the job ended without a result.
        WaitTimeout: the job is still unfinished after ``timeout`` seconds; it keeps running.
        ServiceError, Unreachable, Corrupt: a request or a download failed.
    """
    with Client(server, api_key) as client:
        return client.restore(image, operator, **spec)
