"""The per-image table: one row per photograph, operator and method. Rows are appended as they are
computed, and read again to continue a run.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.evaluation.cases import Case
from aps_core.evaluation.lpips import LPIPS
from aps_core.evaluation.metrics import gradient_energy, psnr, ssim

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Key = tuple[str, str, float, str, str]
Kind = TypeVar("Kind", bound="DataclassInstance")


@dataclass(frozen=True)
class Row:
    """One row of the per-image table."""

    protocol: str
    task: str
    sigma: float
    image: str
    method: str
    """A method's name, with the settings that differ from the benchmark's."""
    psnr: float
    ssim: float
    lpips: float
    """LPIPS version 0.1 with VGG16; NaN without its weights."""
    gradient_energy: float
    """Gradient energy relative to the truth; 1 means the same amount of fine detail."""
    misfit: float
    noise_floor: float
    seconds: float
    decodes: int
    """Decoder evaluations, the samplers' budget. 0 for methods without sampling."""
    gpu_gib: float
    """Peak GPU memory in GiB; NaN on a CPU."""

    @property
    def key(self) -> Key:
        """Identity of the row."""
        return self.protocol, self.task, self.sigma, self.image, self.method

    @property
    def residual(self) -> float:
        """Misfit divided by the noise floor; 1 means only noise is left."""
        return self.misfit / max(self.noise_floor, 1e-9)


@dataclass(frozen=True)
class Cost:
    """Resources used for one picture."""

    seconds: float
    decodes: int = 0
    gpu_gib: float = math.nan


def score(case: Case, method: str, x_BCHW: Tensor, cost: Cost, lpips: LPIPS | None) -> Row:
    """Metrics of one picture (1, 3, H, W) against the truth, at the truth's own size."""
    truth, x = case.truth_CHW[None], case.at_truth_size(x_BCHW).clamp(-1, 1)
    with torch.no_grad():
        distance = float(lpips(x, truth)) if lpips is not None else math.nan
    return Row(
        protocol=case.protocol,
        task=case.task,
        sigma=case.sigma,
        image=case.image,
        method=method,
        psnr=float(psnr(x, truth)),
        ssim=float(ssim(x, truth)),
        lpips=distance,
        gradient_energy=float(gradient_energy(x) / gradient_energy(truth)),
        misfit=case.misfit(x_BCHW),
        noise_floor=case.objective.noise_floor,
        seconds=cost.seconds,
        decodes=cost.decodes,
        gpu_gib=cost.gpu_gib,
    )


def append(table: Path, row: DataclassInstance) -> None:
    """Appends a row, after the header if the file is new."""
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(row)])
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(asdict(row))


def read_rows(table: Path, kind: type[Kind]) -> list[Kind]:
    """Rows of an earlier, possibly interrupted, evaluation. ``kind`` is a dataclass of strings and
    numbers.

    Raises:
        InvalidSpec: the table's columns differ from this version's.
    """
    if not table.exists():
        return []
    columns: dict[str, Callable[[str], object]] = {
        f.name: {"str": str, "int": int}.get(str(f.type), float) for f in fields(kind)
    }
    with table.open(newline="") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or []) != list(columns):
            raise InvalidSpec(
                f"{table} was written by another version (its columns differ); choose another"
                " output folder or remove it."
            )
        return [
            kind(**{name: read(line[name]) for name, read in columns.items()}) for line in reader
        ]
