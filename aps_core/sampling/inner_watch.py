"""Progress reports and cancellation between the inner iterations of a reverse step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aps_core.errors import SamplingCancelled
from aps_core.types import InnerHook, InnerInfo

if TYPE_CHECKING:
    from torch import Tensor

LOOK_CALLS, LOOK_SECONDS = 10, 0.1
"""The hook is called every ``LOOK_CALLS`` calls, or every ``LOOK_SECONDS`` if they take longer."""


class InnerWatch:
    """Calls ``hook`` during reverse step ``step`` (from 1) of ``total``.

    Each call reads the loss and therefore synchronises with the device. This also bounds the work
    queued on a GPU when a cancellation arrives.
    """

    def __init__(self, hook: InnerHook | None, step: int, total: int) -> None:
        self.hook = hook
        self.step = step
        self.total = total
        self._calls = self._seen = 0
        self._next = 1
        self._time = time.perf_counter()

    def __call__(
        self, iteration: int, inner_steps: int, loss: Tensor, x_hat_BCHW: Tensor | None = None
    ) -> None:
        """Reports that ``iteration`` of about ``inner_steps`` is finished with ``loss`` (scalar)
        and the estimate ``x_hat``, if one was decoded. To be called after every iteration.

        Raises:
            SamplingCancelled: the hook returned False.
        """
        self._calls += 1
        if self.hook is None or self._calls < self._next:
            return
        picture = None if x_hat_BCHW is None else lambda: x_hat_BCHW
        info = InnerInfo(
            step=self.step,
            total=self.total,
            iteration=iteration,
            inner_steps=inner_steps,
            loss=float(loss),
            picture=picture,
        )
        now = time.perf_counter()
        pace = max(now - self._time, 1e-9) / (self._calls - self._seen)
        self._next = self._calls + max(1, min(LOOK_CALLS, int(LOOK_SECONDS / pace)))
        self._seen = self._calls
        self._time = now
        if self.hook(info) is False:
            raise SamplingCancelled(
                f"Stopped in reverse step {self.step} of {self.total},"
                f" after inner iteration {iteration} of {inner_steps}."
            )


UNWATCHED = InnerWatch(None, step=1, total=1)
"""An :class:`InnerWatch` without a hook."""
