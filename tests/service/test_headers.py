"""Parsing of request headers; malformed values are rejected or ignored as their standards say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.requests.headers import (
    InvalidHeader,
    Preference,
    RangeNotSatisfiable,
    byte_range,
    cancel_after,
    idempotency_key,
    matches,
    preference,
    trace_id,
    trace_parent,
)

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, ""),
        ("abc-1", "abc-1"),
        ('"abc 1"', "abc 1"),
        (r'"a\"b\\c"', 'a"b\\c'),
        ("x" * 255, "x" * 255),
    ],
)
def test_an_idempotency_key_is_quoted_or_bare(header: str | None, key: str) -> None:
    assert idempotency_key(header) == key


@pytest.mark.parametrize(
    "header", ["", " ", '""', "x" * 256, '"open', "a b", "clé", 'a"b', "a\x00b"]
)
def test_invalid_idempotency_keys_are_rejected(header: str) -> None:
    with pytest.raises(InvalidHeader, match="1 to 255"):
        idempotency_key(header)


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        (None, Preference()),
        ("wait=5", Preference(5, "wait=5")),
        ('respond-async, wait="7"', Preference(7, "wait=7")),
        ("wait=100000", Preference(60, "wait=60")),
        ("respond-async", Preference(0, "respond-async")),
        ("wait=soon", Preference()),
        ("wait=-1; return=minimal", Preference()),
        ("wait=٣", Preference()),
    ],
)
def test_unknown_preferences_are_ignored(header: str | None, asked: Preference) -> None:
    assert preference(header) == asked


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("7d", 604_800)],
)
def test_cancel_after_is_a_duration(header: str | None, seconds: int | None) -> None:
    assert cancel_after(header) == seconds


@pytest.mark.parametrize("header", ["", "0", "-5", "1.5", "8d", "soon", "5 m", "99999999"])
def test_cancel_after_refuses_anything_else(header: str) -> None:
    with pytest.raises(InvalidHeader, match="Cancel-After"):
        cancel_after(header)


def test_trace_context() -> None:
    assert trace_id(trace_parent(TRACE)) == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace_parent(TRACE.replace("00-4", "01-4") + "-more") != "", (
        "later versions may say more"
    )
    for wrong in (
        None,
        "",
        "ff" + TRACE[2:],
        TRACE.upper(),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        TRACE[:-1],
        TRACE + "\n",
    ):
        assert trace_parent(wrong) == ""


def test_entity_tags_are_compared_weakly() -> None:
    assert matches('"a", W/"b"', '"b"')
    assert matches("*", '"b"')
    assert not matches('"a"', '"b"')
    assert not matches(None, '"b"')


@given(size=st.integers(0, 40), first=st.integers(0, 50), last=st.integers(0, 50))
def test_ranges_equal_slices(size: int, first: int, last: int) -> None:
    content = bytes(range(size))
    parts = {f"bytes={first}-": content[first:], f"bytes=-{last}": content[-last:] if last else b""}
    if last >= first:
        parts[f"bytes={first}-{last}"] = content[first : last + 1]
    for header, part in parts.items():
        if not part:
            with pytest.raises(RangeNotSatisfiable, match=f"{size} bytes"):
                byte_range(header, size)
        else:
            found = byte_range(header, size)
            assert found is not None
            assert content[slice(*found)] == part


@pytest.mark.parametrize(
    "header", [None, "", "bytes=-", "bytes=0-1,3-4", "items=0-1", "bytes=a-b", "bytes=5-2"]
)
def test_other_ranges_return_the_whole_file(header: str | None) -> None:
    assert byte_range(header, 10) is None
