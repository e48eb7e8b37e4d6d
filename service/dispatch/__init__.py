"""From the job store to the workers: Celery messages and the sweeper that repairs lost ones."""
