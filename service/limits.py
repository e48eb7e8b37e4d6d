"""Every limit of the service: its setting, or the constant it is, and the answer beyond it.

:func:`table` is the documentation's table of limits; a test holds that nothing is missing from it.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings

from aps_core.imaging.images import MAX_PIXELS

ANSWER = "x-exceeded"
"""Where a field of :class:`Limits` keeps the answer to whoever exceeds it."""


def _limit(default: Any, description: str, answer: str, **bounds: Any) -> Any:
    return Field(
        default=default, description=description, json_schema_extra={ANSWER: answer}, **bounds
    )


class Limits(BaseSettings):
    """What one principal, or everybody together, may use; part of :class:`Settings`."""

    requests_per_second: float = _limit(
        50, "Requests of one principal a second, on average.", "429 `rate_limited`", gt=0
    )
    request_burst: int = _limit(
        200, "Requests of one principal at once, after a pause.", "429 `rate_limited`", ge=1
    )
    max_streams: int = _limit(
        100,
        "Event streams of one principal at a time, in each API process.",
        "429 `too_many_streams`; `Prefer: wait` is not applied",
        ge=1,
    )
    max_queued: int = _limit(200, "Waiting jobs of one principal.", "429 `quota_exceeded`", ge=1)
    max_running: int | None = _limit(
        None,
        "Jobs of one principal that run at a time; by default any number.",
        "its other jobs wait; other principals' run",
        ge=1,
    )
    max_own_backlog_seconds: float = _limit(
        7200,
        "Predicted seconds of one principal's unfinished jobs of one prior, above which no more"
        " are let in; 0 = any.",
        "429 `quota_exceeded`",
        ge=0,
    )
    max_backlog_seconds: float = _limit(
        21_600,
        "Predicted seconds of everybody's unfinished jobs of one prior, above which no more are"
        " let in; 0 = any.",
        "503 `queue_full`",
        ge=0,
    )
    max_stored: int = _limit(
        1000,
        "Pictures of one principal that are stored for jobs to come (POST /v1/files).",
        "429 `quota_exceeded`",
        ge=0,
    )
    max_stored_bytes: int = _limit(
        10_000_000_000,
        "Bytes of one principal's stored pictures, previews and results, as they are stored;"
        " 0 = any.",
        "429 `storage_quota_exceeded`",
        ge=0,
    )
    max_job_seconds: int = _limit(
        1800,
        "Longest job: predicted, at submission; measured, while it runs.",
        "422 `job_too_long`; the job fails: `time_limit_exceeded`",
        ge=1,
    )
    max_attempts: int = _limit(
        3, "Starts of a job without any progress.", "the job fails: `worker_lost`", ge=1
    )
    max_pixels: int | None = _limit(
        None,
        "Largest restored picture, in pixels; by default 512x512 on CPU, 2048x2048 on CUDA.",
        "422 `image_too_large`",
        ge=1024,
    )
    memory_bytes: int | None = _limit(
        None,
        "Memory of a worker's device, in bytes; by default what the device reports.",
        "503 `insufficient_memory`",
        ge=1,
    )
    max_upload_bytes: int = _limit(
        25_000_000, "Largest picture file, in bytes.", "413 `body_too_large`", ge=1
    )
    max_upload_pixels: int = _limit(
        MAX_PIXELS,
        "Largest uploaded picture, in pixels, before any reduction.",
        "422 `too_many_pixels`",
        ge=1,
    )
    decode_seconds: int = _limit(
        10,
        "CPU seconds and memory (below) an upload may use while it is decoded.",
        "422 `image_rejected`",
        ge=1,
    )
    decode_bytes: int = _limit(
        2_000_000_000, "Address space of the decoding process.", "422 `image_rejected`", ge=1
    )
    fetch_seconds: float = _limit(
        20, "Time to fetch a picture by its address, redirects included.", "422", gt=0
    )
    body_seconds: float = _limit(
        120, "Time in which a request's body must arrive.", "408 `body_timeout`", gt=0
    )
    body_pause_seconds: float = _limit(
        10, "Longest pause within a request's body.", "408 `body_timeout`", gt=0
    )
    max_bodies_bytes: int = _limit(
        128_000_000,
        "Bytes of all requests' bodies that an API process holds at a time; a principal's share is"
        " a third, or one largest body.",
        "503 `busy`",
        ge=1,
    )
    job_ttl_seconds: int = _limit(
        86_400, "How long a finished job and its artifacts are kept.", "410 `expired`", ge=60
    )
    webhook_timeout_seconds: float = _limit(
        15, "A receiver that has not answered by then has failed.", "the message is repeated", gt=0
    )
    webhook_retry_seconds: list[float] = _limit(
        [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400],
        "Pauses between attempts; up to a fifth is added by chance.",
        "the delivery is `failed`",
    )


def table() -> str:
    """Markdown: limit, default, setting, answer when exceeded."""
    rows = [
        (info.description or "", _shown(info.default), f"`APS_{name.upper()}`", _answer(info))
        for name, info in Limits.model_fields.items()
    ]
    rows += [(what, value, "fixed", answer) for what, value, answer in _constants()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = ["| limit | default | setting | answer when exceeded |", "|---|---|---|---|"]
    return "\n".join([*head, *lines])


def _answer(info: Any) -> str:
    return str(info.json_schema_extra[ANSWER])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"{len(value)} pauses, {sum(value) / 3600:.3g} h in all"
    return f"{value:,}"


def _constants() -> list[tuple[str, str, str]]:
    from service.access.keys import ACTIVE_KEYS
    from service.access.sessions import MAX_SESSIONS, SESSION_SECONDS
    from service.api.headers import LONGEST_DEADLINE_SECONDS, LONGEST_WAIT_SECONDS
    from service.api.problems import MAX_ANSWER_BYTES, MAX_ERRORS
    from service.api.streams import MAX_STREAMS
    from service.api.submit import MAX_SPEC_BYTES, MAX_VALUES
    from service.jobs.admission import Terms
    from service.jobs.model import MAX_URL, WEBHOOK_EVENTS
    from service.uploads.fetch_url import CONCURRENT_FETCHES
    from service.uploads.lanes import LONGEST_LINE

    busy = "503 `busy`"
    return [
        (
            "Bytes of a spec, in a form or as JSON without its pictures.",
            f"{MAX_SPEC_BYTES:,}",
            "413 `body_too_large`",
        ),
        ("Values in a JSON document.", f"{MAX_VALUES:,}", "413 `body_too_large`"),
        ("Every list, text and number of a spec: see its schema.", "-", "422 `invalid_spec`"),
        ("Errors listed in one answer.", str(MAX_ERRORS), "the others are counted"),
        ("Bytes of a problem document.", f"{MAX_ANSWER_BYTES:,}", "fewer errors are listed"),
        (
            "Event streams of an API process: as its file descriptors allow, at most",
            f"{MAX_STREAMS:,}",
            busy,
        ),
        ("Pictures decoded at a time, half of them one principal's.", "one a core, 2 to 8", busy),
        (
            "Addresses fetched at a time, half of them one principal's.",
            str(CONCURRENT_FETCHES),
            busy,
        ),
        ("Pictures or addresses of one principal that wait for that.", str(LONGEST_LINE), busy),
        ("Seconds of `Prefer: wait`.", str(LONGEST_WAIT_SECONDS), "it waits this long"),
        ("Seconds of `Cancel-After`.", f"{LONGEST_DEADLINE_SECONDS:,}", "400 `invalid_header`"),
        (
            "Seconds for which an `Idempotency-Key` is remembered.",
            f"{Terms.idempotency_seconds:,}",
            "the request is a new one",
        ),
        ("Kinds of webhook messages of a job.", str(len(WEBHOOK_EVENTS)), "422 `invalid_spec`"),
        ("Characters of a webhook's address.", f"{MAX_URL:,}", "422 `invalid_spec`"),
        ("Webhook messages of one job.", "1,000", "progress is no longer sent, the end is"),
        ("Events kept of one job.", "2,000", "the oldest go"),
        ("Jobs on a page of `GET /v1/jobs`.", "100", "422 `invalid_spec`"),
        ("Active keys of one principal.", str(ACTIVE_KEYS), "`aps keys create` refuses"),
        ("Browser sessions of one key.", str(MAX_SESSIONS), "the oldest ends"),
        ("Seconds of a browser session.", f"{SESSION_SECONDS:,}", "401 `unauthorized`"),
    ]
