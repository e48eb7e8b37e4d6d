"""What a worker tells Prometheus. Labels are bounded: tasks, priors and states, never ids or text."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from service.jobs import Job

_STEP_BUCKETS = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30)
_FAST_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_JOB_BUCKETS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)

STEP = Histogram("aps_step_seconds", "Wall time of a reverse step.", ["prior"], buckets=_STEP_BUCKETS)
INNER_STEP = Histogram("aps_inner_step_seconds", "Wall time of one inner optimisation step, mean over its reverse step.", ["prior"], buckets=_FAST_BUCKETS)
PRIOR_FORWARD = Histogram("aps_prior_forward_seconds", "Wall time of the prior's forward in a reverse step.", ["prior"], buckets=_FAST_BUCKETS)
STEP_OVERHEAD = Histogram("aps_step_overhead_seconds", "Preview, checkpoint and event of a reverse step.", ["prior"], buckets=_FAST_BUCKETS)
JOB_WAIT = Histogram("aps_job_wait_seconds", "From submission to the first claim.", ["task"], buckets=_JOB_BUCKETS)
JOB_RUN = Histogram("aps_job_run_seconds", "From claim to the end of an attempt.", ["task"], buckets=_JOB_BUCKETS)
JOBS = Counter("aps_jobs_total", "Attempts by how they ended.", ["task", "outcome"])
RESUMES = Counter("aps_resumes_total", "Jobs continued from a checkpoint.", ["task"])
PREVIEWS = Counter("aps_previews_total", "Previews encoded.", ["prior"])
MODEL_LOAD = Gauge("aps_model_load_seconds", "Time to load the prior and compute the canary.", ["prior"])
GPU_MEMORY = Gauge("aps_gpu_memory_bytes", "GPU memory: allocated and reserved by this process, used on the device.", ["kind"])


def observe_wait(job: Job) -> None:
    """Records how long a job waited for its first claim."""
    if job.attempt == 1 and job.started_at is not None and job.created_at is not None:
        JOB_WAIT.labels(job.task).observe((job.started_at - job.created_at).total_seconds())


def watch_gpu_memory() -> None:
    """Exports the device's memory, read at every scrape. Call only in a process that uses CUDA."""
    import torch

    GPU_MEMORY.labels("allocated").set_function(torch.cuda.memory_allocated)
    GPU_MEMORY.labels("reserved").set_function(torch.cuda.memory_reserved)
    GPU_MEMORY.labels("used").set_function(lambda: float(torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]))
