"""Terminal display of a running job: phase, progress bar over reverse steps, text so far."""

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
    """Writes to stderr, and only if that is a terminal."""

    def __init__(self) -> None:
        steps = TextColumn("step {task.fields[step]}/{task.total:.0f}")
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            steps,
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("loading", total=1, step=0)
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
        """Shows the name of a phase outside the reverse steps, such as loading."""
        self._bar.update(self._task, description=name)

    def step(self, event: dict[str, Any]) -> None:
        """Shows a progress event.

        Args:
            event: ``step`` and ``total``; optionally ``misfit``, ``noise_floor``,
                ``reward_curve`` and ``text``.
        """
        if event.get("misfit") is not None and event.get("noise_floor"):
            note = f"misfit {event['misfit']:.4f} (noise {event['noise_floor']:.4f})"
        elif event.get("misfit") is not None:
            note = f"distance {event['misfit']:.4f}"
        elif event.get("reward_curve"):
            note = f"reward {event['reward_curve'][-1]:.3f}"
        else:
            note = "sampling"
        self._bar.update(
            self._task,
            completed=event["step"],
            total=event["total"],
            step=event["step"],
            description=note,
        )
        if event.get("text"):
            self._live.update(Group(Text(event["text"]), self._bar))

    def inner(self, event: dict[str, Any]) -> None:
        """Moves the bar within a step.

        Args:
            event: ``step``, ``total``, ``inner_step`` and ``inner_steps``.
        """
        done = event["step"] - 1 + event["inner_step"] / event["inner_steps"]
        self._bar.update(self._task, completed=done, total=event["total"], step=event["step"])
