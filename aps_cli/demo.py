"""``aps demo``: degrades a photograph and restores it through a service on this machine."""

from __future__ import annotations

from pathlib import Path

import click
import torch
from PIL import Image, ImageDraw

from aps_cli.display import Display
from aps_client import Client
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images, noise
from aps_core.imaging.resampling import resize
from aps_core.operators.super_resolution import SuperResolution

SIDE = 128
SIGMA = 0.05


def make_measurement(photo: Path, out: Path) -> tuple[Path, torch.Tensor]:
    """Resizes the photograph to ``SIDE``, degrades it and writes ``measurement.png``.

    Returns:
        Path of the measurement, and the ground truth (3, SIDE, SIDE) in [-1, 1].
    """
    truth = resize(images.to_tensor(images.open_image(photo.read_bytes())), (SIDE, SIDE)).clamp(
        -1, 1
    )
    y = SuperResolution(factor=4).bind((3, SIDE, SIDE))(truth[None])[0]
    y = noise.add_noise(y, SIGMA, torch.Generator().manual_seed(0))
    path = out / "measurement.png"
    path.write_bytes(images.encode_png(y.clamp(-1, 1)))
    return path, truth


def restore_photo(url: str, photo: Path, out: Path) -> None:
    """Degrades ``photo``, restores it with the service at ``url``, writes pictures to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    measurement, truth = make_measurement(photo, out)
    click.echo(
        f"{photo.name}: {SIDE}x{SIDE} pixels reduced to {SIDE // 4}x{SIDE // 4} with noise sigma"
        f" {SIGMA}; restoring through {url}/v1/restore"
    )
    with Client(url) as client, Display() as display:
        job = client.submit(
            "restore",
            {"image": measurement},
            operator={"type": "super_resolution", "factor": 4},
            sigma=SIGMA,
        )
        for event in client.events(job):
            if event.type == "progress":
                display.step(event.data)
        result = client.result(job)
    result.save(out / "restored.png")
    restored, sidecar = images.to_tensor(images.open_image(result.image)), result.sidecar
    panels = {
        "original": images.to_pil(truth),
        "measurement": Image.open(measurement),
        "restored": images.to_pil(restored),
    }
    sheet = Image.new("RGB", (3 * 392 + 8, 424), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (title, panel) in enumerate(panels.items()):
        scaling = Image.Resampling.NEAREST if title == "measurement" else Image.Resampling.BICUBIC
        sheet.paste(panel.resize((384, 384), scaling), (i * 392 + 8, 32))
        draw.text((i * 392 + 12, 8), title, fill="black", font_size=16)
    sheet.save(out / "before-after.png")
    fidelity = float(psnr(restored[None], truth[None]))
    click.echo(f"{fidelity:.2f} dB after {sidecar['seconds']['sampling']:.1f} s of sampling")
    click.echo(f"misfit {sidecar['misfit'][0]:.4f}, noise floor {sidecar['noise_floor']:.4f}")
    click.echo(f"Picture: {out / 'before-after.png'}")
