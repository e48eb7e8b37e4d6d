"""Supervision of child processes: restarts those that exit, and stops all of them together."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from service.launch.parent_death import die_with_parent
from service.settings import Settings

log = logging.getLogger(__name__)

STOP_SECONDS = 30
"""Time for a worker to return its job to the queue before it is killed."""

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 60
HEALTHY_SECONDS = 120
"""After a run of this length, the restart delay is reset to the first pause."""


def spawn(
    command: Sequence[str], settings: Settings, log_file: Path | None = None, **environment: str
) -> subprocess.Popen[bytes]:
    """Starts a child with these settings in its environment. It is killed when the thread that
    started it ends.
    """
    with contextlib.nullcontext() if log_file is None else log_file.open("ab") as output:
        return subprocess.Popen(
            command,
            env={**settings.environment(), **environment},
            # its own session: Ctrl-C reaches only the launcher, which stops the children in order.
            # SIGKILL with the launcher: jobs survive it, and nothing else would stop the child
            start_new_session=True,
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )


def stop(children: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Terminates all children at once; kills those still running after :data:`STOP_SECONDS`."""
    running = {name: child for name, child in children.items() if child.poll() is None}
    for child in running.values():
        child.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for name, child in running.items():
        try:
            child.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("The %s did not stop in %d s and is killed", name, STOP_SECONDS)
            child.kill()
            child.wait()


@contextmanager
def process(
    name: str,
    command: Sequence[str],
    settings: Settings,
    log_file: Path | None = None,
    **environment: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a child until the block ends."""
    child = spawn(command, settings, log_file, **environment)
    try:
        yield child
    finally:
        stop({name: child})


@dataclass
class Member:
    """A supervised process across its restarts."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    running: subprocess.Popen[bytes]
    started_at: float = field(default_factory=time.monotonic)
    failures: int = 0
    """Number of consecutive short runs."""
    due_at: float | None = None
    """Time of the next restart, by ``time.monotonic``; None while it runs."""


class Supervisor:
    """Starts processes and keeps them running.

    Starting and :meth:`tend` belong to one thread, and that thread must outlive the processes.
    """

    def __init__(
        self,
        settings: Settings,
        log_file: Path | None = None,
        healthy_seconds: float = HEALTHY_SECONDS,
    ) -> None:
        self.settings = settings
        self.log_file = log_file
        self.healthy_seconds = healthy_seconds
        self.members: dict[str, Member] = {}

    def start(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Starts a process under a unique name."""
        self.members[name] = Member(
            name, command, environment, spawn(command, self.settings, self.log_file, **environment)
        )

    @property
    def children(self) -> dict[str, subprocess.Popen[bytes]]:
        """The processes by name, running or exited."""
        return {name: member.running for name, member in self.members.items()}

    def tend(self) -> None:
        """Restarts processes that have exited; call it about once a second."""
        now = time.monotonic()
        for name, member in self.members.items():
            if (status := member.running.poll()) is None:
                continue
            if member.due_at is None:
                member.failures = (
                    0 if now - member.started_at > self.healthy_seconds else member.failures + 1
                )
                pause = min(
                    MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** max(0, member.failures - 1)
                )
                member.due_at = now + pause
                log.error(
                    "The %s exited with status %d; restarting in %.1f s",
                    name,
                    status,
                    pause,
                )
            elif now >= member.due_at:
                member.running = spawn(
                    member.command, self.settings, self.log_file, **member.environment
                )
                member.started_at, member.due_at = now, None

    def stop(self) -> None:
        """Stops all processes without restarting them."""
        stop(self.children)
        self.members.clear()
