"""``aps generate``: a prompt in, pictures out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("prompt", default="")
@click.option("--width", type=int, help="Pixels across; default: the prior's native size.")
@click.option("--height", type=int, help="Pixels down; default: the prior's native size.")
@click.option("--steps", default=15, show_default=True, help="Reverse steps.")
@click.option("--guidance-scale", type=float, help="Classifier-free guidance; default: what the prior recommends.")
@click.option("--temperature", default=1.0, show_default=True, help="Noise on the choice of tokens to keep; 0 draws nothing at random.")
@click.option("--num-samples", default=1, show_default=True, help="Pictures to draw.")
@click.option("--seed", default=0, show_default=True, help="Seed of every random draw.")
@click.option("--prior", default="embedded", show_default=True, help="Which prior to sample from.")
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("generated.png"), show_default=True, help="Result picture.")
def generate(output: Path, device: str | None, steps: int, guidance_scale: float | None, **options: Any) -> None:
    """Draw a picture for PROMPT by the prior's own sampling (text to image); writes it and a JSON sidecar."""
    from aps_cli.restore import default_device, steps_bar, write_pictures
    from aps_core.engine import ImageEngine
    from aps_core.tasks import GenerateSpec, Inputs, PictureResult, run

    sampler = {"steps": steps, **({} if guidance_scale is None else {"guidance_scale": guidance_scale})}
    spec = GenerateSpec.model_validate({**options, "sampler": sampler})
    spec.check(None, None, False)
    engine = ImageEngine.load(spec.prior, default_device(device))
    with steps_bar() as advance:
        result = run(spec, Inputs(), engine, lambda p: advance(p.step, p.total, "sampling"))
    assert isinstance(result, PictureResult)
    write_pictures(result, output)
