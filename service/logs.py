"""Logging: every line carries its request's id and trace; secrets are struck out."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")
trace: ContextVar[str] = ContextVar("trace", default="-")

_SECRETS = (
    (re.compile(r"(aps_[0-9a-f]{12})_[A-Za-z0-9_-]+"), r"\1_***"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:***@"),
    (re.compile(r"(whsec_)[A-Za-z0-9+/=_-]+"), r"\1***"),
    (re.compile(r"(?i)(bearer|basic)\s+[A-Za-z0-9._~+/=-]+"), r"\1 ***"),
)
"""API keys (their public part stays), passwords in URLs, webhook secrets, credentials of any scheme."""


class Formatter(logging.Formatter):
    """Adds what the context knows, and takes out what nobody may read."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(request_id)s %(trace)s] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.format`; also cleans what comes with exceptions."""
        record.request_id, record.trace = request_id.get(), trace.get()
        return scrub(super().format(record))


def scrub(text: str) -> str:
    """``text`` without secrets."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def configure(level: str) -> None:
    """Sends every logger's lines, the server's too, through :class:`Formatter`."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
