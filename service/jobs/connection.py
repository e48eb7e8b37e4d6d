"""Connections to the job store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import BlockingConnectionPool, Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from service.jobs.store import JobStore
from service.jobs.workers import WorkerRegistry

if TYPE_CHECKING:
    from service.settings import Settings


STORE_AWAY = (RedisConnectionError, RedisTimeoutError)
"""What calls raise while the job store cannot be reached or does not answer."""


def connect(url: str, retries: int = 3) -> Redis:
    """A Redis client with a blocking connection pool that retries after connection errors.

    Retries are safe: transitions are idempotent by the fence or the job's state.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=32,
        timeout=10,
        socket_timeout=10,
        health_check_interval=30,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=2), retries),
        retry_on_error=[*STORE_AWAY],
    )
    return Redis(connection_pool=pool)


def open_store(settings: Settings, retries: int = 3) -> tuple[JobStore, WorkerRegistry]:
    """Opens the job store and the worker registry configured by ``settings``."""
    redis = connect(settings.redis_url, retries)
    store = JobStore(
        redis,
        prefix=settings.key_prefix,
        lease_seconds=settings.lease_seconds,
        ttl_seconds=settings.job_ttl_seconds,
        max_attempts=settings.max_attempts,
        max_job_seconds=settings.max_job_seconds,
    )
    return store, WorkerRegistry(redis, settings.key_prefix)
