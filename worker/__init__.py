"""The Celery worker: one process per device that keeps its priors in memory and runs jobs."""
