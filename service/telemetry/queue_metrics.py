"""Prometheus metrics of the queue, read from the store at every scrape, so that all API processes
report the same values.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from aps_contract import JobState, Priority
from aps_core.tasks import TaskSpec
from service.api.app_state import Services


class QueueMetrics(Collector):
    """Jobs, backlog, workers, pending webhooks and store memory."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def collect(self) -> Iterable[Metric]:
        """Reads all metrics; only ``aps_store_up`` if the store does not respond."""
        up = GaugeMetricFamily("aps_store_up", "Whether the job store answers.")
        try:
            found = [*self._work(), *self._surroundings()]
            up.add_metric([], 1)
        except RedisError:
            found = []
            up.add_metric([], 0)  # the scrape still succeeds, to report the outage
        return [up, *found]

    def _work(self) -> list[Metric]:
        priors = self.services.settings.priors
        load = self.services.store.load(priors)
        queued = GaugeMetricFamily("aps_jobs_queued", "Jobs waiting.", labels=["prior", "priority"])
        running = GaugeMetricFamily(
            "aps_jobs_running", "Jobs being computed.", labels=["prior", "priority"]
        )
        oldest = GaugeMetricFamily(
            "aps_queue_oldest_age_seconds",
            "Age of the oldest queued job; 0 when none is queued.",
            labels=["prior"],
        )
        predicted = GaugeMetricFamily(
            "aps_queue_predicted_seconds",
            "Predicted seconds of queued and running jobs.",
            labels=["prior"],
        )
        dead = GaugeMetricFamily(
            "aps_dead_letters", "Dead-lettered jobs, see 'aps requeue'.", value=load.dead
        )
        for prior in priors:
            for priority in Priority:
                queued.add_metric([prior, priority], load.jobs.get(("queued", prior, priority), 0))
                running.add_metric(
                    [prior, priority], load.jobs.get(("running", prior, priority), 0)
                )
            oldest.add_metric([prior], load.oldest_seconds[prior])
            predicted.add_metric([prior], load.backlog_seconds[prior])
        ended = CounterMetricFamily(
            "aps_jobs",
            "Finished jobs by final state.",
            labels=["prior", "task", "status"],
        )
        for prior, task, state in product(
            priors, TaskSpec.family, (state for state in JobState if state.terminal)
        ):
            ended.add_metric([prior, task, state], load.ended.get((prior, task, state), 0))
        return [queued, running, oldest, predicted, dead, ended]

    def _surroundings(self) -> list[Metric]:
        live = self.services.workers.live()
        workers = GaugeMetricFamily("aps_workers", "Live workers.", labels=["prior"])
        for prior in self.services.settings.priors:
            workers.add_metric([prior], sum(worker.prior == prior for worker in live))
        memory = self.services.store.redis.info("memory")
        store = GaugeMetricFamily(
            "aps_store_memory_bytes",
            "Memory of the job store: used and maximum (0 = unlimited).",
            labels=["kind"],
        )
        store.add_metric(["used"], memory["used_memory"])
        store.add_metric(["max"], memory["maxmemory"])
        pending = GaugeMetricFamily(
            "aps_webhooks_pending",
            "Webhook messages still to be delivered.",
            value=self.services.outbox.pending(),
        )
        return [workers, store, pending]
