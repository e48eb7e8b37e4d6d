"""Dashboard and alerts use existing metrics and labels, and every metric is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

import service.telemetry.build
import service.telemetry.metrics
import worker.telemetry
from service.api.app_state import Services
from service.settings import Settings
from service.telemetry.queue_metrics import QueueMetrics

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "observability"
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0][
    "rules"
]
DASHBOARD = json.loads((FOLDER / "grafana" / "dashboards" / "aps.json").read_text())
OTHERS = re.compile(r"up|DCGM_FI_[A-Z_]+")
"""Metrics of Prometheus and of the DCGM exporter."""
TARGET_LABELS = {"job", "instance"}
PARTS = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}


def queries() -> Iterator[tuple[str, str]]:
    """All PromQL expressions with their locations."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


def declared() -> dict[str, set[str]]:
    """Series names declared in the code, with their labels."""
    found: dict[str, set[str]] = {}
    for module in (service.telemetry.build, service.telemetry.metrics, worker.telemetry):
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                name = metric._name + ("_total" if metric._type == "counter" else "")
                labels = {*metric._labelnames, *(["le"] if metric._type == "histogram" else [])}
                found |= {name + part: labels for part in PARTS[metric._type]}
    return found


@pytest.fixture
def exported(redis_url: str, tmp_path: Path) -> Iterator[dict[str, set[str]]]:
    """All series names with their labels, including those read from the store."""
    services = Services.open(Settings(redis_url=redis_url, artifacts_dir=tmp_path))
    queue = {
        sample.name: set(sample.labels)
        for metric in QueueMetrics(services).collect()
        for sample in metric.samples
    }
    yield {**declared(), **queue}
    services.close()


def selectors(expression: Any) -> Iterator[Any]:
    """Vector selectors in a parsed expression."""
    if isinstance(expression, promql.VectorSelector):
        yield expression
        return
    for name in ("expr", "lhs", "rhs", "vs", "vector_selector", "args", "param"):
        child = getattr(expression, name, None)
        for each in child if isinstance(child, list) else [child]:
            if each is not None and not isinstance(each, str | int | float):
                yield from selectors(each)


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_every_query_parses_and_uses_exported_metrics(
    where: str, query: str, exported: dict[str, set[str]]
) -> None:
    found = list(selectors(promql.parse(query)))
    assert found, "a query asks for something"
    for selector in found:
        if OTHERS.fullmatch(selector.name):
            continue
        assert selector.name in exported
        assert {matcher.name for matcher in selector.matchers.matchers} <= exported[
            selector.name
        ] | TARGET_LABELS


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_queries_group_by_labels_that_exist(
    where: str, query: str, exported: dict[str, set[str]]
) -> None:
    names = {selector.name for selector in selectors(promql.parse(query))}
    if any(OTHERS.fullmatch(name) for name in names):
        return
    labels = set().union(*(exported[name] for name in names)) | TARGET_LABELS
    grouped = {
        label.strip()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for label in group.split(",")
    }
    assert grouped <= labels


def test_every_metric_is_on_the_dashboard(exported: dict[str, set[str]]) -> None:
    shown = {
        selector.name
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
        for selector in selectors_of(target["expr"])
    }
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported} - families == set()


def selectors_of(query: str) -> list[Any]:
    return list(selectors(promql.parse(query.replace("$__rate_interval", "5m"))))


def test_names_have_the_prefix_and_units_and_labels_are_bounded(
    exported: dict[str, set[str]],
) -> None:
    assert all(name.startswith("aps_") for name in exported)
    allowed = {
        "prior",
        "task",
        "status",
        "priority",
        "reason",
        "action",
        "state",
        "kind",
        "method",
        "route",
        "code",
        "outcome",
        "version",
        "python",
        "torch",
        "le",
    }
    assert set().union(*exported.values()) <= allowed
    assert [name for name in exported if name.endswith(("_ms", "_mb", "_percent"))] == []


def test_every_scraped_series_is_declared(exported: dict[str, set[str]]) -> None:
    ours = {
        sample.name
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name.startswith("aps_")
    }
    assert {name for name in ours if not name.endswith("_created")} <= set(exported)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_severity_a_summary_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "warn")
    assert rule["annotations"]["summary"]
    assert f"### {rule['alert']}\n" in (ROOT / "docs" / "operations.md").read_text()


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
        assert place["x"] + place["w"] <= 24
