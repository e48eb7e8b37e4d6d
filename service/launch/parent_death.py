"""Child processes that die with their parent, even if the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(at_death: signal.Signals) -> Callable[[], None] | None:
    """Returns a ``preexec_fn`` that makes the kernel send the child the signal ``at_death`` when
    the thread that started it ends. Linux only; None on other systems.
    """
    if sys.platform != "linux":
        return None
    # resolved before the fork, as few calls are safe after it
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(at_death), 0, 0, 0)
        if os.getppid() != parent:  # the parent has already exited
            os._exit(os.EX_UNAVAILABLE)

    return set_death_signal
