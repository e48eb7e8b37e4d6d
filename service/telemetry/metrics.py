"""Prometheus metrics of the API and the webhook sender. Label values are bounded: never ids, URLs
or free text.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

HTTP_TIME = Histogram(
    "aps_http_request_duration_seconds",
    "Time to the end of a response.",
    ["method", "route", "code"],
)
FOLLOWERS = Gauge("aps_sse_clients", "Clients that follow a job's events.")
DECODE_TIME = Histogram(
    "aps_decode_seconds",
    "Time to decode and re-encode an uploaded picture, by outcome.",
    ["outcome"],
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
)
LEASES_EXPIRED = Counter(
    "aps_leases_expired_total",
    "Running jobs whose lease expired because their worker was lost.",
    ["prior"],
)
REPUBLISHED = Counter("aps_republished_total", "Republished messages of queued jobs.", ["prior"])
WEBHOOKS = Counter(
    "aps_webhook_deliveries_total",
    "Webhook messages by final state, and attempts that will be retried.",
    ["outcome"],
)
WEBHOOK_DELAY = Histogram(
    "aps_webhook_delay_seconds",
    "Time from the event to the first delivery attempt.",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60),
)
