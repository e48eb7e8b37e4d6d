"""Logging: every line carries the ids of its request, job and trace; secrets are redacted."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

request_id: ContextVar[str] = ContextVar("request_id", default="-")
trace: ContextVar[str] = ContextVar("trace", default="-")
job_id: ContextVar[str] = ContextVar("job_id", default="-")

Format = Literal["text", "json"]

_SECRETS = (
    (re.compile(r"(aps_(?:[0-9a-f]{12}|link))_[A-Za-z0-9_-]+"), r"\1_***"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:***@"),
    (re.compile(r"(whsec_)[A-Za-z0-9+/=_-]+"), r"\1***"),
    (re.compile(r"(?i)(bearer|basic)\s+[A-Za-z0-9._~+/=-]+"), r"\1 ***"),
)
"""API keys (except their public part), tokens of links, passwords in URLs, webhook secrets, and
credentials of any HTTP authentication scheme.
"""


class Formatter(logging.Formatter):
    """Adds ids from the context and redacts secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(context)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Formats the record with its context, and redacts secrets, also in tracebacks."""
        record.context = " ".join(_context().values()) or "-"
        return scrub(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats the record as JSON, with secrets redacted."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": at,
            "level": record.levelname,
            "logger": record.name,
            "message": scrub(record.getMessage()),
            **_context(),
        }
        if record.exc_info:
            line["exception"] = scrub(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def about(**known: str) -> Iterator[None]:
    """Adds these ids to the log lines of the block; empty ids are omitted."""
    variables = {"request_id": request_id, "trace": trace, "job_id": job_id}
    tokens = [variables[name].set(value or "-") for name, value in known.items()]
    try:
        yield
    finally:
        for token in tokens:
            token.var.reset(token)


def _context() -> dict[str, str]:
    known = {"request_id": request_id.get(), "trace_id": trace.get(), "job_id": job_id.get()}
    return {name: value for name, value in known.items() if value != "-"}


def scrub(text: str) -> str:
    """Redacts secrets in ``text``."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def configure(level: str, form: Format = "text") -> None:
    """Formats the lines of all loggers, including the web server's, with one formatter."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else Formatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # at INFO they log full URLs, and those of webhooks may contain secrets
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
