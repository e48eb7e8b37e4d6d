"""``aps edit``: a photo, a mask or margins, and a prompt in; the photo with a new part out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aps_cli.fields import config_from, fields_from, sampler_options, task_options
from aps_core.config import APSConfig
from aps_core.tasks import EditSpec

PICTURE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("photo", type=PICTURE)
@click.argument("prompt")
@click.option("--mask", type=PICTURE, help="Mask picture of the photo's size, white = keep; without it the photo's transparent pixels are drawn anew.")
@task_options(EditSpec, "prompt")
@sampler_options(APSConfig)
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--max-pixels", type=int, help="Largest picture this device may sample; default 512x512 on CPU, 2048x2048 on GPU.")
@click.option("--server", help="URL of a running service; default: compute here.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Result picture; default PHOTO.edited.png.")
def edit(
    photo: Path, prompt: str, mask: Path | None, output: Path | None, device: str | None, max_pixels: int | None, server: str | None, **options: Any
) -> None:
    """Draw part of PHOTO anew after PROMPT, or extend it (--left, --top, --right, --bottom); every other pixel stays as it is."""
    from aps_cli.restore import compute_here, compute_remote

    spec = {"type": "edit", "prompt": prompt, **fields_from(options), "sampler": config_from(options)}
    pictures, output = {"image": photo, "mask": mask}, output or photo.with_suffix(".edited.png")
    if server:
        compute_remote(server, spec, pictures, output)
    else:
        compute_here(spec, pictures, output, device, max_pixels)
