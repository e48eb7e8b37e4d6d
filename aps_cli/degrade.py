"""``aps degrade``: simulates a measurement of a clean picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click

from aps_cli import files
from aps_cli.fields import PICTURE
from aps_cli.operator_options import OPERATOR, operator_from, operator_options
from aps_cli.ranges import FiniteRange
from aps_cli.sections import SectionedCommand
from aps_client.writing import write_whole
from aps_core.errors import InvalidSpec
from aps_core.operators import OperatorSpec
from aps_core.registry import Config


class Degradation(Config):
    """A degradation as a field, so that errors name it as those of a job do."""

    operator: Annotated[OperatorSpec, OPERATOR]


@click.command(cls=SectionedCommand)
@click.argument("photo", type=PICTURE)
@operator_options
@click.option(
    "--sigma",
    type=FiniteRange(0, 1),
    help="Noise standard deviation on the [-1, 1] scale; default: 0.05, with poisson 0.",
)
@click.option(
    "--noise",
    "kind",
    type=click.Choice(["gaussian", "poisson"]),
    default="gaussian",
    show_default=True,
    help="Noise to add.",
)
@click.option(
    "--peak",
    type=FiniteRange(0, 1e6, min_open=True),
    default=100.0,
    show_default=True,
    help="Expected photon count of a white value (poisson).",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the noise.")
@click.option("--mask", type=PICTURE, help="Mask picture, white = known.")
@files.output_options()[0]
@files.output_options()[1]
@click.option("--kernel", type=PICTURE, help="Blur kernel as a small grey picture.")
def degrade(
    photo: Path,
    output: Path | None,
    force: bool,
    sigma: float | None,
    kind: str,
    peak: float,
    seed: int,
    mask: Path | None,
    kernel: Path | None,
    **options: Any,
) -> None:
    """Degrade a clean PHOTO with an operator and noise, to try out a restoration.

    Writes an 8-bit picture of y = A(x) + sigma * noise, where the noise is Gaussian. With
    --noise poisson, photon counting noise is applied to A(x) first. Missing pixels are transparent.
    """
    import torch

    from aps_core.imaging import images, noise
    from aps_core.operators.kernel_blur import kernel_rows

    spec = Degradation.model_validate({"operator": operator_from(options)}).operator
    (path,) = files.targets([photo], output, ".degraded.png")
    files.check_free([path], force)
    if kernel is not None:
        spec = spec.with_kernel(kernel_rows(files.opened("kernel", kernel.read_bytes())))
    x = images.to_tensor(files.opened("photo", files.read(photo)))
    mask_HW = images.mask_to_tensor(files.opened("mask", mask.read_bytes())) if mask else None
    factor = getattr(spec, "factor", 1)
    x = x[:, : x.shape[1] // factor * factor, : x.shape[2] // factor * factor]
    if not x.numel():
        raise InvalidSpec(f"The picture is smaller than {factor}x{factor} pixels.")
    operator = spec.bind((3, *x.shape[1:]), "cpu", mask_HW)
    y = operator(x[None])[0]
    # gray measurements get gray noise
    y = y[:1] if torch.equal(y, y[:1].expand_as(y)) else y
    generator = torch.Generator().manual_seed(seed)
    if kind == "poisson":
        y = noise.add_poisson(y, peak, generator)
    y = noise.add_noise(y, sigma if sigma is not None else 0.05 * (kind == "gaussian"), generator)
    data = images.encode_png(y.clamp(-1, 1).expand(3, -1, -1), operator.weight)
    if path == files.STDIO:
        files.write_out(data)
        return
    write_whole({path: data})
    click.echo(path)
