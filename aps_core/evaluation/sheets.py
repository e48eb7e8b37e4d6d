"""Contact sheets of a benchmark: methods side by side, and the anchors step by step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Case, Setup
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import picture_name
from aps_core.imaging import images
from aps_core.samplers import SamplerSpec
from aps_core.sampling import driver
from aps_core.types import MASK, Grid, StepInfo

STRIP = ("prior_only", "aps_i", "aps_ii", "aps")
"""Methods in the strip; the first three are the rows of the paper's ablation figure."""


def contact_sheet(
    path: Path, pictures: Path, rows: Iterable[Row], photos_a_task: int = 3, cell: int = 192
) -> None:
    """Sheet with rows (protocol, task, photograph) and columns truth, measurement and methods, for
    the first photographs of every task.
    """
    listed = list(rows)
    columns = ["truth", "measurement", *dict.fromkeys(row.method for row in listed)]
    lines: list[list[Image.Image | None]] = []
    for protocol, task, sigma in dict.fromkeys(
        (row.protocol, row.task, row.sigma) for row in listed
    ):
        names = dict.fromkeys(
            row.image
            for row in listed
            if (row.protocol, row.task, row.sigma) == (protocol, task, sigma)
        )
        for name in list(names)[:photos_a_task]:
            files = [
                pictures / picture_name(protocol, task, sigma, name, column) for column in columns
            ]
            lines.append([Image.open(file) if file.exists() else None for file in files])
    _sheet(columns, lines, cell).save(path)


def anchor_strip(
    path: Path,
    engine: ImageEngine,
    setup: Setup,
    case: Case,
    seed: int,
    frames: int = 6,
    cell: int = 160,
) -> None:
    """The paper's ablation figure for one case: one row per method, with its estimates after the
    same reverse steps and undecided tokens greyed out.
    """
    grid = engine.grid(case.height, case.width)
    steps = setup.sampler.steps
    shown = sorted({round(i * (steps - 1) / (frames - 1)) + 1 for i in range(frames)})
    lines: list[list[Image.Image | None]] = []
    for method in STRIP:
        line: list[Image.Image | None] = []

        def keep(info: StepInfo, line: list[Image.Image | None] = line) -> None:
            if info.state.step in shown:
                x_CHW = decided_only(info.x_hat_BCHW[0], info.state.z_BL[0], grid)
                line.append(images.to_pil(x_CHW[:, : case.height, : case.width].clamp(-1, 1)))

        sampler = SamplerSpec.named(method).like(
            setup.sampler, {**engine.spec.tuned.get(method, {}), "steps": steps}
        )
        generator = torch.Generator(engine.device).manual_seed(seed)
        sample = driver.sample(
            engine.prior, case.objective, sampler, grid=grid, generator=generator, on_step=keep
        )
        lines.append(
            [
                *line,
                images.to_pil(sample.x_BCHW[0, :, : case.height, : case.width].clamp(-1, 1)),
                images.to_pil(case.truth_CHW),
            ]
        )
    _sheet([*(f"after step {step}" for step in shown), "result", "truth"], lines, cell, STRIP).save(
        path
    )


def decided_only(x_CHW: Tensor, z_L: Tensor, grid: Grid) -> Tensor:
    """Fades undecided tokens of a picture to light grey."""
    decided = (z_L != MASK).float().view(1, 1, *grid)
    share = 0.15 + 0.85 * F.interpolate(decided, x_CHW.shape[-2:], mode="nearest")[0]
    return share * x_CHW + (1 - share) * 0.75


def _sheet(
    columns: list[str], lines: list[list[Image.Image | None]], cell: int, names: Iterable[str] = ()
) -> Image.Image:
    """Arranges pictures on a white page under column names. The cell of a missing picture stays
    empty.
    """
    sheet = Image.new("RGB", (len(columns) * (cell + 4), 24 + len(lines) * (cell + 4)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, column in enumerate(columns):
        draw.text((i * (cell + 4) + 4, 6), column, fill="black")
    for j, line in enumerate(lines):
        for i, picture in enumerate(line):
            if picture is not None:
                sheet.paste(
                    picture.resize((cell, cell), Image.Resampling.NEAREST),
                    (i * (cell + 4), 24 + j * (cell + 4)),
                )
    for j, name in enumerate(names):
        draw.text((6, 28 + j * (cell + 4)), name, fill="black")
    return sheet
