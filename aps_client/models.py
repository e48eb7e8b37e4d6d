"""What the client hands out: jobs, their events and previews, finished results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.api.views import JobView as Job
from service.api.views import StoredPicture

__all__ = ["Event", "Job", "Preview", "Result", "StoredPicture"]


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
        """The picture, a PNG; of several samples the one that agrees best with the measurement.

        Raises:
            KeyError: the task makes no picture.
        """
        return self.files["result.png"]

    @property
    def samples(self) -> list[bytes]:
        """Every sample, a PNG each."""
        several = [data for name, data in self.files.items() if name.startswith("sample-")]
        return several or [self.image]

    @property
    def text(self) -> str:
        """The answer of a text task.

        Raises:
            KeyError: the task makes no text.
        """
        return self.files["answer.txt"].decode()

    @property
    def sidecar(self) -> dict[str, Any]:
        """Settings as they were run, seed, misfit, seconds: everything to understand and repeat the
        job.
        """
        sidecar: dict[str, Any] = json.loads(self.files["result.json"])
        return sidecar

    def save(self, path: str | Path) -> list[Path]:
        """Writes the files; see :func:`save`."""
        return save(self.files, Path(path))


def save(files: Mapping[str, bytes], path: Path) -> list[Path]:
    """Writes the main file to ``path``, the sidecar beside it as ``.json``, further files as
    ``path-name``; returns the paths, the sidecar's left out.
    """
    path.with_suffix(".json").write_bytes(files["result.json"] + b"\n")
    paths = []
    for name, data in files.items():
        if name != "result.json":
            main = name.startswith("result.") or name == "answer.txt"
            paths.append(path if main else path.with_name(f"{path.stem}-{name}"))
            paths[-1].write_bytes(data)
    return paths
