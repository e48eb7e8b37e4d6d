"""The asynchronous client; its methods mirror those of :class:`aps_client.Client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from types import TracebackType
from typing import Any, Self

from aps_client import flows
from aps_client.batches import AsyncBatches
from aps_client.connection import Connection
from aps_client.flows import Source
from aps_client.models import Job, Link, Preview, Result
from aps_client.tasks import Tasks
from aps_client.transport import AsyncTransport
from aps_contract import Event, StoredPicture
from aps_core.identify.diagnosis.report import Diagnosis


class AsyncClient(Tasks[Awaitable[Result]]):
    """Asynchronous client of one service; use it as an asynchronous context manager.

    Args:
        server: URL of the service or a :class:`Connection`. Default: ``APS_SERVER``, else
            ``http://127.0.0.1:8000``.
        api_key: API key. Default: ``APS_API_KEY``. Ignored if ``server`` is a connection.
    """

    def __init__(self, server: str | Connection | None = None, api_key: str | None = None) -> None:
        self.connection = Connection.of(server, api_key)
        self._transport = AsyncTransport(self.connection)
        self.batches = AsyncBatches(self._transport)
        """Many restorations in one request."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all open connections. The client cannot be used afterwards."""
        await self._transport.close()

    async def run(
        self,
        task: str,
        files: Mapping[str, Source | None] | None = None,
        *,
        timeout: float | None = None,
        **spec: Any,
    ) -> Result:
        """Submits a job, waits for it and downloads its result.

        Args:
            task: name of the task, such as ``restore``.
            files: pictures by field name, such as ``image`` and ``mask``; None values are ignored.
            timeout: seconds to wait for the job; None waits as long as it takes.
            spec: fields of the task's spec.

        Raises:
            JobFailed, JobCanceled: the job ended without a result.
            WaitTimeout: the job is still unfinished after ``timeout`` seconds; it keeps running.
            ServiceError, Unreachable, Corrupt: a request or a download failed.
        """
        return await self.result(await self.submit(task, files, wait=timeout, **spec), timeout)

    async def submit(
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
        """Submits a job. Retries carry an idempotency key, so they never create a second job.

        Args:
            task: name of the task, such as ``restore``.
            files: pictures by field name, such as ``image`` and ``mask``; None values are ignored.
            wait: seconds the service may delay its response to return the finished job; at most
                30 are used. None means 30.
            webhook: URL to notify when the job ends, or a mapping with ``url`` and ``events``.
            priority: ``high``, ``normal`` or ``low``; None leaves the choice to the service.
            cancel_after: seconds, 1 to 604800, rounded to whole ones. If the job has not ended by
                then, the service stops it and it fails with ``deadline_exceeded``.
            idempotency_key: key of this submission. For one day, the service returns the same job
                for the same key, from any process. Default: a random key.
            spec: fields of the task's spec.

        Returns:
            The job as accepted, or finished if it ended within ``wait`` seconds.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        options = flows.Options(
            wait=wait,
            webhook=webhook,
            priority=priority,
            cancel_after=cancel_after,
            idempotency_key=idempotency_key,
        )
        return await self._transport.do(
            flows.submit(
                task, files or {}, spec, options, self.connection.retry, self.connection.timeout
            )
        )

    async def keep(self, picture: Source) -> StoredPicture:
        """Uploads a picture for use in several jobs.

        Args:
            picture: path, bytes or open binary file.

        Returns:
            The stored picture. Pass ``"sha256:" + its hash`` wherever a picture is expected.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.keep(picture, self.connection.retry))

    async def diagnose(self, picture: Source) -> Diagnosis:
        """Asks what happened to a picture (path, bytes or open binary file); stores nothing."""
        return await self._transport.do(flows.diagnose(picture, self.connection.retry))

    async def job(self, job: str | Job) -> Job:
        """Fetches the current state of a job.

        Args:
            job: the job or its id.

        Raises:
            NotFound: no such job.
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.get(job, self.connection.retry))

    async def jobs(self, page_size: int = 50, **wanted: Any) -> AsyncIterator[Job]:
        """Iterates over jobs, newest first.

        Args:
            page_size: jobs per request, 1 to 100.
            wanted: filters of ``GET /v1/jobs``: ``state`` and ``task`` (a name or several),
                ``created_after`` and ``created_before`` (a datetime with a time zone).

        Raises:
            ServiceError, Unreachable: a request failed.
        """
        url: str | None = flows.jobs_url(page_size, wanted)
        while url:
            page = await self._transport.do(flows.page(url, self.connection.retry))
            for job in page.jobs:
                yield job
            url = page.next

    async def wait(self, job: str | Job, timeout: float | None = None) -> Job:
        """Waits until the job has ended, by polling at the interval the service suggests.

        Args:
            job: the job or its id.
            timeout: seconds to wait; None waits as long as it takes.

        Returns:
            The job in its final state, whether it succeeded or not.

        Raises:
            WaitTimeout: the job is still unfinished after ``timeout`` seconds; it keeps running.
            ServiceError, Unreachable: a request failed.
        """
        return await self._transport.do(flows.wait(job, timeout, self.connection.retry))

    async def result(self, job: str | Job, timeout: float | None = None) -> Result:
        """Waits for the job and downloads its result files.

        Args:
            job: the job or its id.
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            JobFailed, JobCanceled: the job ended without a result.
            WaitTimeout: the job is still unfinished after ``timeout`` seconds; it keeps running.
            ServiceError, Unreachable, Corrupt: a request or a download failed.
        """
        return await self._transport.do(
            flows.result(await self.wait(job, timeout), self.connection.retry)
        )

    def events(self, job: str | Job, after: str = "") -> AsyncIterator[Event]:
        """Iterates over past and future events until the job ends; reconnects when needed.

        Args:
            job: the job or its id.
            after: id of the last event already received; empty starts at the first event.

        Raises:
            ServiceError: the service refused the stream with an error that is not transient.
            Unreachable: the service did not respond for longer than the retry policy admits.
        """
        return self._transport.events(job, after)

    async def previews(self, job: str | Job) -> AsyncIterator[Preview]:
        """Iterates over the preview pictures of a job, one after each reverse step.

        Args:
            job: the job or its id.

        Raises:
            ServiceError, Unreachable: a request failed.
        """
        async for event in self.events(job):
            if "preview_url" in event.data:
                yield await self._transport.do(flows.preview(event, self.connection.retry))

    async def download(self, job: Job, name: str) -> bytes:
        """Downloads one file of a job and verifies its SHA-256.

        Args:
            job: the job.
            name: name of the file, such as ``result.png``.

        Raises:
            KeyError: the job has no such file.
            Corrupt: the hash does not match.
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.download(job, name, self.connection.retry))

    async def cancel(self, job: str | Job) -> Job:
        """Cancels a job: a queued one at once, a running one at its next check.

        Args:
            job: the job or its id. Canceling an ended job has no effect.

        Returns:
            The job after the request; a running job may end a moment later.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.cancel(job, self.connection.retry))

    async def share(self, job: str | Job, lifetime: float | None = None) -> Link:
        """Makes a link to a job's result. Whoever has it can read settings and files of the job,
        without an API key, until the link ends.

        Args:
            job: the job or its id.
            lifetime: seconds; None makes the link last as long as the service allows.

        Returns:
            The link's address (absolute if the service knows its own) and when it ends.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.share(job, lifetime, self.connection.retry))

    async def unshare(self, job: str | Job) -> None:
        """Ends all links to the result of a job, given as such or by its id."""
        await self._transport.do(flows.unshare(job, self.connection.retry))

    async def delete(self, job: str | Job) -> None:
        """Deletes a job and its files.

        Args:
            job: the job or its id.

        Raises:
            Conflict: the job is running; cancel it first.
            ServiceError, Unreachable: the request failed.
        """
        await self._transport.do(flows.delete(job, self.connection.retry))

    async def capabilities(self) -> dict[str, Any]:
        """Returns tasks, operators and priors with JSON Schemas, limits and live workers.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.json_of("/v1/capabilities", self.connection.retry))

    async def webhook_secrets(self) -> list[str]:
        """Returns the signing secrets for :func:`aps_client.verify_webhook`, newest first.

        Raises:
            ServiceError, Unreachable: the request failed.
        """
        return await self._transport.do(flows.secrets(self.connection.retry))
