"""``aps demo``: restores a photograph and a page through a service on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from aps_cli.display import Display
from aps_client import Client, Result
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images, noise
from aps_core.imaging.resampling import resize
from aps_core.operators import OperatorSpec
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.super_resolution import SuperResolution

SIDE = 128
SIGMA = 0.05
REDUCTION, BLUR = SuperResolution(factor=4), GaussianBlur(sigma=1.5)
"""How the photograph and the page are degraded."""
_TILE, _GAP, _TITLE = 384, 8, 24


@dataclass(frozen=True)
class Case:
    """A picture, what is done to it, and its restoration."""

    truth_CHW: Tensor
    """(3, SIDE, SIDE) in [-1, 1]."""
    measurement: Path
    result: Result

    @property
    def restored_CHW(self) -> Tensor:
        """(3, SIDE, SIDE) in [-1, 1]."""
        return images.to_tensor(images.open_image(self.result.image))


def degraded(picture: Path, operator: OperatorSpec, path: Path) -> Tensor:
    """Resizes the picture to ``SIDE``, degrades it and writes the measurement to ``path``.

    Returns:
        The ground truth (3, SIDE, SIDE) in [-1, 1].
    """
    x_CHW = images.to_tensor(images.open_image(picture.read_bytes()))
    truth_CHW = resize(x_CHW, (SIDE, SIDE)).clamp(-1, 1)
    y_CHW = operator.bind((3, SIDE, SIDE))(truth_CHW[None])[0]
    y_CHW = noise.add_noise(y_CHW, SIGMA, torch.Generator().manual_seed(0))
    path.write_bytes(images.encode_png(y_CHW.clamp(-1, 1)))
    return truth_CHW


def restore_case(url: str, picture: Path, operator: OperatorSpec, out: Path) -> Case:
    """Degrades ``picture``, restores it with the service at ``url`` and writes both to ``out``.

    The service chooses the prior.
    """
    measurement = out / f"measurement-{picture.stem}.png"
    truth_CHW = degraded(picture, operator, measurement)
    click.echo(f"{picture.name}: {operator.words()}, noise sigma {SIGMA}; {url}/v1/restore")
    with Client(url) as client, Display() as display:
        job = client.submit(
            "restore",
            {"image": measurement},
            operator=operator.model_dump(mode="json"),
            sigma=SIGMA,
        )
        for event in client.events(job):
            if event.type == "progress":
                display.step(event.data)
        case = Case(truth_CHW, measurement, client.result(job))
    case.result.save(out / f"restored-{picture.stem}.png")
    sidecar = case.result.sidecar
    fidelity = float(psnr(case.restored_CHW[None], truth_CHW[None]))
    click.echo(
        f"{fidelity:.2f} dB after {sidecar['seconds']['sampling']:.1f} s of sampling with the prior"
        f" {sidecar['spec']['prior']}; misfit {sidecar['misfit'][0]:.4f}, noise floor"
        f" {sidecar['noise_floor']:.4f}"
    )
    return case


def restore_both(url: str, photo: Path, page: Path, out: Path) -> None:
    """Degrades and restores a photograph and a page; writes all pictures and a sheet to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    cases = [
        restore_case(url, picture, operator, out)
        for picture, operator in ((photo, REDUCTION), (page, BLUR))
    ]
    sheet(cases).save(out / "before-after.png")
    click.echo(f"Picture: {out / 'before-after.png'}")


def sheet(cases: list[Case]) -> Image.Image:
    """One row for each case: original, measurement, restored."""
    titles = ("original", "measurement", "restored")
    step = _TILE + _GAP
    drawn = Image.new(
        "RGB", (len(titles) * step + _GAP, _TITLE + len(cases) * step + _GAP), "#e8e8e8"
    )
    draw = ImageDraw.Draw(drawn)
    for column, title in enumerate(titles):
        draw.text((column * step + _GAP + 4, 4), title, fill="black", font_size=16)
    for row, case in enumerate(cases):
        panels = (
            images.to_pil(case.truth_CHW),
            Image.open(case.measurement),
            images.to_pil(case.restored_CHW),
        )
        for column, panel in enumerate(panels):
            scaling = Image.Resampling.NEAREST if column == 1 else Image.Resampling.BICUBIC
            place = (column * step + _GAP, row * step + _GAP + _TITLE)
            drawn.paste(panel.convert("RGB").resize((_TILE, _TILE), scaling), place)
    return drawn
