"""The Celery worker: one process per device, prior resident, jobs taken from the job protocol."""
