"""Restores from a measurement of your own: any differentiable function of the picture."""

from pathlib import Path

from torch.nn.functional import avg_pool2d

import aps_core as aps
from aps_core.imaging.picture_like import picture

SIZE = 64


def main(photo: Path, output: Path, **sampler: int) -> aps.Restoration:
    """Measures ``photo`` as means of 4x4 pixels with noise, and restores it from them."""
    truth_BCHW = picture(photo)[None, :, :SIZE, :SIZE]
    observe = lambda x_BCHW: avg_pool2d(x_BCHW, 4)  # noqa: E731 - the whole operator
    measurement = aps.Measurement(
        observe(truth_BCHW), operator=observe, sigma=0.02, size=(SIZE, SIZE)
    )
    result = aps.restore(measurement, aps.load_prior(), sampler={"type": "aps", **sampler})
    result.image.save(output)
    return result


if __name__ == "__main__":
    main(Path(__file__).parent / "photos" / "coffee.png", Path("own-operator.png"))
