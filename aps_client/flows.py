"""What is said to the service and what follows from its answers, without saying how bytes travel.

A flow is a generator: it yields a :class:`Call` and gets the answer (or the transport's exception),
or yields a :class:`Pause`. The two clients differ only in how they carry these out, so retries,
waiting and downloads are written once.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeVar

import httpx
from pydantic import BaseModel

from aps_client.connection import Retry
from aps_client.errors import (
    Corrupt,
    JobCanceled,
    JobFailed,
    Unreachable,
    WaitTimeout,
    error_of,
    seconds,
)
from aps_client.models import Event, Job, Preview, Result, StoredPicture
from service.api.views import JobPage
from service.jobs import JobState, Progress

T = TypeVar("T")
Source = str | PathLike[str] | bytes | IO[bytes]
"""A picture: its path, its bytes, a file open for reading; or ``sha256:`` and the hash of one that
the service has.
"""

LONGEST_HOLD = 30
"""Seconds a submission may be held open to bring the finished job itself."""


@dataclass(frozen=True)
class Call:
    """One HTTP request; ``options`` are those of :meth:`httpx.Client.build_request`."""

    method: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


Flow = Generator[Call | Pause, Any, T]


def exchange(call: Call, retry: Retry) -> Flow[httpx.Response]:
    """The answer to ``call``, asked again while that may help.

    Raises:
        ServiceError: the service refused, or still cannot after the last try.
        Unreachable: nobody answered.
    """
    for attempt in range(1, retry.attempts + 1):
        pause = retry.pause_seconds * 2 ** (attempt - 1) * random.uniform(0.5, 1)
        try:
            answer: httpx.Response = yield call
        except (httpx.TransportError, httpx.InvalidURL) as error:
            failure: Exception = Unreachable(
                f"{call.method} {call.url}: {error or type(error).__name__}. Is the service"
                " running, and its address right?"
            )
            failure.__cause__ = error
        else:
            if answer.status_code < 400:
                return answer
            refusal = failure = error_of(answer)
            pause = max(pause, refusal.retry_after)
            if not refusal.retryable or pause > retry.longest_seconds:
                raise refusal
        if attempt < retry.attempts:
            yield Pause(pause)
    raise failure


@dataclass(frozen=True)
class Options:
    """How a job travels, apart from what it computes."""

    wait: float | None = 0.0
    """Seconds the caller is going to wait for the job anyway; None: for as long as it takes."""
    webhook: str | Mapping[str, Any] | None = None
    priority: str | None = None
    cancel_after: float | None = None
    idempotency_key: str | None = None

    def hold(self) -> int:
        """Seconds to ask the service to hold the answer back."""
        return LONGEST_HOLD if self.wait is None else min(LONGEST_HOLD, int(self.wait))

    def parts(self) -> dict[str, Any]:
        """The parts of the body beside the spec."""
        webhook = {"url": self.webhook} if isinstance(self.webhook, str) else self.webhook
        return {
            name: value
            for name, value in (("webhook", webhook), ("priority", self.priority))
            if value is not None
        }


def submit(
    task: str,
    files: Mapping[str, Source | None],
    spec: Mapping[str, Any],
    options: Options,
    retry: Retry,
    timeout: float,
) -> Flow[Job]:
    """``POST /v1/{task}``; a form where there are pictures, JSON where there are none."""
    hold = options.hold()
    key = (options.idempotency_key or str(uuid.uuid4())).replace("\\", r"\\").replace('"', r"\"")
    headers = {"Idempotency-Key": f'"{key}"', **({"Prefer": f"wait={hold}"} if hold else {})}
    if options.cancel_after is not None:
        headers["Cancel-After"] = str(round(options.cancel_after))
    body = {name: _plain(value) for name, value in spec.items() if value is not None}
    extras = options.parts()
    sent: dict[str, Any] = {"headers": headers}
    named = {
        name: source
        for name, source in files.items()
        if isinstance(source, str) and source.startswith("sha256:")
    }
    if pictures := {
        name: _read(source)
        for name, source in files.items()
        if source is not None and name not in named
    }:
        sent["files"] = {name: (name, data) for name, data in pictures.items()}
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in extras.items()
        }
        sent["data"] = {"spec": json.dumps(body), **texts, **named}
    else:
        sent["json"] = {**body, **extras, **named}
    if hold:
        sent["timeout"] = httpx.Timeout(timeout, read=timeout + hold)
    answer = yield from exchange(Call("POST", f"/v1/{task}", sent), retry)
    return Job.model_validate_json(answer.content)


def keep(picture: Source, retry: Retry) -> Flow[StoredPicture]:
    """``POST /v1/files``."""
    sent = {"content": _read(picture), "headers": {"Content-Type": "application/octet-stream"}}
    answer = yield from exchange(Call("POST", "/v1/files", sent), retry)
    return StoredPicture.model_validate_json(answer.content)


def get(job: str | Job, retry: Retry) -> Flow[Job]:
    """The job now."""
    answer = yield from exchange(Call("GET", link(job)), retry)
    return Job.model_validate_json(answer.content)


def wait(job: str | Job, timeout: float | None, retry: Retry) -> Flow[Job]:
    """The job when it is over, asked about as often as the service suggests.

    Raises:
        WaitTimeout: it is not, after ``timeout`` seconds.
    """
    started, etag = time.monotonic(), ""
    known = job if isinstance(job, Job) else None
    while known is None or not known.state.terminal:
        answer = yield from exchange(
            Call("GET", link(job), {"headers": {"If-None-Match": etag}} if etag else {}), retry
        )
        if answer.status_code != 304:
            known, etag = Job.model_validate_json(answer.content), answer.headers.get("etag", "")
        if known is None or known.state.terminal:
            continue
        left = float("inf") if timeout is None else timeout - (time.monotonic() - started)
        if left <= 0:
            raise WaitTimeout(known, timeout or 0)
        yield Pause(min(left, seconds(answer.headers.get("retry-after")) or 1.0))
    return known


def result(job: Job, retry: Retry) -> Flow[Result]:
    """What a finished job made.

    Raises:
        JobFailed, JobCanceled: it made nothing.
        Corrupt: a file arrived otherwise than it was stored.
    """
    if job.state is not JobState.SUCCEEDED:
        raise (JobCanceled if job.state is JobState.CANCELED else JobFailed)(job)
    files = {}
    for artifact in job.artifacts:
        if artifact.role == "result":
            files[artifact.name] = yield from download(job, artifact.name, retry)
    return Result(job, files)


def download(job: Job, name: str, retry: Retry) -> Flow[bytes]:
    """A file of the job, checked against its announced SHA-256.

    Raises:
        KeyError: the job has no such file.
        Corrupt: the bytes are others.
    """
    artifact = next((one for one in job.artifacts if one.name == name), None)
    if artifact is None:
        raise KeyError(
            f"Job {job.id} has no file '{name}'; it has:"
            f" {', '.join(one.name for one in job.artifacts) or 'none'}."
        )
    answer = yield from exchange(Call("GET", artifact.url), retry)
    if hashlib.sha256(answer.content).hexdigest() != artifact.sha256:
        raise Corrupt(
            f"'{name}' of job {job.id} did not arrive as it was stored; download it again."
        )
    return answer.content


def cancel(job: str | Job, retry: Retry) -> Flow[Job]:
    """Asks for the end of a job; harmless when it is over."""
    answer = yield from exchange(Call("POST", link(job, "cancel")), retry)
    return Job.model_validate_json(answer.content)


def delete(job: str | Job, retry: Retry) -> Flow[None]:
    """Removes a job."""
    yield from exchange(Call("DELETE", link(job)), retry)


def json_of(url: str, retry: Retry) -> Flow[Any]:
    """A document that has no model of its own."""
    answer = yield from exchange(Call("GET", url), retry)
    return answer.json()


def preview(event: Event, retry: Retry) -> Flow[Preview]:
    """The picture of a ``progress`` event."""
    place = Progress.model_validate(event.data)
    answer = yield from exchange(Call("GET", event.data["preview_url"]), retry)
    return Preview(place.step, place.total, place.misfit, place.noise_floor, answer.content)


def page(url: str, retry: Retry) -> Flow[JobPage]:
    """A page of the list of jobs."""
    answer = yield from exchange(Call("GET", url), retry)
    return JobPage.model_validate_json(answer.content)


def link(job: str | Job, relation: str = "self") -> str:
    """A job's link; of a job known by its id alone, the documented one."""
    if isinstance(job, Job):
        return job.urls[relation]
    return f"/v1/jobs/{job}" + ("" if relation == "self" else f"/{relation}")


def _read(source: Source) -> bytes:
    if isinstance(source, bytes):
        return source
    return Path(source).read_bytes() if isinstance(source, str | PathLike) else source.read()


def _plain(value: Any) -> Any:
    """Specs of the library may stand for their JSON."""
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
