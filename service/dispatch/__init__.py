"""Dispatch of jobs to workers: Celery messages, and the sweeper that republishes lost ones."""
