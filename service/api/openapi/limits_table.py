"""All limits of the service, configurable and fixed, as the documentation's table.

A test checks that it is complete.
"""

from __future__ import annotations

from typing import Any

from aps_contract import MAX_PICTURES, MAX_URL, WEBHOOK_EVENTS
from service.access.keys import ACTIVE_KEYS
from service.access.links import MAX_LINKS
from service.access.sessions import MAX_SESSIONS, SESSION_SECONDS
from service.api.batches.accept import MAX_SECONDS
from service.api.events.streams import MAX_STREAMS
from service.api.jobs.body import MAX_SPEC_BYTES, MAX_VALUES
from service.api.problems.handlers import MAX_ANSWER_BYTES, MAX_ERRORS
from service.api.requests.headers import MAX_DEADLINE_SECONDS, MAX_WAIT_SECONDS
from service.jobs.admission import Terms
from service.jobs.batches import KEPT_SECONDS
from service.limits import ANSWER, Limits
from service.uploads.fetch_url import CONCURRENT_FETCHES
from service.uploads.lanes import MAX_WAITING


def table() -> str:
    """Renders the limits as a Markdown table: limit, default, setting, response when exceeded."""
    rows = [
        (info.description or "", _shown(info.default), f"`APS_{name.upper()}`", _answer(info))
        for name, info in Limits.model_fields.items()
    ]
    rows += [(what, value, "fixed", answer) for what, value, answer in _constants()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = ["| limit | default | setting | response when exceeded |", "|---|---|---|---|"]
    return "\n".join([*head, *lines])


def _answer(info: Any) -> str:
    return str(info.json_schema_extra[ANSWER])


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"{len(value)} pauses, {sum(value) / 3600:.3g} h in total"
    return f"{value:,}"


def _constants() -> list[tuple[str, str, str]]:
    busy = "503 `busy`"
    return [
        (
            "Bytes of a spec: its form part, or the JSON body without pictures.",
            f"{MAX_SPEC_BYTES:,}",
            "413 `body_too_large`",
        ),
        ("Values in a JSON document.", f"{MAX_VALUES:,}", "413 `body_too_large`"),
        ("Lists, strings and numbers of a spec: see its schema.", "-", "422 `invalid_spec`"),
        ("Errors listed in one response.", str(MAX_ERRORS), "the others are only counted"),
        ("Bytes of a problem document.", f"{MAX_ANSWER_BYTES:,}", "fewer errors are listed"),
        (
            "Event streams of an API process, limited by its file descriptors.",
            f"{MAX_STREAMS:,} at most",
            busy,
        ),
        (
            "Pictures decoded at a time; at most half of them for one principal.",
            "one per core, 2 to 8",
            busy,
        ),
        (
            "URLs fetched at a time; at most half of them for one principal.",
            str(CONCURRENT_FETCHES),
            busy,
        ),
        ("Pictures or URLs of one principal waiting for that.", str(MAX_WAITING), busy),
        ("Seconds of `Prefer: wait`.", str(MAX_WAIT_SECONDS), "the wait is capped"),
        ("Seconds of `Cancel-After`.", f"{MAX_DEADLINE_SECONDS:,}", "400 `invalid_header`"),
        (
            "Seconds for which an `Idempotency-Key` is remembered.",
            f"{Terms.idempotency_seconds:,}",
            "the request creates a new job",
        ),
        ("Pictures of a batch.", str(MAX_PICTURES), "422 `invalid_spec`"),
        (
            "Seconds for accepting the pictures of a batch.",
            f"{MAX_SECONDS:g}",
            "the others are refused with `busy`; the request can be repeated",
        ),
        (
            "Seconds for which a batch is kept after it was last read.",
            f"{KEPT_SECONDS:,}",
            "404 `not_found`; its jobs stay",
        ),
        ("Kinds of webhook messages of a job.", str(len(WEBHOOK_EVENTS)), "422 `invalid_spec`"),
        ("Characters of a webhook URL.", f"{MAX_URL:,}", "422 `invalid_spec`"),
        ("Webhook messages of one job.", "1,000", "progress is dropped, the final one is sent"),
        ("Events kept for one job.", "2,000", "the oldest are dropped"),
        ("Jobs on a page of `GET /v1/jobs`.", "100", "422 `invalid_spec`"),
        ("Active keys of one principal.", str(ACTIVE_KEYS), "`aps keys create` fails"),
        ("Browser sessions of one key.", str(MAX_SESSIONS), "the oldest session ends"),
        ("Links to one result.", str(MAX_LINKS), "429 `too_many_links`"),
        ("Seconds of a browser session.", f"{SESSION_SECONDS:,}", "401 `unauthorized`"),
    ]
