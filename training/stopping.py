"""A run has its folder to itself and ends when it is asked to."""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def stoppable(out: Path) -> Iterator[Callable[[], bool]]:
    """Locks the run's folder and gives a function that says whether to stop: after SIGTERM or
    SIGINT, or once a file ``out/STOP`` is there. A STOP file of an earlier run is removed.

    Raises:
        SystemExit: another run is training in the folder; they would overwrite each other's state.
    """
    with (out / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SystemExit(f"Another run is training in {out}; stop it and wait.") from error
        stop_file = out / "STOP"
        stop_file.unlink(missing_ok=True)
        requested = False

        def request(number: int, frame: FrameType | None) -> None:
            nonlocal requested
            requested = True

        before = {n: signal.signal(n, request) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield lambda: requested or stop_file.exists()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
