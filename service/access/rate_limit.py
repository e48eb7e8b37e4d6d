"""A limit on each principal's requests: a token bucket in the job store, one for all API processes.

``RateLimit-Policy`` and ``RateLimit`` follow draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from redis import Redis

from service.jobs import NotNow, transitions


class RateLimited(NotNow):
    """This client sends more requests than it may."""

    code = "rate_limited"
    title = "Too many requests"


@dataclass(frozen=True)
class Allowance:
    """What a principal has left after a request."""

    allowed: bool
    tokens: float
    """Requests that may follow at once."""
    rate: float
    """Tokens that come back a second."""
    burst: int
    """Most tokens."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The policy, and the state of the bucket; both in seconds until it is full again."""
        window = math.ceil(self.burst / self.rate)
        full = math.ceil((self.burst - self.tokens) / self.rate)
        left = math.floor(self.tokens)
        return [
            (b"ratelimit-policy", f'"requests";q={self.burst};w={window}'.encode()),
            (b"ratelimit", f'"requests";r={left};t={full}'.encode()),
        ]

    def check(self) -> None:
        """Lets the request through.

        Raises:
            RateLimited: the bucket was empty.
        """
        if not self.allowed:
            raise RateLimited(
                f"You may send {self.rate:g} requests a second, {self.burst} at once; wait a"
                " moment.",
                math.ceil((1 - self.tokens) / self.rate),
            )


class RateLimiter:
    """The buckets of one service."""

    def __init__(self, redis: Redis, prefix: str, rate: float, burst: int) -> None:
        self.prefix, self.rate, self.burst = prefix, rate, burst
        self._spend = redis.register_script(transitions.SCRIPTS["spend"])

    def spend(self, principal: str) -> Allowance:
        """Takes a token from the principal's bucket."""
        allowed, tokens = self._spend(keys=[self.prefix], args=[principal, self.rate, self.burst])
        return Allowance(bool(allowed), float(tokens), self.rate, self.burst)
