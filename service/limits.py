"""The configurable limits of the service, and the response when each is exceeded.

:mod:`service.api.openapi.limits_table` lists them with the fixed ones.
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
