"""Job counts and backlog of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis


@dataclass(frozen=True)
class Load:
    """A snapshot of the store's work."""

    jobs: dict[tuple[str, ...], int]
    """Number of jobs by state (queued or running), prior and priority."""
    ended: dict[tuple[str, ...], int]
    """Total number of finished jobs, by prior, task and final state."""
    backlog_seconds: dict[str, float]
    """Predicted seconds of a prior's queued and running jobs."""
    oldest_seconds: dict[str, float]
    """Age of the prior's oldest queued job; 0 when none is queued."""
    dead: int
    """Dead-lettered jobs."""


def read_load(redis: Redis, prefix: str, priors: Sequence[str]) -> Load:
    """Reads the snapshot in one round trip; see :mod:`service.jobs.transitions` for the keys."""
    with redis.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hgetall(f"{prefix}tally")
        pipe.hgetall(f"{prefix}ended")
        pipe.zcard(f"{prefix}dead")
        for prior in priors:
            pipe.get(f"{prefix}backlog:{prior}")
            pipe.zrange(f"{prefix}waiting:{prior}", 0, 0, withscores=True)
        (seconds, micros), tally, ended, dead, *rest = pipe.execute()
    now = seconds + micros / 1e6
    return Load(
        jobs=_numbers(tally),
        ended=_numbers(ended),
        backlog_seconds={
            prior: int(raw or 0) / 1000 for prior, raw in zip(priors, rest[0::2], strict=True)
        },
        oldest_seconds={
            prior: max(0.0, now - found[0][1]) if found else 0.0
            for prior, found in zip(priors, rest[1::2], strict=True)
        },
        dead=dead,
    )


def _numbers(counted: dict[bytes, bytes]) -> dict[tuple[str, ...], int]:
    return {tuple(name.decode().split(" ")): int(number) for name, number in counted.items()}
