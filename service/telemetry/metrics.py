"""What the API and the webhook sender tell Prometheus. Labels are bounded: never ids, URLs or
text.
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
    "Reading an uploaded picture safely and writing it anew, by what came of it.",
    ["outcome"],
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
)
LEASES_EXPIRED = Counter(
    "aps_leases_expired_total",
    "Jobs put back into the queue because their worker fell silent.",
    ["prior"],
)
REPUBLISHED = Counter(
    "aps_republished_total", "Waiting jobs whose message had to be repeated.", ["prior"]
)
WEBHOOKS = Counter(
    "aps_webhook_deliveries_total",
    "Webhook messages by how they ended, and attempts to be repeated.",
    ["outcome"],
)
WEBHOOK_DELAY = Histogram(
    "aps_webhook_delay_seconds",
    "From the event to the receiver's first answer.",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60),
)
