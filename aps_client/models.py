"""What the client hands out: jobs, their events and previews, finished results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.views import JobView as Job

__all__ = ["Event", "Job", "Preview", "Result"]


@dataclass(frozen=True)
class Event:
    """One event of a job: ``status``, ``progress`` or ``done``."""

    id: str
    type: str
    data: dict[str, Any]

    @property
    def job(self) -> Job | None:
        """The whole job, which the last event brings."""
        return Job.model_validate(self.data["job"]) if "job" in self.data else None


@dataclass(frozen=True)
class Preview:
    """The estimate after a reverse step."""

    step: int
    total: int
    misfit: float | None
    """Distance from the measurement, in its own units."""
    noise_floor: float | None
    """The misfit that the truth would have."""
    jpeg: bytes


@dataclass(frozen=True)
class Result:
    """A finished job and its files."""

    job: Job
    files: Mapping[str, bytes]
    """The files the job made, by name."""

    @property
    def image(self) -> bytes:
        """The picture, a PNG; of several samples the first.

        Raises:
            KeyError: the task makes no picture.
        """
        return self.files["result.png"]

    @property
    def samples(self) -> list[bytes]:
        """Every posterior sample, a PNG each."""
        return [data for name, data in self.files.items() if name == "result.png" or name.startswith("sample-")]

    @property
    def sidecar(self) -> dict[str, Any]:
        """Settings as they were run, seed, misfit, seconds: everything to understand and repeat the job."""
        sidecar: dict[str, Any] = json.loads(self.files["result.json"])
        return sidecar

    @property
    def text(self) -> str:
        """The answer of a text task.

        Raises:
            KeyError: the task makes no text.
        """
        text: str = self.sidecar["answer"]["text"]
        return text

    def save(self, path: str | Path) -> list[Path]:
        """Writes the picture (``path``), further samples (``path-2``, ...) and the sidecar (``path.json``); returns the paths of the pictures."""
        path = Path(path)
        paths = [path if number == 1 else path.with_stem(f"{path.stem}-{number}") for number in range(1, len(self.samples) + 1)]
        for where, data in zip(paths, self.samples, strict=True):
            where.write_bytes(data)
        path.with_suffix(".json").write_bytes(self.files["result.json"])
        return paths
