"""Children that cannot outlive whoever started them, not even when it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(at_death: signal.Signals) -> Callable[[], None] | None:
    """For ``preexec_fn``: the kernel sends the child ``at_death`` when the thread that starts it
    ends (Linux; elsewhere nothing happens).
    """
    if sys.platform != "linux":
        return None
    # looked up before the fork: little is safe after it
    prctl, parent = (
        ctypes.CDLL(None).prctl,
        os.getpid(),
    )

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(at_death), 0, 0, 0)
        if os.getppid() != parent:  # it has died already
            os._exit(os.EX_UNAVAILABLE)

    return tie
