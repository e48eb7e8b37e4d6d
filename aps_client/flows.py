"""The client protocol without I/O, shared by the synchronous and the asynchronous client.

A flow is a generator. It yields a :class:`Call` and receives the response (or the transport's
exception), or it yields a :class:`Pause`. So retries, polling and downloads are implemented once.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

import httpx
from pydantic import BaseModel

from aps_client.connection import Retry
from aps_client.errors import (
    Corrupt,
    InvalidArgument,
    JobCanceled,
    JobFailed,
    WaitTimeout,
    seconds,
)
from aps_client.exchange import Call, Flow, Pause, exchange
from aps_client.models import Job, Link, Preview, Result
from aps_contract import Event, JobPage, JobState, Progress, StoredPicture
from aps_core.identify.diagnosis.report import Diagnosis

Source = str | PathLike[str] | bytes | IO[bytes]
"""A picture: path, bytes, open binary file, or ``"sha256:" + hash`` of an uploaded picture."""

MAX_HOLD_SECONDS = 30
"""Maximum seconds for which a submission waits for the finished job."""


@dataclass(frozen=True)
class Options:
    """Delivery options of a submission; see :meth:`aps_client.Client.submit`."""

    wait: float | None = 0.0
    """Seconds the caller will wait for the job; None: as long as it takes."""
    webhook: str | Mapping[str, Any] | None = None
    priority: str | None = None
    cancel_after: float | None = None
    idempotency_key: str | None = None

    def hold(self) -> int:
        """Whole seconds the service may delay its response, 0 to ``MAX_HOLD_SECONDS``."""
        return MAX_HOLD_SECONDS if self.wait is None else min(MAX_HOLD_SECONDS, int(self.wait))

    def headers(self) -> dict[str, str]:
        """Headers of the request."""
        key, hold = self.idempotency_key or str(uuid.uuid4()), self.hold()
        quoted = key.replace("\\", r"\\").replace('"', r"\"")
        headers = {"Idempotency-Key": f'"{quoted}"', **({"Prefer": f"wait={hold}"} if hold else {})}
        if self.cancel_after is not None:
            headers["Cancel-After"] = str(round(self.cancel_after))
        return headers

    def parts(self) -> dict[str, Any]:
        """Fields of the request body besides the spec."""
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
    """``POST /v1/{task}``: a multipart form if pictures are uploaded, JSON otherwise."""
    hold = options.hold()
    body, extras = plain(spec), options.parts()
    sent: dict[str, Any] = {"headers": options.headers()}
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


def diagnose(picture: Source, retry: Retry) -> Flow[Diagnosis]:
    """``POST /v1/diagnose``."""
    sent = {"content": _read(picture), "headers": {"Content-Type": "application/octet-stream"}}
    answer = yield from exchange(Call("POST", "/v1/diagnose", sent), retry)
    return Diagnosis.model_validate_json(answer.content)


def get(job: str | Job, retry: Retry, patience: float = 0.0) -> Flow[Job]:
    """``GET`` the job."""
    answer = yield from exchange(Call("GET", link(job)), retry, patience)
    return Job.model_validate_json(answer.content)


def wait(job: str | Job, timeout: float | None, retry: Retry) -> Flow[Job]:
    """Polls the job at the interval the service suggests until it has ended.

    A job that is known to exist is polled through an outage, but not beyond ``timeout``.

    Raises:
        WaitTimeout: the job is still unfinished after ``timeout`` seconds.
    """
    started, etag = time.monotonic(), ""
    known = job if isinstance(job, Job) else None
    while known is None or not known.state.terminal:
        left = float("inf") if timeout is None else timeout - (time.monotonic() - started)
        answer = yield from exchange(
            Call("GET", link(job), {"headers": {"If-None-Match": etag}} if etag else {}),
            retry,
            min(left, retry.outage_seconds) if known else 0.0,
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
    """Downloads the result files of an ended job.

    Raises:
        JobFailed, JobCanceled: the job ended without a result.
        Corrupt: the hash of a file does not match.
    """
    if job.state is not JobState.SUCCEEDED:
        raise (JobCanceled if job.state is JobState.CANCELED else JobFailed)(job)
    files = {}
    for artifact in job.artifacts:
        if artifact.role == "result":
            files[artifact.name] = yield from download(job, artifact.name, retry)
    return Result(job, files)


def download(job: Job, name: str, retry: Retry) -> Flow[bytes]:
    """Downloads one file of a job and verifies its SHA-256.

    Raises:
        KeyError: the job has no such file.
        Corrupt: the hash does not match.
    """
    artifact = next((one for one in job.artifacts if one.name == name), None)
    if artifact is None:
        raise KeyError(
            f"Job {job.id} has no file '{name}'; it has:"
            f" {', '.join(one.name for one in job.artifacts) or 'none'}."
        )
    answer = yield from exchange(Call("GET", artifact.url), retry)
    if hashlib.sha256(answer.content).hexdigest() != artifact.sha256:
        raise Corrupt(f"The SHA-256 of '{name}' of job {job.id} does not match; download it again.")
    return answer.content


def cancel(job: str | Job, retry: Retry) -> Flow[Job]:
    """Cancels a job; has no effect on an ended one."""
    answer = yield from exchange(Call("POST", link(job, "cancel")), retry)
    return Job.model_validate_json(answer.content)


def share(job: str | Job, lifetime: float | None, retry: Retry) -> Flow[Link]:
    """Makes a link to a job's result."""
    sent = {} if lifetime is None else {"json": {"seconds": round(lifetime)}}
    answer = yield from exchange(Call("POST", link(job, "share"), sent), retry)
    return Link.model_validate_json(answer.content)


def unshare(job: str | Job, retry: Retry) -> Flow[None]:
    """Ends all links to a job's result."""
    yield from exchange(Call("DELETE", link(job, "share")), retry)


def delete(job: str | Job, retry: Retry) -> Flow[None]:
    """Deletes a job."""
    yield from exchange(Call("DELETE", link(job)), retry)


def json_of(url: str, retry: Retry) -> Flow[Any]:
    """``GET`` a JSON document that has no pydantic model."""
    answer = yield from exchange(Call("GET", url), retry)
    return answer.json()


def secrets(retry: Retry) -> Flow[list[str]]:
    """The signing secrets of webhooks, newest first."""
    found: list[str] = (yield from json_of("/v1/webhooks/secrets", retry))["secrets"]
    return found


def preview(event: Event, retry: Retry) -> Flow[Preview]:
    """Downloads the preview picture of a ``progress`` event."""
    progress = Progress.model_validate(event.data)
    call = Call("GET", event.data["preview_url"])
    answer = yield from exchange(call, retry, retry.outage_seconds)
    return Preview(
        step=progress.step,
        total=progress.total,
        misfit=progress.misfit,
        noise_floor=progress.noise_floor,
        jpeg=answer.content,
    )


def jobs_url(page_size: int, wanted: Mapping[str, Any]) -> str:
    """URL of the first page of jobs that match the filters ``wanted``; None values are ignored."""
    given = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in wanted.items()
        if value is not None
    }
    return f"/v1/jobs?{urlencode({'limit': page_size, **given}, doseq=True)}"


def page(url: str, retry: Retry) -> Flow[JobPage]:
    """``GET`` one page of the job list."""
    answer = yield from exchange(Call("GET", url), retry)
    return JobPage.model_validate_json(answer.content)


def link(job: str | Job, relation: str = "self") -> str:
    """URL of a job or of one of its resources; for a bare id, the documented URL."""
    if isinstance(job, Job):
        return job.urls[relation]
    return f"/v1/jobs/{quoted(job)}" + ("" if relation == "self" else f"/{relation}")


def quoted(name: str) -> str:
    """A name as one segment of a path. Dots are quoted, too: two would lead to the parent."""
    return quote(name, safe="").replace(".", "%2E")


def _read(source: Source) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | PathLike):
        return Path(source).read_bytes()
    data = source.read() if hasattr(source, "read") else None
    if not isinstance(data, bytes):
        raise InvalidArgument(
            "A picture must be a path, bytes or a file opened in binary mode, not"
            f" {type(source).__name__}. Save a picture of Pillow to io.BytesIO and send its bytes."
        )
    return data


def plain(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not None. Specs of the library are accepted in place of their JSON."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        for name, value in spec.items()
        if value is not None
    }
