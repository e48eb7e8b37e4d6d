"""Records of jobs for tests of the store."""

from __future__ import annotations

from service.jobs import Job, JobStore, new_job_id

FIELDS = {
    "task": "restore",
    "prior": "embedded",
    "spec": {},
    "inputs": {},
    "image_size": (1, 1),
    "output_size": (1, 1),
}


def submitted(store: JobStore, **changes: object) -> Job:
    """Submits a job with ``changes`` to its record."""
    job = Job.model_validate({"id": new_job_id(), **FIELDS, **changes})
    store.submit(job)
    return job
