"""``aps stylize``: a style picture and a prompt in, a picture in that style out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aps_cli.fields import config_from, fields_from, sampler_options, task_options
from aps_core.config import APSConfig
from aps_core.tasks import StylizeSpec

PICTURE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("style", type=PICTURE)
@click.argument("prompt")
@click.option("--content", type=PICTURE, help="Picture whose layout is kept.")
@task_options(StylizeSpec, "prompt")
@sampler_options(APSConfig)
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--max-pixels", type=int, help="Largest result this device may make; default 512x512 on CPU, 2048x2048 on GPU.")
@click.option("--server", help="URL of a running service; default: compute here.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("stylized.png"), show_default=True, help="Result picture.")
def stylize(
    style: Path, prompt: str, content: Path | None, output: Path, device: str | None, max_pixels: int | None, server: str | None, **options: Any
) -> None:
    """Make a picture after PROMPT in the style of the picture STYLE; shows the style distance after every step."""
    from aps_cli.restore import compute_here, compute_remote

    spec = {"type": "stylize", "prompt": prompt, **fields_from(options), "sampler": config_from(options)}
    pictures: dict[str, Path | None] = {"style": style, "image": content}
    if server:
        compute_remote(server, spec, pictures, output)
    else:
        compute_here(spec, pictures, output, device, max_pixels)
