"""Log lines: ids of job and request, redaction of secrets."""

from __future__ import annotations

import json
import logging

import pytest

from service.telemetry import logs


def line(
    formatter: logging.Formatter, message: str, *arguments: object, error: Exception | None = None
) -> str:
    where = (type(error), error, None) if error else None
    return formatter.format(
        logging.LogRecord("service.x", logging.WARNING, __file__, 1, message, arguments, where)
    )


def test_a_json_line_carries_the_ids_of_its_job_and_request() -> None:
    with logs.about(job_id="j1", request_id="r1", trace=""):
        inside = json.loads(line(logs.JsonFormatter(), "It is %s", "done"))
    outside = json.loads(line(logs.JsonFormatter(), "idle"))
    assert {
        name: inside[name] for name in ("level", "logger", "message", "job_id", "request_id")
    } == {
        "level": "WARNING",
        "logger": "service.x",
        "message": "It is done",
        "job_id": "j1",
        "request_id": "r1",
    }
    assert "trace_id" not in inside
    assert inside["time"].endswith("+00:00")
    assert "job_id" not in outside


@pytest.mark.parametrize(
    "formatter", [logs.Formatter(), logs.JsonFormatter()], ids=["text", "json"]
)
@pytest.mark.parametrize(
    "secret",
    ["redis://:hunter2@redis:6379/0", "Authorization: Bearer hunter2", "aps_0123456789ab_hunter2"],
)
def test_secrets_are_removed_from_messages_and_tracebacks(
    formatter: logging.Formatter, secret: str
) -> None:
    written = line(formatter, "Cannot reach %s", secret, error=ValueError(secret))
    assert "hunter2" not in written
    assert "***" in written
    assert "ValueError" in written


def test_a_json_line_is_one_line() -> None:
    assert "\n" not in line(logs.JsonFormatter(), "two\nlines", error=ValueError("and\nmore"))
