"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
from httpx_sse import EventSource

from aps_client import flows
from aps_client.connection import Connection
from aps_client.errors import ServiceError, error_of
from aps_client.flows import Flow, Source, T
from aps_client.models import Event, Job, Preview, Result, StoredPicture
from aps_client.sse import Follower
from aps_client.sse import timeout as stream_timeout
from aps_client.tasks import Tasks


class Client(Tasks[Result]):
    """The service, as a context manager. Every method raises branches of
    :class:`aps_client.ClientError`.
    """

    def __init__(self, server: str | Connection | None = None, api_key: str | None = None) -> None:
        self.connection = Connection.of(server, api_key)
        self.http = httpx.Client(**self.connection.options())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()

    def run(
        self,
        task: str,
        files: Mapping[str, Source | None] | None = None,
        *,
        timeout: float | None = None,
        **spec: Any,
    ) -> Result:
        """Submits, waits (``timeout`` seconds at most) and downloads.

        Raises:
            ClientError: see :mod:`aps_client.errors`.
        """
        return self.result(self.submit(task, files, wait=timeout, **spec), timeout)

    def submit(
        self,
        task: str,
        files: Mapping[str, Source | None] | None = None,
        *,
        wait: float | None = 0.0,
        webhook: str | Mapping[str, Any] | None = None,
        priority: str | None = None,
        cancel_after: float | None = None,
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> Job:
        """Submits a job, once, however often the network makes it repeat the request.

        Args:
            task: its name, as ``restore``.
            files: the pictures by part, as ``image`` and ``mask``.
            wait: seconds the service may hold the answer back to bring the finished job.
            webhook: an address to tell of the end, or a mapping with ``url`` and ``events``.
            priority: ``high``, ``normal`` or ``low``.
            cancel_after: seconds after which the result is of no use.
            idempotency_key: the caller's own name for the request; the same key gives the same job
                for a day, across processes too.
            spec: the fields of the task's spec.
        """
        options = flows.Options(wait, webhook, priority, cancel_after, idempotency_key)
        return self._do(
            flows.submit(
                task, files or {}, spec, options, self.connection.retry, self.connection.timeout
            )
        )

    def keep(self, picture: Source) -> StoredPicture:
        """Sends a picture once, for many jobs: as ``sha256:`` and its hash it then stands wherever
        a picture may.
        """
        return self._do(flows.keep(picture, self.connection.retry))

    def job(self, job: str | Job) -> Job:
        """The job now."""
        return self._do(flows.get(job, self.connection.retry))

    def jobs(self, page_size: int = 50) -> Iterator[Job]:
        """Every job, newest first, fetched page by page."""
        url: str | None = f"/v1/jobs?limit={page_size}"
        while url:
            page = self._do(flows.page(url, self.connection.retry))
            yield from page.jobs
            url = page.next

    def wait(self, job: str | Job, timeout: float | None = None) -> Job:
        """The job when it is over, whichever way.

        Raises:
            WaitTimeout: it is not, after ``timeout`` seconds; it goes on.
        """
        return self._do(flows.wait(job, timeout, self.connection.retry))

    def result(self, job: str | Job, timeout: float | None = None) -> Result:
        """Waits for the job and downloads what it made.

        Raises:
            JobFailed, JobCanceled: it made nothing.
            WaitTimeout: it is not over after ``timeout`` seconds.
        """
        return self._do(flows.result(self.wait(job, timeout), self.connection.retry))

    def events(self, job: str | Job, after: str = "") -> Iterator[Event]:
        """The job's history (after the event ``after``) and what follows, until it is over;
        survives broken connections.
        """
        follower = Follower(after, self.connection.retry)
        while True:
            failure: Exception | None = None
            heard = False
            try:
                with self.http.stream(
                    "GET",
                    flows.link(job, "events"),
                    headers=follower.headers(),
                    timeout=stream_timeout(self.connection.timeout),
                ) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                        raise error_of(answer)
                    for sent in EventSource(answer).iter_sse():
                        if (event := follower.accept(sent)) is not None:
                            heard = True
                            yield event
                            if follower.over:
                                return
            except (httpx.TransportError, ServiceError) as error:
                failure = error
            if failure is None and not heard and self.job(job).state.terminal:
                return  # what it had to tell has been told
            time.sleep(follower.broken(failure))

    def previews(self, job: str | Job) -> Iterator[Preview]:
        """The estimate after every reverse step, as it comes."""
        for event in self.events(job):
            if "preview_url" in event.data:
                yield self._do(flows.preview(event, self.connection.retry))

    def download(self, job: Job, name: str) -> bytes:
        """A file of the job, checked against its SHA-256."""
        return self._do(flows.download(job, name, self.connection.retry))

    def cancel(self, job: str | Job) -> Job:
        """Cancels a waiting job at once, a running one after its step."""
        return self._do(flows.cancel(job, self.connection.retry))

    def delete(self, job: str | Job) -> None:
        """Removes a job and its files."""
        self._do(flows.delete(job, self.connection.retry))

    def capabilities(self) -> dict[str, Any]:
        """Tasks, operators and priors with their JSON Schemas, limits and live workers."""
        return self._do(flows.json_of("/v1/capabilities", self.connection.retry))

    def webhook_secrets(self) -> list[str]:
        """What :func:`aps_client.verify_webhook` needs; newest first."""
        found: list[str] = self._do(flows.json_of("/v1/webhooks/secrets", self.connection.retry))[
            "secrets"
        ]
        return found

    def _do(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, flows.Pause):
                    time.sleep(step.seconds)
                    step = next(flow)
                    continue
                try:
                    answer = self.http.request(step.method, step.url, **step.options)
                except (httpx.TransportError, httpx.InvalidURL) as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value


def restore(
    image: Source,
    operator: str | Mapping[str, Any] = "denoise",
    *,
    server: str | None = None,
    api_key: str | None = None,
    **spec: Any,
) -> Result:
    """Restores a picture through the service of ``server`` (default: ``APS_SERVER``, then this
    machine's); see :meth:`Client.restore`.
    """
    with Client(server, api_key) as client:
        return client.restore(image, operator, **spec)
