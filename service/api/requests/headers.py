"""Parsing and validation of request headers.

``Idempotency-Key`` (IETF httpapi draft), ``Prefer`` (RFC 7240), ``Cancel-After``, ``If-None-Match``
and ``Range`` (RFC 9110), ``traceparent`` (W3C Trace Context).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aps_core.errors import APSError

MAX_WAIT_SECONDS = 60
MAX_DEADLINE_SECONDS = 7 * 86_400

_KEY = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"|([\x21\x23-\x7e]{1,255})')
_DURATION = re.compile(r"(\d{1,7})(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TRACE = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class InvalidHeader(APSError):
    """A request header is malformed."""

    code = "invalid_header"
    title = "A header of the request is malformed"


class RangeNotSatisfiable(APSError):
    """The range starts beyond the end of the file."""

    code = "range_not_satisfiable"
    title = "The file has no such range"

    def __init__(self, size: int) -> None:
        super().__init__(f"The file has {size} bytes; the range starts beyond its end.")
        self.size = size


@dataclass(frozen=True)
class Preference:
    """The parsed ``Prefer`` header."""

    wait_seconds: int = 0
    applied: str = ""
    """Value of ``Preference-Applied``; empty if no preference applies."""


def idempotency_key(header: str | None) -> str:
    """The idempotency key, quoted or bare, of 1 to 255 visible ASCII characters; '' without one.

    Raises:
        InvalidHeader: it is empty, too long, or has other characters.
    """
    if header is None:
        return ""
    found = _KEY.fullmatch(header.strip())
    if found is None:
        raise InvalidHeader(
            "Idempotency-Key must have 1 to 255 visible ASCII characters, as in Idempotency-Key:"
            ' "8e03978e-40d5-43dd".'
        )
    return re.sub(r'\\(["\\])', r"\1", found[1]) if found[1] is not None else found[2]


def preference(header: str | None) -> Preference:
    """Parses ``wait=N``, capped at :data:`MAX_WAIT_SECONDS`, and ``respond-async``. Other
    preferences are ignored, as RFC 7240 requires.
    """
    words = [word.strip().lower() for word in (header or "").split(",")]
    for word in words:
        name, _, value = word.partition("=")
        value = value.strip().strip('"')
        if name.strip() == "wait" and re.fullmatch(r"[0-9]{1,9}", value):
            seconds = min(int(value), MAX_WAIT_SECONDS)
            return Preference(seconds, f"wait={seconds}")
    return Preference(applied="respond-async") if "respond-async" in words else Preference()


def cancel_after(header: str | None) -> int | None:
    """Deadline in seconds from now: ``90``, ``90s``, ``5m``, ``1h`` or ``1d``.

    Raises:
        InvalidHeader: it is not a duration, is zero, or is longer than a week.
    """
    if header is None:
        return None
    found = _DURATION.fullmatch(header.strip())
    seconds = int(found[1]) * _UNITS[found[2] or "s"] if found else 0
    if not 0 < seconds <= MAX_DEADLINE_SECONDS:
        raise InvalidHeader(
            "Cancel-After must be a duration of 1 second to 7 days such as 90s, 5m or 1h, not"
            f" {header[:50]!r}."
        )
    return seconds


def trace_parent(header: str | None) -> str:
    """The caller's trace context; '' if absent or malformed, as the recommendation requires."""
    return header if header and len(header) <= 200 and _TRACE.fullmatch(header) else ""


def trace_id(parent: str) -> str:
    """The trace id of a :func:`trace_parent`."""
    return parent[3:35]


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether ``If-None-Match`` matches (weak comparison, RFC 9110 section 13.1.2)."""
    if if_none_match is None:
        return False
    offered = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in offered or etag.removeprefix("W/") in offered


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Parses ``Range`` into (first, last + 1). None for the whole file, also if the header has
    several ranges or other units.

    Raises:
        RangeNotSatisfiable: the range contains no byte of the file.
    """
    found = _RANGE.fullmatch((header or "").strip().replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:  # suffix range
        first, end = max(0, size - int(found[2])), size
    else:
        first, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
        if found[2] and int(found[2]) < first:
            return None  # invalid ranges are ignored
    if first >= end:
        raise RangeNotSatisfiable(size)
    return first, end
