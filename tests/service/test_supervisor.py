"""Supervised processes: restarts with backoff, parallel stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

from service.launch import supervisor
from service.launch.supervisor import Supervisor
from service.settings import Settings

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def processes() -> Iterator[Supervisor]:
    running = Supervisor(Settings())
    yield running
    running.stop()


def until(processes: Supervisor, done: Callable[[], bool]) -> float:
    started = time.monotonic()
    while not done():
        assert time.monotonic() - started < 30
        processes.tend()
        time.sleep(0.02)
    return time.monotonic() - started


def test_a_dead_process_is_restarted_unchanged(processes: Supervisor) -> None:
    processes.start("sleeper", SLEEP, MARK="here")
    first = processes.children["sleeper"]
    first.kill()
    until(
        processes,
        lambda: (
            processes.children["sleeper"].pid != first.pid
            and processes.children["sleeper"].poll() is None
        ),
    )
    with open(f"/proc/{processes.children['sleeper'].pid}/environ") as environment:
        assert "MARK=here" in environment.read()


def test_restarts_back_off_for_repeated_failures(
    processes: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_SECONDS", 0.1)
    processes.start("failing", [sys.executable, "-c", "raise SystemExit(3)"])
    member = processes.members["failing"]
    pauses = []
    for failures in (1, 2, 3, 4):
        until(
            processes,
            lambda failures=failures: (  # type: ignore[misc]
                member.failures == failures and member.due_at is not None
            ),
        )
        assert member.due_at is not None
        pauses.append(member.due_at - time.monotonic())
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8], abs=0.05)


def test_a_long_running_process_is_restarted_at_once(processes: Supervisor) -> None:
    processes.start("sleeper", SLEEP)
    member = processes.members["sleeper"]
    member.failures = 6
    member.started_at = time.monotonic() - 1000
    member.running.kill()
    member.running.wait()
    processes.tend()
    assert member.failures == 0
    assert member.due_at is not None
    assert member.due_at - time.monotonic() <= supervisor.FIRST_PAUSE_SECONDS


def test_all_processes_are_stopped_in_parallel(processes: Supervisor) -> None:
    slow = [
        sys.executable,
        "-c",
        (
            "import signal, sys, time\nsignal.signal(15, lambda *_: (time.sleep(1),"
            " sys.exit(0)))\nprint('up', flush=True)\ntime.sleep(600)"
        ),
    ]
    for number in range(3):
        processes.start(f"slow {number}", slow)
    children = list(processes.children.values())
    time.sleep(1)
    started = time.monotonic()
    processes.stop()
    assert time.monotonic() - started < 2.5, "each takes a second, together they take little more"
    assert all(child.poll() is not None for child in children)
