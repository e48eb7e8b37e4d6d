"""The documentation's table of limits is generated from the code and complete."""

from __future__ import annotations

from aps_core.errors import APSError
from service.api.openapi.limits_table import table
from service.api.problems.errors import Busy, status_of
from service.jobs import NotNow
from service.limits import ANSWER, Limits
from service.main import create_app
from service.settings import Settings

OPERATION = {
    "lease_seconds",
    "heartbeat_seconds",
    "sweep_seconds",
    "republish_seconds",
    "stall_seconds",
}
OPERATION |= {"storage_seconds", "metrics_port", "threads"}
"""Numeric settings that control operation rather than limit clients."""


def kinds(error: type[APSError]) -> set[type[APSError]]:
    return {error, *(kind for below in error.__subclasses__() for kind in kinds(below))}


def test_every_number_among_the_settings_is_a_limit_with_an_answer() -> None:
    create_app(Settings())
    numbers = {
        name
        for name, info in Settings.model_fields.items()
        if info.annotation in (int, float, int | None, float | None)
    }
    assert numbers - OPERATION - {"listed"} <= set(Limits.model_fields), "a limit, or not?"
    for name, info in Limits.model_fields.items():
        assert isinstance(info.json_schema_extra, dict)
        assert info.json_schema_extra[ANSWER]
        assert f"`APS_{name.upper()}`" in table()


def test_every_refusal_of_too_much_has_a_limit() -> None:
    create_app(Settings())
    refusals = kinds(NotNow) - {NotNow} | {Busy}
    refusals |= {kind for kind in kinds(APSError) if status_of(kind.__new__(kind)) in (408, 413)}
    missing = {kind.code for kind in refusals if f"`{kind.code}`" not in table()}
    assert not missing


def test_defaults_are_those_in_force() -> None:
    rows = {row.split(" | ")[2]: row.split(" | ")[1] for row in table().splitlines()[2:]}
    assert rows["`APS_MAX_JOB_SECONDS`"] == f"{Settings().max_job_seconds:,}"
    assert rows["`APS_MAX_RUNNING`"] == "-"
