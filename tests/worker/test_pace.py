"""The time that a running job has left."""

import time

import pytest

from worker.pace import Pace


def running(estimate: float, elapsed: float) -> Pace:
    """Of a job that began with its first step."""
    pace = Pace(estimate)
    pace.seconds_left(1, 4, share=0.01)
    pace.started = time.monotonic() - elapsed
    return pace


def test_what_precedes_the_first_report_does_not_frighten() -> None:
    """Five of six seconds go into the first estimate, before the first of 100 iterations ends."""
    assert running(6, elapsed=5).seconds_left(1, 4, share=0.04) < 20


def test_a_job_of_twice_the_estimate_is_noticed() -> None:
    pace = running(10, elapsed=10)
    assert pace.seconds_left(2, 4) == pytest.approx(8, abs=1)
    assert pace.seconds_left(4, 4) == 0


def test_without_an_estimate_the_pace_alone_tells() -> None:
    assert running(0, elapsed=9).seconds_left(3, 4) == pytest.approx(3, abs=0.2)


def test_a_resumed_job_counts_its_own_work_alone() -> None:
    pace = Pace(0)
    pace.seconds_left(5, 8, share=0.001)
    pace.started -= 4
    assert pace.seconds_left(6, 8) == pytest.approx(4, abs=0.2)
