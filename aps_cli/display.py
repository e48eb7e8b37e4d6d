"""What a person sees while a job is computed: phase, a bar over the reverse steps, text as it is
decided.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class Display:
    """On stderr, and only on a terminal; a pipe stays clean."""

    def __init__(self) -> None:
        steps = TextColumn("step {task.completed:.0f}/{task.total:.0f}")
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            steps,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("loading", total=1)
        self._live = Live(self._bar, console=Console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        if self._live.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def phase(self, name: str) -> None:
        """Says what happens before the first step, or after the last."""
        self._bar.update(self._task, description=name)

    def step(self, told: dict[str, Any]) -> None:
        """Shows a finished step: ``step``, ``total`` and, where there are any, ``misfit``,
        ``noise_floor``, ``reward_curve``, ``text``.
        """
        if told.get("misfit") is not None and told.get("noise_floor"):
            note = f"misfit {told['misfit']:.4f} (noise {told['noise_floor']:.4f})"
        elif told.get("misfit") is not None:
            note = f"distance {told['misfit']:.4f}"
        else:
            note = (
                f"reward {told['reward_curve'][-1]:.3f}" if told.get("reward_curve") else "sampling"
            )
        self._bar.update(self._task, completed=told["step"], total=told["total"], description=note)
        if told.get("text"):
            self._live.update(Group(Text(told["text"]), self._bar))
