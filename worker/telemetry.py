"""What a worker tells Prometheus. Labels are bounded: tasks, priors, states and reasons, never ids
or text.
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
    "aps_job_queue_seconds", "From submission to the first claim.", ["prior"], buckets=_JOB_BUCKETS
)
JOB_TIME = Histogram(
    "aps_job_duration_seconds",
    "From the claim to the end of an attempt.",
    ["prior", "status"],
    buckets=_JOB_BUCKETS,
)
WHOLE_TIME = Histogram(
    "aps_job_e2e_seconds", "From submission to the end.", ["prior", "status"], buckets=_JOB_BUCKETS
)
FIRST_PREVIEW = Histogram(
    "aps_time_to_first_preview_seconds",
    "From submission to the first preview.",
    ["prior"],
    buckets=_JOB_BUCKETS,
)

STEP = Histogram(
    "aps_step_duration_seconds", "Wall time of a reverse step.", ["prior"], buckets=_STEP_BUCKETS
)
STEP_BATCH = Histogram(
    "aps_step_batch_size",
    "Samples that a reverse step computes together.",
    ["prior"],
    buckets=(1, 2, 4, 8, 16, 32),
)
INNER_STEP = Histogram(
    "aps_inner_step_seconds",
    "Wall time of an inner optimisation step, mean over its reverse step.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
PRIOR_FORWARD = Histogram(
    "aps_prior_forward_seconds",
    "Wall time of the prior's forward in a reverse step.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
PREVIEW = Histogram(
    "aps_preview_seconds", "Encoding and storing a preview.", ["prior"], buckets=_FAST_BUCKETS
)
CHECKPOINT = Histogram(
    "aps_checkpoint_seconds",
    "Writing checkpoint, event and lease of a step: one round trip.",
    ["prior"],
    buckets=_FAST_BUCKETS,
)
ARTIFACT_PUT = Histogram(
    "aps_artifact_put_seconds", "Storing a job's results.", ["prior"], buckets=_FAST_BUCKETS
)

CHECKPOINTS = Counter("aps_checkpoints_total", "Checkpoints written.", ["prior"])
RESUMES = Counter(
    "aps_resumes_total",
    "Jobs continued from a checkpoint, by what had stopped them: drained or lost.",
    ["prior", "reason"],
)
STEPS_WASTED = Counter(
    "aps_steps_wasted_total", "Finished steps that were computed again.", ["prior", "reason"]
)
ATTEMPTS = Counter("aps_attempts_total", "Claims of jobs, by what they follow.", ["reason"])
LEASES_LOST = Counter(
    "aps_leases_lost_total", "Attempts that ended because another worker had taken the job over."
)
OUT_OF_MEMORY = Counter(
    "aps_oom_total",
    "Times the device ran out of memory, by what was done about it.",
    ["prior", "action"],
)

MODEL_LOAD = Gauge(
    "aps_model_load_seconds", "Time to load the prior and compute the canary.", ["prior"]
)
MODEL_STATE = Gauge(
    "aps_model_state", "1 for the state the prior is in, 0 for the others.", ["prior", "state"]
)
MODEL_FALLBACK = Gauge(
    "aps_model_fallback",
    "1 where a prior runs slower than planned because its kernels cannot be compiled.",
    ["prior"],
)
DEVICE_HEALTHY = Gauge("aps_device_healthy", "1 while the driver finds no fault with the device.")
GPU_MEMORY = Gauge(
    "aps_gpu_memory_bytes",
    "GPU memory: allocated and reserved by this process, its peak, and used on the device.",
    ["kind"],
)

MODEL_STATES = ("loading", "ready", "draining")


def observe_claim(job: Job) -> None:
    """Records a claim, and how long the job waited for its first one."""
    ATTEMPTS.labels(job.stopped_by or "first").inc()
    if job.attempt == 1 and job.started_at is not None and job.created_at is not None:
        QUEUE_TIME.labels(job.prior).observe((job.started_at - job.created_at).total_seconds())


def observe_step(prior: str, progress: Progress) -> None:
    """Records a reverse step and its parts."""
    CHECKPOINTS.labels(prior).inc()
    STEP.labels(prior).observe(progress.seconds)
    STEP_BATCH.labels(prior).observe(len(progress.state.z_BL))
    PRIOR_FORWARD.labels(prior).observe(progress.prior_seconds)
    if progress.inner_steps:
        INNER_STEP.labels(prior).observe(
            (progress.seconds - progress.prior_seconds) / progress.inner_steps
        )


def observe_end(job: Job) -> None:
    """Records how long a job took to its end, as its record has it."""
    if job.finished_at is not None and job.created_at is not None:
        WHOLE_TIME.labels(job.prior, job.state).observe(
            (job.finished_at - job.created_at).total_seconds()
        )


def enter_state(prior: str, state: str) -> None:
    """Tells what a prior is doing, one of ``MODEL_STATES``."""
    for each in MODEL_STATES:
        MODEL_STATE.labels(prior, each).set(each == state)


def watch_gpu_memory() -> None:
    """Exports the device's memory, read at every scrape. Call only in a process that uses CUDA."""
    import torch

    GPU_MEMORY.labels("allocated").set_function(torch.cuda.memory_allocated)
    GPU_MEMORY.labels("reserved").set_function(torch.cuda.memory_reserved)
    GPU_MEMORY.labels("peak").set_function(torch.cuda.max_memory_allocated)
    GPU_MEMORY.labels("used").set_function(
        lambda: float(torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0])
    )
