"""Adds a measurement operator in one class and restores a photograph with it.

Put such a class in a file of ``aps_core/operators/`` (or register its module under the entry-point
group ``aps.operators``) and the API, the studio's form and the command line know it as well.
"""

from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field

from aps_core.engines.engine import Engine
from aps_core.imaging import images
from aps_core.imaging.resampling import resize
from aps_core.operators import Bound, OperatorSpec, Shape
from aps_core.tasks import Inputs, RestoreSpec, run


class Underexposed(OperatorSpec):
    """The picture is too dark: every value was scaled towards black."""

    type: Literal["underexposed"] = "underexposed"
    exposure: float = Field(
        0.5, gt=0, lt=1, description="Share of the light that reached the sensor."
    )
    linear: ClassVar[bool] = False

    def bind(
        self,
        shape_CHW: Shape,
        device: torch.device | str = "cpu",
        mask_HW: torch.Tensor | None = None,
    ) -> Bound:
        """``(x + 1) * exposure - 1``: black stays at -1."""
        return Bound(lambda x: (x + 1) * self.exposure - 1)


def main(photo: Path, output: Path, **sampler: int) -> None:
    """Darkens ``photo`` to a fifth, restores it by the recommended settings but for ``sampler``,
    writes the result.
    """
    operator = Underexposed(exposure=0.2)
    truth = resize(images.to_tensor(images.open_image(photo.read_bytes())), (128, 128)).clamp(-1, 1)
    dark = images.open_image(images.encode_png(operator.bind((3, 128, 128))(truth[None])[0]))
    spec = RestoreSpec(operator=operator, sigma=0.02, sampler=sampler)
    result = run(spec, Inputs(dark), Engine.load("embedded"))
    output.write_bytes(result.files()[0].data)


if __name__ == "__main__":
    main(Path(__file__).parent / "photos" / "coffee.png", Path("underexposed.restored.png"))
