"""What the routes work with: store, registry, artifacts, bell; and how a job is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from redis.exceptions import RedisError

from aps_core.errors import InvalidSpec
from aps_core.estimate import Capacity, check_size
from aps_core.tasks import validate_spec
from service.availability import worker_for
from service.jobs import ArtifactStore, Job, JobStore, WorkerRegistry, new_job_id, open_store
from service.problems import NotFound
from service.queue import Bell
from service.settings import Settings
from service.uploads import Upload, sanitise
from service.views import JobView, view


@dataclass(frozen=True)
class Submission:
    """A request for a job, as it came in."""

    task: str
    spec: dict[str, Any]
    pictures: dict[str, bytes]
    """``image`` and perhaps ``mask``."""
    request_id: str


@dataclass(frozen=True)
class Services:
    """Everything an API process holds."""

    settings: Settings
    store: JobStore
    workers: WorkerRegistry
    artifacts: ArtifactStore
    bell: Bell

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Connects lazily: nothing is contacted yet."""
        store, workers = open_store(settings)
        return cls(settings, store, workers, ArtifactStore(settings.artifacts_dir), Bell(settings))

    def submit(self, submission: Submission) -> Job:
        """Accepts a job: it is stored and announced when this returns, or nothing is stored at all.

        Raises:
            InvalidSpec, pydantic.ValidationError: the spec makes no sense, by itself or with the pictures.
            ImageRejected: a picture is refused.
            PriorNotLoaded, WeightsMissing, NoWorker: nobody could compute it, or not now.
        """
        try:
            spec = validate_spec({**submission.spec, "type": submission.task})
        except RecursionError as error:
            raise InvalidSpec("The spec is nested too deeply.") from error
        worker = worker_for(spec.prior, self.settings.priors, self.workers.live())
        uploads = {name: sanitise(data, name, self.settings) for name, data in submission.pictures.items()}
        image, mask = uploads["image"], uploads.get("mask")
        spec.check(image.size, mask.size if mask else None, image.has_alpha)
        cost = check_size(spec, image.size, worker.max_pixels, worker.seconds_per_token, Capacity(worker.job_bytes, worker.token_bytes))
        job_id = new_job_id()
        try:
            job = Job(
                id=job_id,
                task=submission.task,
                prior=spec.prior,
                spec=spec.resolved().model_dump(mode="json"),
                inputs={name: self._put(job_id, name, upload) for name, upload in uploads.items()},
                image_size=image.size,
                output_size=cost.output,
                estimated_seconds=round(cost.seconds, 3),
                request_id=submission.request_id,
            )
            self.store.submit(job)
        except (RedisError, OSError):
            self.artifacts.delete(job_id)
            raise
        self.bell.ring(job)
        return self.job(job_id)

    def job(self, job_id: str) -> Job:
        """The record.

        Raises:
            NotFound: there is none.
        """
        job = self.store.get(job_id)
        if job is None:
            raise NotFound(f"There is no job '{job_id}'.")
        return job

    def view(self, job: Job) -> JobView:
        """What clients see of a job."""
        return view(job, self.store.queue_position(job))

    def close(self) -> None:
        """Closes all connections."""
        self.bell.close()
        self.store.redis.close()

    def _put(self, job_id: str, name: str, upload: Upload) -> Any:
        public = {"image": "measurement.png"}.get(name, f"{name}.png")
        return self.artifacts.put(job_id, public, upload.png, "image/png")
