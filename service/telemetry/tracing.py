"""OpenTelemetry tracing, enabled by the standard ``OTEL_*`` variables. When disabled, OpenTelemetry
is not even imported.

A trace covers submission, queueing, the job and its steps across processes; the W3C ``traceparent``
in the job's record links them. ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``OTEL_TRACES_EXPORTER``)
enables it; the standard variables also set name, sampling and batching. Needs the extra ``otel``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

log = logging.getLogger(__name__)

_provider: Any = None
"""The SDK's tracer provider; None when tracing is disabled."""


@dataclass(frozen=True)
class Span:
    """An active span; does nothing when tracing is disabled."""

    traceparent: str
    """Trace context for child spans."""
    inner: Any = None

    def note(self, **attributes: Any) -> None:
        """Adds attributes."""
        if self.inner is not None:
            self.inner.set_attributes(_named(attributes))


def configure(role: str) -> None:
    """Starts tracing in this process if it is enabled; call it after forking. The default
    ``service.name`` is ``aps-ROLE``.
    """
    global _provider
    if (kind := _asked()) is None:
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import (
            BatchSpanProcessor,
            ConsoleSpanExporter,
            SpanExporter,
        )

        if kind == "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter: SpanExporter = OTLPSpanExporter()
        else:
            exporter = ConsoleSpanExporter()
    except ImportError:
        log.warning(
            "OTEL_* variables enable tracing, but OpenTelemetry is not installed: pip install"
            " '.[otel]' in the source folder"
        )
        return
    name = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": f"aps-{role}"}
    _provider = TracerProvider(resource=Resource.create(name))
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    log.info("Traces are exported to '%s'", kind)


def stop() -> None:
    """Exports the remaining spans and stops tracing."""
    if _provider is not None:
        _provider.shutdown()


@contextmanager
def span(name: str, parent: str, **attributes: Any) -> Iterator[Span]:
    """Traces the block as a child of ``parent``, a traceparent; '' starts a new trace. An exception
    marks the span as failed.
    """
    if _provider is None:
        yield Span(parent)
        return
    tracer = _provider.get_tracer("aps")
    with tracer.start_as_current_span(
        name, _context(parent), attributes=_named(attributes)
    ) as inner:
        yield Span(_traceparent(inner), inner)


def record(name: str, parent: str, began: datetime, ended: datetime, **attributes: Any) -> None:
    """Records a span that has already ended."""
    if _provider is not None:
        began_ns, ended_ns = (int(1e9 * at.timestamp()) for at in (began, ended))
        _provider.get_tracer("aps").start_span(
            name, _context(parent), attributes=_named(attributes), start_time=began_ns
        ).end(ended_ns)


def _asked() -> str | None:
    """The exporter selected by the environment, or None."""
    env = os.environ
    if env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    endpoint = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    kind = env.get("OTEL_TRACES_EXPORTER", "otlp" if endpoint else "none")
    if kind not in ("otlp", "console", "none"):
        log.warning(
            "OTEL_TRACES_EXPORTER=%s is not supported here; it may be otlp, console or none", kind
        )
    return kind if kind in ("otlp", "console") else None


def _context(parent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())


def _traceparent(inner: Any) -> str:
    context = inner.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    return {f"aps.{name}": value for name, value in attributes.items() if value is not None}
