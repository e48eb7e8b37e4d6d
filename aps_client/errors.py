"""Exceptions of the client. All derive from the library's base class.

    APSError
    └── ClientError
        ├── ServiceError          the service returned a problem document (RFC 9457)
        │   ├── InvalidRequest    400, 413, 415, 416, 422: correct the request
        │   ├── Forbidden         401, 403: the API key is missing, unknown, or lacks a scope
        │   ├── NotFound          404
        │   ├── Conflict          409: not possible in the job's current state
        │   ├── Expired           410: removed
        │   └── Unavailable       429, 5xx: the service cannot handle the request now
        ├── JobFailed             the job ended without a result
        │   └── JobCanceled
        ├── WaitTimeout           the job has not ended yet; it keeps running
        ├── BatchTimeout          the same for the jobs of a batch
        ├── Unreachable           no response
        ├── Corrupt               a download whose hash does not match
        ├── NotWritten            a file could not be written; also an OSError
        ├── InvalidArgument       the address, API key or picture cannot be used; nothing was sent
        └── WebhookRejected       a webhook that could not be verified

``code`` is the service's stable, machine-readable error code: ``image_too_large``, ``no_worker``,
...
"""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from aps_contract import BatchView, JobView, Problem
from aps_core.errors import APSError, InvalidSpec


class ClientError(APSError):
    """Base class. ``code`` and ``retryable`` are set per instance.

    Args:
        message: description of the error.
        code: machine-readable code; default: that of the class.
        retryable: whether the same call may succeed later.
    """

    code = "client_error"
    title = "The client request failed"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retryable = retryable  # type: ignore[misc]  # as the server reports


class ServiceError(ClientError):
    """The service returned an error.

    Args:
        problem: the complete problem document.
        retry_after: seconds after which the service accepts a retry; 0 if it named none.
    """

    def __init__(self, problem: Problem, retry_after: float = 0) -> None:
        super().__init__(problem.detail, code=problem.code, retryable=problem.retryable)
        self.problem = problem
        self.retry_after = retry_after

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self.problem.status

    @property
    def request_id(self) -> str:
        """Id of the request in the service's logs; quote it in bug reports."""
        return self.problem.request_id


class InvalidRequest(ServiceError):
    """The request is invalid; ``problem.errors`` lists the fields to correct."""


class Forbidden(ServiceError):
    """The API key is missing, unknown, or lacks a scope."""


class NotFound(ServiceError):
    """No such job, preview or file."""


class Conflict(ServiceError):
    """Not possible in the job's current state."""


class Expired(ServiceError):
    """The job or file existed and was removed."""


class Unavailable(ServiceError):
    """The service cannot handle the request now; try again later."""


class JobFailed(ClientError):
    """The job ended without a result; ``job.error`` gives the reason."""

    def __init__(self, job: JobView) -> None:
        error = job.error
        super().__init__(
            f"Job {job.id} {job.state}" + (f": {error.detail}" if error else "."),
            code=error.code if error else job.state.value,
            retryable=bool(error and error.retryable),
        )
        self.job = job


class JobCanceled(JobFailed):
    """The job was canceled."""


class WaitTimeout(ClientError):
    """The timeout expired before the job ended. The job keeps running; wait for ``job`` again."""

    code = "wait_timeout"

    def __init__(self, job: JobView, seconds: float) -> None:
        super().__init__(
            f"Job {job.id} is still {job.state} after {seconds:g} s. It keeps running; wait again"
            " or cancel it.",
            retryable=True,
        )
        self.job = job


class BatchTimeout(ClientError):
    """The timeout expired before all jobs of the batch ended. They keep running."""

    code = "wait_timeout"

    def __init__(self, batch: BatchView, seconds: float) -> None:
        super().__init__(
            f"Batch {batch.id} is not finished after {seconds:g} s. Its jobs keep running; wait"
            " again or cancel it.",
            retryable=True,
        )
        self.batch = batch


class Unreachable(ClientError):
    """The service did not respond, or not within the timeout."""

    code = "unreachable"

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class Corrupt(ClientError):
    """The SHA-256 of a download does not match the one the service announced."""

    code = "corrupt_download"


class NotWritten(ClientError, OSError):
    """A file could not be written; the message names it and says why."""

    code = "not_written"


class InvalidArgument(ClientError, InvalidSpec):
    """The address, the API key or a picture cannot be used; nothing was sent."""

    code = "invalid_argument"


class WebhookRejected(ClientError):
    """A webhook without a valid signature or job, or with a timestamp outside the tolerance."""

    code = "webhook_rejected"


_KINDS: dict[int, type[ServiceError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: Unavailable,
}


def error_of(answer: httpx.Response) -> ServiceError:
    """Converts an error response to an exception.

    Args:
        answer: response of status 400 or above. Responses of intermediate proxies, which are not
            problem documents, are accepted as well.
    """
    status = answer.status_code
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        phrase = answer.reason_phrase or f"status {status}"
        detail = (
            f"{answer.request.url.host} returned {status} {phrase} without details. Check that the"
            " address is that of an APS service."
        )
        problem = Problem(
            type="about:blank",
            title=phrase,
            status=status,
            detail=detail,
            code=f"http_{status}",
            retryable=status in (429, 502, 503, 504),
        )
    kind = _KINDS.get(status, Unavailable if status >= 500 else InvalidRequest)
    return kind(problem, seconds(answer.headers.get("retry-after")))


def seconds(header: str | None) -> float:
    """Seconds of a numeric ``Retry-After`` header; 0 if it is absent or a date."""
    return float(header) if header is not None and header.isdecimal() else 0.0
