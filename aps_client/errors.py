"""Every error of the client, as a branch of the library's own tree.

    APSError
    └── ClientError
        ├── ServiceError          the service answered with a problem (RFC 9457)
        │   ├── InvalidRequest    400, 413, 415, 416, 422: the request has to change
        │   ├── Forbidden         401, 403: the API key is missing, unknown, or lacks a scope
        │   ├── NotFound          404
        │   ├── Conflict          409: not in the job's present state
        │   ├── Expired           410: it was there
        │   └── Unavailable       429, 5xx: the service cannot do it now
        ├── JobFailed             the job ended without a result
        │   └── JobCanceled
        ├── WaitTimeout           the job is not over yet, and goes on
        ├── Unreachable           no answer at all
        ├── Corrupt               a download that is not what the service stored
        └── WebhookRejected       a message that is not the service's

``code`` is the service's own word, stable and machine-readable: ``image_too_large``, ``no_worker``,
...
"""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from aps_core.errors import APSError
from service.api.views import JobView, Problem


class ClientError(APSError):
    """Base class. Here ``code``, ``title`` and ``retryable`` belong to the instance."""

    code = "client_error"
    title = "The client cannot go on"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retryable = retryable  # type: ignore[misc]  # the server's word for this one case


class ServiceError(ClientError):
    """The service answered with a problem; ``problem`` is the whole of it."""

    def __init__(self, problem: Problem, retry_after: float = 0) -> None:
        super().__init__(problem.detail, code=problem.code, retryable=problem.retryable)
        self.problem = problem
        self.retry_after = retry_after
        """Seconds after which the service wants to be asked again; 0 if it did not say."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def request_id(self) -> str:
        """What to quote to whoever runs the service."""
        return self.problem.request_id


class InvalidRequest(ServiceError):
    """The request has to change; ``problem.errors`` points at the fields."""


class Forbidden(ServiceError):
    """The API key is missing, unknown, or lacks a scope."""


class NotFound(ServiceError):
    """No job, preview or file of that name."""


class Conflict(ServiceError):
    """Not possible in the job's present state."""


class Expired(ServiceError):
    """It was there, and has been removed."""


class Unavailable(ServiceError):
    """The service cannot do it now."""


class JobFailed(ClientError):
    """The job ended without a result; ``job.error`` says why."""

    def __init__(self, job: JobView) -> None:
        told = job.error
        super().__init__(
            f"Job {job.id} {job.state}" + (f": {told.detail}" if told else "."),
            code=told.code if told else job.state.value,
            retryable=bool(told and told.retryable),
        )
        self.job = job


class JobCanceled(JobFailed):
    """The job was canceled."""


class WaitTimeout(ClientError):
    """The job is not over yet; it goes on, and ``job`` can be waited for again."""

    code = "wait_timeout"

    def __init__(self, job: JobView, seconds: float) -> None:
        super().__init__(
            f"Job {job.id} is still {job.state} after {seconds:g} s; it goes on. Wait for it again,"
            " or cancel it.",
            retryable=True,
        )
        self.job = job


class Unreachable(ClientError):
    """Nobody answered, or not in time."""

    code = "unreachable"

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class Corrupt(ClientError):
    """A download does not have the SHA-256 that the service announced."""

    code = "corrupt_download"


class WebhookRejected(ClientError):
    """A message without a valid signature, too old, or not a job's."""

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
    """The error that an answer of status 400 and above stands for; also of proxies that know
    nothing of problems.
    """
    status = answer.status_code
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        phrase = answer.reason_phrase or f"status {status}"
        detail = (
            f"{answer.request.url.host} answered {status} {phrase} without saying why; is it this"
            " service?"
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
    """Value of a ``Retry-After`` that is a number; 0 otherwise."""
    return float(header) if header is not None and header.isdecimal() else 0.0
