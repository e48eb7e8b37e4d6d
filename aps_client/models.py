"""Return types of the client: names of the contract's models, previews, results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aps_client.writing import write_whole
from aps_contract import BatchView as Batch
from aps_contract import JobView as Job
from aps_contract import LinkView as Link

__all__ = ["Batch", "Job", "Link", "Preview", "Result", "save"]


@dataclass(frozen=True)
class Preview:
    """Estimate after one reverse step."""

    step: int
    """Reverse steps finished, from 1 to ``total``."""
    total: int
    """Number of reverse steps."""
    misfit: float | None
    """Distance between the degraded estimate and the measurement, on its [-1, 1] scale; None for
    tasks without a measurement.
    """
    noise_floor: float | None
    """Expected misfit of the true image, that is of the noise alone; None if unknown."""
    jpeg: bytes
    """The picture as JPEG."""


@dataclass(frozen=True)
class Result:
    """A succeeded job and its result files."""

    job: Job
    files: Mapping[str, bytes]
    """Contents of the result files by name."""

    @property
    def image(self) -> bytes:
        """The resulting PNG; of several samples, the one with the lowest misfit.

        Raises:
            KeyError: the task does not produce a picture.
        """
        return self._file("result.png")

    @property
    def samples(self) -> list[bytes]:
        """All samples as PNG files."""
        several = [data for name, data in self.files.items() if name.startswith("sample-")]
        return several or [self.image]

    @property
    def text(self) -> str:
        """The answer of a text task.

        Raises:
            KeyError: the task does not produce text.
        """
        return self._file("answer.txt").decode()

    @property
    def texts(self) -> list[str]:
        """The best answer to every prompt of a text task, in the order of the prompts.

        Raises:
            KeyError: the task does not produce text.
        """
        sidecar = self.sidecar
        return [answer["text"] for answer in sidecar.get("best_answers") or [sidecar["answer"]]]

    @property
    def sidecar(self) -> dict[str, Any]:
        """Contents of ``result.json``: effective settings, seed, misfit, timings, versions."""
        sidecar: dict[str, Any] = json.loads(self.files["result.json"])
        return sidecar

    def _file(self, name: str) -> bytes:
        if name not in self.files:
            raise KeyError(
                f"The result of the task '{self.job.task}' has no file '{name}'; it has:"
                f" {', '.join(self.files)}."
            )
        return self.files[name]

    def save(self, path: str | Path) -> list[Path]:
        """Writes the result files to disk, all of them or none.

        Args:
            path: path of the main file. The sidecar goes beside it with the suffix ``.json``;
                other files are named ``{stem}-{name}``.

        Returns:
            Paths of the files written, without the sidecar.

        Raises:
            NotWritten: a file cannot be written.
        """
        return save(self.files, Path(path))


def save(files: Mapping[str, bytes], path: Path) -> list[Path]:
    """Writes result files given as a mapping; otherwise like :meth:`Result.save`."""
    named = {}
    for name, data in files.items():
        if name != "result.json":
            main = name.startswith("result.") or name == "answer.txt"
            named[path if main else path.with_name(f"{path.stem}-{name}")] = data
    contents = {path.with_suffix(".json"): files["result.json"] + b"\n", **named}
    # the main file comes last: if it is there, everything is
    write_whole({each: contents[each] for each in sorted(contents, key=lambda each: each == path)})
    return list(named)
