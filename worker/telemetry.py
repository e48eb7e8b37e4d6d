"""Prometheus metrics of a worker.

Label values are bounded: tasks, priors, states and reasons, never ids or free text.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from aps_core.tasks import Progress
from service.jobs import Job

_STEP_BUCKETS = (
    0.005,
    0.01,
    0.02,
    0.035,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.75,
    1,
    1.5,
    2.5,
    5,
    10,
    30,
)
_FAST_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_JOB_BUCKETS = (
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
    1920,
)

QUEUE_TIME = Histogram(
    "aps_job_queue_seconds",
    "Time from submission to the first claim.",
    ["prior"],
    buckets=_JOB_BUCKETS,
)
JOB_TIME = Histogram(
    "aps_job_duration_seconds",
    "Time from the claim to the end of an attempt.",
    ["prior", "status"],
    buckets=_JOB_BUCKETS,
)
WHOLE_TIME = Histogram(
    "aps_job_e2e_seconds",
    "Time from submission to the end of the job.",
    ["prior", "status"],
    buckets=_JOB_BUCKETS,
)
FIRST_PREVIEW = Histogram(
    "aps_time_to_first_preview_seconds",
    "Time from submission to the first preview.",
    ["prior"],
    buckets=_JOB_BUCKETS,
)

STEP = Histogram(
    "aps_step_duration_seconds", "Wall time of a reverse step.", ["prior"], buckets=_STEP_BUCKETS
)
STEP_BATCH = Histogram(
    "aps_step_batch_size",
    "Samples computed together in a reverse step.",
    ["prior"],
    buckets=(1, 2, 4, 8, 16, 32),
)
INNER_STEP = Histogram(
    "aps_inner_step_seconds",
    "Wall time of an inner optimisation step, averaged over the reverse step.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
PRIOR_FORWARD = Histogram(
    "aps_prior_forward_seconds",
    "Wall time of the prior's forward pass in a reverse step.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
PREVIEW = Histogram(
    "aps_preview_seconds", "Time to encode and store a preview.", ["prior"], buckets=_FAST_BUCKETS
)
CHECKPOINT = Histogram(
    "aps_checkpoint_seconds",
    "Time to write checkpoint, event and lease of a step in one round trip.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
ARTIFACT_PUT = Histogram(
    "aps_artifact_put_seconds",
    "Time to store the results of a job.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)

CHECKPOINTS = Counter("aps_checkpoints_total", "Checkpoints written.", ["prior"])
RESUMES = Counter(
    "aps_resumes_total",
    "Jobs resumed from a checkpoint, by the reason they had stopped: drained or lost.",
    ["prior", "reason"],
)
STEPS_WASTED = Counter(
    "aps_steps_wasted_total",
    "Finished reverse steps that were computed again.",
    ["prior", "reason"],
)
ATTEMPTS = Counter(
    "aps_attempts_total", "Claims of jobs, by how the previous attempt stopped.", ["reason"]
)
LEASES_LOST = Counter(
    "aps_leases_lost_total", "Attempts that ended because another worker had claimed the job."
)
OUT_OF_MEMORY = Counter(
    "aps_oom_total",
    "Out-of-memory errors of the device, by the action taken.",
    ["prior", "action"],
)

MODEL_LOAD = Gauge(
    "aps_model_load_seconds", "Time to load the prior and run its self-test.", ["prior"]
)
MODEL_STATE = Gauge(
    "aps_model_state", "1 for the current state of the prior, 0 for the others.", ["prior", "state"]
)
MODEL_FALLBACK = Gauge(
    "aps_model_fallback",
    "1 where a prior runs slower than planned because its kernels cannot be compiled.",
    ["prior"],
)
DEVICE_HEALTHY = Gauge("aps_device_healthy", "1 while the driver finds no fault with the device.")
GPU_MEMORY = Gauge(
    "aps_gpu_memory_bytes",
    "GPU memory: allocated, reserved and peak of this process, and total in use on the device.",
    ["kind"],
)

MODEL_STATES = ("loading", "ready", "draining")


def observe_claim(job: Job) -> None:
    """Records a claim; for the first one, also the time in the queue."""
    ATTEMPTS.labels(job.stopped_by or "first").inc()
    if job.attempt == 1 and job.started_at is not None and job.created_at is not None:
        QUEUE_TIME.labels(job.prior).observe((job.started_at - job.created_at).total_seconds())


def observe_step(prior: str, progress: Progress) -> None:
    """Records a finished reverse step and its checkpoint."""
    CHECKPOINTS.labels(prior).inc()
    STEP.labels(prior).observe(progress.seconds)
    STEP_BATCH.labels(prior).observe(len(progress.state.z_BL))
    PRIOR_FORWARD.labels(prior).observe(progress.prior_seconds)
    if progress.inner_steps:
        INNER_STEP.labels(prior).observe(
            (progress.seconds - progress.prior_seconds) / progress.inner_steps
        )


def observe_end(job: Job) -> None:
    """Records the time from submission to end, from the timestamps of the job's record."""
    if job.finished_at is not None and job.created_at is not None:
        WHOLE_TIME.labels(job.prior, job.state).observe(
            (job.finished_at - job.created_at).total_seconds()
        )


def enter_state(prior: str, state: str) -> None:
    """Sets the exported state of a prior, one of ``MODEL_STATES``."""
    for each in MODEL_STATES:
        MODEL_STATE.labels(prior, each).set(each == state)


def watch_gpu_memory() -> None:
    """Exports the memory of the CUDA device, read at every scrape; call only where CUDA is used."""
    import torch

    GPU_MEMORY.labels("allocated").set_function(torch.cuda.memory_allocated)
    GPU_MEMORY.labels("reserved").set_function(torch.cuda.memory_reserved)
    GPU_MEMORY.labels("peak").set_function(torch.cuda.max_memory_allocated)
    GPU_MEMORY.labels("used").set_function(
        lambda: float(torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0])
    )
