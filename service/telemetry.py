"""What the API and the webhook sender tell Prometheus. Labels are bounded: never ids, URLs or text."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

WEBHOOKS = Counter("aps_webhook_deliveries_total", "Webhook messages by how they ended, and attempts to be repeated.", ["outcome"])
WEBHOOK_DELAY = Histogram(
    "aps_webhook_delay_seconds",
    "From the event to the receiver's first answer.",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60),
)
