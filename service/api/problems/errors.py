"""Errors that only the API raises, and the HTTP status of every error of the tree."""

from __future__ import annotations

from aps_core import errors
from service.access.rate_limit import RateLimited
from service.api.requests.headers import InvalidHeader, RangeNotSatisfiable
from service.egress.requests import EgressFailed, UrlRefused
from service.jobs import (
    IdempotencyConflict,
    NotNow,
    QueueFull,
    QuotaExceeded,
    StorageQuotaExceeded,
    StorageUnavailable,
    TooManyLinks,
)


class NotFound(errors.APSError):
    """No job, preview or artifact of that name."""

    code = "not_found"
    title = "Not found"


class MethodNotAllowed(errors.APSError):
    """The path does not support this method; ``Allow`` lists those it does."""

    code = "method_not_allowed"
    title = "Method not allowed"


class UnknownParameter(errors.APSError):
    """The path does not have this query parameter."""

    code = "unknown_parameter"
    title = "Unknown query parameter"


class Gone(errors.APSError):
    """The job or file has expired or been deleted."""

    code = "expired"
    title = "No longer available"


class JobFailed(errors.APSError):
    """A request that waits for its job's result gets none."""

    code = "job_failed"
    title = "The job has no result"


class NothingToShare(errors.APSError):
    """Only the result of a succeeded job can be shared."""

    code = "no_result"
    title = "The job has no result to share"


class SharingDisabled(errors.APSError):
    """The service makes no links to results."""

    code = "sharing_disabled"
    title = "Sharing by link is turned off"


class JobActive(errors.APSError):
    """A running job cannot be deleted."""

    code = "job_running"
    title = "The job is running"


class BodyTooLarge(errors.APSError):
    """The request's body, or one file in it, is larger than the limit."""

    code = "body_too_large"
    title = "The request is too large"


class BodyTimeout(errors.APSError):
    """The request's body arrived too slowly."""

    code = "body_timeout"
    title = "The request took too long to arrive"
    retryable = True


class UnsupportedBody(errors.APSError):
    """Neither multipart/form-data nor application/json."""

    code = "unsupported_media_type"
    title = "Unsupported media type"


class MalformedBody(errors.APSError):
    """The body does not match its content type, or a part is missing."""

    code = "malformed_body"
    title = "The request body cannot be read"


class NoWorker(errors.APSError):
    """No live worker holds the prior."""

    code = "no_worker"
    title = "No worker is available"
    retryable = True


class Unauthorized(errors.APSError):
    """The API key or session is missing, invalid, expired or revoked."""

    code = "unauthorized"
    title = "An API key is required"


class LinkInvalid(Unauthorized):
    """The link's token is missing or wrong, or the link has ended."""

    title = "The link is not valid"


class ScopeMissing(errors.APSError):
    """The key is valid but lacks a required scope."""

    code = "insufficient_scope"
    title = "The API key does not allow this"


class Misdirected(errors.APSError):
    """The request has a host name that is not allowed, or comes from another site's page."""

    code = "host_not_allowed"
    title = "The request's host or origin is not allowed"


class PriorNotLoaded(errors.APSError):
    """The prior is known, but this service does not offer it."""

    code = "prior_not_loaded"
    title = "The prior is not loaded"


class UnknownPicture(errors.APSError):
    """The tenant has no stored picture with this hash: it never existed or has expired."""

    code = "unknown_picture"
    title = "No picture with this hash is stored"

    def __init__(self, field: str, named: str) -> None:
        super().__init__(
            f"'{field}': you have no stored picture {named[:80]!r}. Use 'sha256:' and the 64"
            " hexadecimal digits from a job's artifacts or POST /v1/files. Stored pictures expire;"
            " if this one did, send it again."
        )
        self.at(field)


class Busy(errors.APSError):
    """The service is at a concurrency limit; the request may succeed later."""

    code = "busy"
    title = "The service is busy"
    retryable = True


class TooManyStreams(NotNow):
    """This client has reached its limit of open streams."""

    code = "too_many_streams"
    title = "Too many event streams"


STATUS: dict[type[errors.APSError], int] = {
    errors.InvalidSpec: 422,
    errors.NothingToRestore: 422,
    errors.ImageRejected: 422,
    errors.JobTooLong: 422,
    errors.WeightsMissing: 503,
    errors.WeightsInvalid: 503,
    errors.InsufficientMemory: 503,
    NotFound: 404,
    MethodNotAllowed: 405,
    UnknownParameter: 422,
    Gone: 410,
    JobActive: 409,
    NothingToShare: 409,
    BodyTooLarge: 413,
    BodyTimeout: 408,
    UnsupportedBody: 415,
    MalformedBody: 400,
    NoWorker: 503,
    PriorNotLoaded: 409,
    Busy: 503,
    UnknownPicture: 422,
    UrlRefused: 422,
    EgressFailed: 422,
    InvalidHeader: 400,
    Unauthorized: 401,
    ScopeMissing: 403,
    Misdirected: 403,
    SharingDisabled: 403,
    RangeNotSatisfiable: 416,
    IdempotencyConflict: 422,
    StorageUnavailable: 503,
    QuotaExceeded: 429,
    StorageQuotaExceeded: 429,
    RateLimited: 429,
    TooManyStreams: 429,
    TooManyLinks: 429,
    QueueFull: 503,
}
"""HTTP status of each branch of the error tree. A subclass inherits its nearest ancestor's; other
errors are 500.
"""


def status_of(error: errors.APSError) -> int:
    """HTTP status of an error of the tree."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
