"""Rate limit per principal: a token bucket in Redis, shared by all API processes.

``RateLimit-Policy`` and ``RateLimit`` follow draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from redis import Redis

from service.jobs import NotNow, transitions


class RateLimited(NotNow):
    """This client exceeds its rate limit."""

    code = "rate_limited"
    title = "Too many requests"


@dataclass(frozen=True)
class Allowance:
    """State of a principal's token bucket after a request."""

    allowed: bool
    tokens: float
    """Tokens left: requests that may follow immediately."""
    rate: float
    """Tokens refilled per second."""
    burst: int
    """Capacity of the bucket."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """``RateLimit-Policy`` and ``RateLimit``; their times are in seconds."""
        window = math.ceil(self.burst / self.rate)
        full = math.ceil((self.burst - self.tokens) / self.rate)
        left = math.floor(self.tokens)
        return [
            (b"ratelimit-policy", f'"requests";q={self.burst};w={window}'.encode()),
            (b"ratelimit", f'"requests";r={left};t={full}'.encode()),
        ]

    def check(self) -> None:
        """Checks whether the request is allowed.

        Raises:
            RateLimited: the bucket was empty.
        """
        if not self.allowed:
            raise RateLimited(
                f"The limit is {self.rate:g} requests per second, {self.burst} in a burst; wait a"
                " moment.",
                math.ceil((1 - self.tokens) / self.rate),
            )


class RateLimiter:
    """The token buckets of a service."""

    def __init__(self, redis: Redis, prefix: str, rate: float, burst: int) -> None:
        self.prefix = prefix
        self.rate = rate
        self.burst = burst
        self._spend = redis.register_script(transitions.SCRIPTS["spend"])

    def spend(self, principal: str) -> Allowance:
        """Takes a token from the principal's bucket."""
        allowed, tokens = self._spend(keys=[self.prefix], args=[principal, self.rate, self.burst])
        return Allowance(bool(allowed), float(tokens), self.rate, self.burst)
