"""All limits of the service, configurable or fixed, and the response when each is exceeded.

:func:`table` renders the documentation's table of limits; a test checks that it is complete.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings

from aps_core.imaging.images import MAX_PIXELS

ANSWER = "x-exceeded"
"""JSON Schema key for the response when a limit of :class:`Limits` is exceeded."""


def _limit(default: Any, description: str, answer: str, **bounds: Any) -> Any:
    return Field(
        default=default, description=description, json_schema_extra={ANSWER: answer}, **bounds
    )


class Limits(BaseSettings):
    """Limits per principal and for the whole service; the base of :class:`Settings`."""

    requests_per_second: float = _limit(
        50, "Requests of one principal per second, on average.", "429 `rate_limited`", gt=0
    )
    request_burst: int = _limit(
        200, "Requests of one principal in a burst.", "429 `rate_limited`", ge=1
    )
    max_streams: int = _limit(
        100,
        "Event streams of one principal at a time, in each API process.",
        "429 `too_many_streams`; `Prefer: wait` is not applied",
        ge=1,
    )
    max_queued: int = _limit(200, "Queued jobs of one principal.", "429 `quota_exceeded`", ge=1)
    max_running: int | None = _limit(
        None,
        "Running jobs of one principal at a time; unlimited by default.",
        "its other jobs stay queued; other principals' jobs run",
        ge=1,
    )
    max_own_backlog_seconds: float = _limit(
        7200,
        "Predicted seconds of one principal's unfinished jobs of one prior, above which new jobs"
        " are refused; 0 = unlimited.",
        "429 `quota_exceeded`",
        ge=0,
    )
    max_backlog_seconds: float = _limit(
        21_600,
        "Predicted seconds of all unfinished jobs of one prior, above which new jobs are refused;"
        " 0 = unlimited.",
        "503 `queue_full`",
        ge=0,
    )
    max_stored: int = _limit(
        1000,
        "Pictures of one principal stored for later jobs (POST /v1/files).",
        "429 `quota_exceeded`",
        ge=0,
    )
    max_stored_bytes: int = _limit(
        10_000_000_000,
        "Bytes of one principal's stored pictures, previews and results; 0 = unlimited.",
        "429 `storage_quota_exceeded`",
        ge=0,
    )
    max_job_seconds: int = _limit(
        1800,
        "Maximum duration of a job: predicted at submission, and measured while it runs.",
        "422 `job_too_long`; the job fails: `time_limit_exceeded`",
        ge=1,
    )
    max_attempts: int = _limit(
        3, "Attempts of a job without a finished step.", "the job fails: `worker_lost`", ge=1
    )
    max_pixels: int | None = _limit(
        None,
        "Largest restored picture, in pixels; by default 512x512 on CPU, 2048x2048 on CUDA.",
        "422 `image_too_large`",
        ge=1024,
    )
    memory_bytes: int | None = _limit(
        None,
        "Memory of a worker's device, in bytes; by default the device's own figure.",
        "503 `insufficient_memory`",
        ge=1,
    )
    max_upload_bytes: int = _limit(
        25_000_000, "Largest picture file, in bytes.", "413 `body_too_large`", ge=1
    )
    max_upload_pixels: int = _limit(
        MAX_PIXELS,
        "Largest uploaded picture, in pixels, before any downscaling.",
        "422 `too_many_pixels`",
        ge=1,
    )
    decode_seconds: int = _limit(
        10,
        "CPU seconds for decoding an upload.",
        "422 `image_rejected`",
        ge=1,
    )
    decode_bytes: int = _limit(
        2_000_000_000,
        "Address space of the decoding process, in bytes.",
        "422 `image_rejected`",
        ge=1,
    )
    fetch_seconds: float = _limit(
        20, "Seconds to fetch a picture by its URL, including redirects.", "422", gt=0
    )
    body_seconds: float = _limit(
        120, "Seconds within which a request body must arrive.", "408 `body_timeout`", gt=0
    )
    body_pause_seconds: float = _limit(
        10, "Longest pause within a request body, in seconds.", "408 `body_timeout`", gt=0
    )
    body_bytes_per_second: int = _limit(
        32_000_000,
        "Bytes of one principal's request bodies that an API process reads per second.",
        "reading slows down",
        ge=1_000_000,
    )
    max_bodies_bytes: int = _limit(
        128_000_000,
        "Bytes of all request bodies that an API process holds at a time; one principal may use"
        " a third, or one body of the maximum size if that is more.",
        "503 `busy`",
        ge=1,
    )
    job_ttl_seconds: int = _limit(
        86_400, "Seconds for which a finished job's artifacts are kept.", "410 `expired`", ge=60
    )
    max_share_seconds: int = _limit(
        604_800,
        "Longest lifetime of a link to a result, in seconds; it also ends with the result's files."
        " 0: no links.",
        "the lifetime is shortened; with 0, 403 `sharing_disabled`",
        ge=0,
    )
    webhook_timeout_seconds: float = _limit(
        15, "Seconds for a webhook receiver to respond.", "the message is retried", gt=0
    )
    webhook_retry_seconds: list[float] = _limit(
        [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400],
        "Pauses between webhook attempts, in seconds, plus up to 20 % of jitter.",
        "the delivery is `failed`",
    )


def table() -> str:
    """Renders the limits as a Markdown table: limit, default, setting, response when exceeded."""
    rows = [
        (info.description or "", _shown(info.default), f"`APS_{name.upper()}`", _answer(info))
        for name, info in Limits.model_fields.items()
    ]
    rows += [(what, value, "fixed", answer) for what, value, answer in _constants()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = ["| limit | default | setting | response when exceeded |", "|---|---|---|---|"]
    return "\n".join([*head, *lines])


def _answer(info: Any) -> str:
    return str(info.json_schema_extra[ANSWER])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"{len(value)} pauses, {sum(value) / 3600:.3g} h in total"
    return f"{value:,}"


def _constants() -> list[tuple[str, str, str]]:
    from service.access.keys import ACTIVE_KEYS
    from service.access.links import MAX_LINKS
    from service.access.sessions import MAX_SESSIONS, SESSION_SECONDS
    from service.api.batch_accept import MAX_SECONDS
    from service.api.batch_views import MAX_PICTURES
    from service.api.headers import MAX_DEADLINE_SECONDS, MAX_WAIT_SECONDS
    from service.api.problems import MAX_ANSWER_BYTES, MAX_ERRORS
    from service.api.streams import MAX_STREAMS
    from service.api.submit import MAX_SPEC_BYTES, MAX_VALUES
    from service.jobs.admission import Terms
    from service.jobs.batches import KEPT_SECONDS
    from service.jobs.model import MAX_URL, WEBHOOK_EVENTS
    from service.uploads.fetch_url import CONCURRENT_FETCHES
    from service.uploads.lanes import MAX_WAITING

    busy = "503 `busy`"
    return [
        (
            "Bytes of a spec: its form part, or the JSON body without pictures.",
            f"{MAX_SPEC_BYTES:,}",
            "413 `body_too_large`",
        ),
        ("Values in a JSON document.", f"{MAX_VALUES:,}", "413 `body_too_large`"),
        ("Lists, strings and numbers of a spec: see its schema.", "-", "422 `invalid_spec`"),
        ("Errors listed in one response.", str(MAX_ERRORS), "the others are only counted"),
        ("Bytes of a problem document.", f"{MAX_ANSWER_BYTES:,}", "fewer errors are listed"),
        (
            "Event streams of an API process, limited by its file descriptors.",
            f"{MAX_STREAMS:,} at most",
            busy,
        ),
        (
            "Pictures decoded at a time; at most half of them for one principal.",
            "one per core, 2 to 8",
            busy,
        ),
        (
            "URLs fetched at a time; at most half of them for one principal.",
            str(CONCURRENT_FETCHES),
            busy,
        ),
        ("Pictures or URLs of one principal waiting for that.", str(MAX_WAITING), busy),
        ("Seconds of `Prefer: wait`.", str(MAX_WAIT_SECONDS), "the wait is capped"),
        ("Seconds of `Cancel-After`.", f"{MAX_DEADLINE_SECONDS:,}", "400 `invalid_header`"),
        (
            "Seconds for which an `Idempotency-Key` is remembered.",
            f"{Terms.idempotency_seconds:,}",
            "the request creates a new job",
        ),
        ("Pictures of a batch.", str(MAX_PICTURES), "422 `invalid_spec`"),
        (
            "Seconds for accepting the pictures of a batch.",
            f"{MAX_SECONDS:g}",
            "the others are refused with `busy`; the request can be repeated",
        ),
        (
            "Seconds for which a batch is kept after it was last read.",
            f"{KEPT_SECONDS:,}",
            "404 `not_found`; its jobs stay",
        ),
        ("Kinds of webhook messages of a job.", str(len(WEBHOOK_EVENTS)), "422 `invalid_spec`"),
        ("Characters of a webhook URL.", f"{MAX_URL:,}", "422 `invalid_spec`"),
        ("Webhook messages of one job.", "1,000", "progress is dropped, the final one is sent"),
        ("Events kept for one job.", "2,000", "the oldest are dropped"),
        ("Jobs on a page of `GET /v1/jobs`.", "100", "422 `invalid_spec`"),
        ("Active keys of one principal.", str(ACTIVE_KEYS), "`aps keys create` fails"),
        ("Browser sessions of one key.", str(MAX_SESSIONS), "the oldest session ends"),
        ("Links to one result.", str(MAX_LINKS), "429 `too_many_links`"),
        ("Seconds of a browser session.", f"{SESSION_SECONDS:,}", "401 `unauthorized`"),
    ]
