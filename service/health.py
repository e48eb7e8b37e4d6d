"""For orchestrators: is the process alive, can it serve, how is it doing."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from service.openapi import problems
from service.problems import NoWorker
from service.services import Services, services_of

router = APIRouter(tags=["service"])


@router.get("/livez")
def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=problems(503))
def readyz(request: Request) -> dict[str, object]:
    """The job store answers and every prior has a live worker."""
    services = services_of(request)
    held = {worker.prior for worker in services.workers.live()}
    if absent := set(services.settings.priors) - held:
        raise NoWorker(f"No worker holds: {', '.join(sorted(absent))}.")
    return {"status": "ready", "priors": sorted(held)}


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Prometheus metrics of this process and of the queue."""
    queue = b"".join(generate_latest(registry) for registry in (REGISTRY, request.app.state.queue_metrics))
    return Response(queue, media_type=CONTENT_TYPE_LATEST)


class QueueMetrics(Collector):
    """Depth and leases, read from the store at every scrape; any API process tells the same."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def collect(self) -> Iterable[Metric]:
        """The queue as it is now; whether the store answered at all."""
        up = GaugeMetricFamily("aps_store_up", "Whether the job store answers.")
        depth = GaugeMetricFamily("aps_jobs_queued", "Jobs waiting.", labels=["prior"])
        running = GaugeMetricFamily("aps_jobs_running", "Jobs being computed.")
        workers = GaugeMetricFamily("aps_workers", "Live workers.", labels=["prior"])
        try:
            live = self.services.workers.live()
            for prior in self.services.settings.priors:
                depth.add_metric([prior], self.services.store.depth(prior))
                workers.add_metric([prior], sum(worker.prior == prior for worker in live))
            running.add_metric([], self.services.store.running())
            up.add_metric([], 1)
        except RedisError:
            up.add_metric([], 0)  # the outage itself is what the scrape has to say
        return [up, depth, running, workers]
