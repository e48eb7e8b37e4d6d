"""Restores with a prior of your own: any object with ``tokenizer`` and ``logits``.

This one knows a palette of 27 colours for each block of 4x4 pixels, and that neighbours are alike.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, conv2d, interpolate

import aps_core as aps
from aps_core.imaging.picture_like import picture


class Palette:
    """Tokenizer: a block's code is the number of its colour."""

    stride = 4
    codebook_KD = torch.cartesian_prod(*[torch.linspace(-0.9, 0.9, 3)] * 3)

    def features(self, x_BCHW: Tensor) -> Tensor:
        return avg_pool2d(x_BCHW, self.stride)

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        return [self.features(x_BCHW)]

    def encode(self, x_BCHW: Tensor) -> Tensor:
        return self.quantize(self.features(x_BCHW).flatten(2).mT)[0]

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        codes = torch.cdist(e, self.codebook_KD.expand(*e.shape[:-2], -1, -1)).argmin(-1)
        return codes, self.codebook_KD[codes]

    def decode(self, e_BLD: Tensor, grid: tuple[int, int]) -> Tensor:
        return interpolate(e_BLD.mT.unflatten(2, grid), scale_factor=self.stride)


class Neighbours:
    """Prior: the more decided neighbours have a colour, the likelier it is."""

    tokenizer = Palette()

    def logits(self, z_BL: Tensor, *, grid: tuple[int, int], **_: object) -> Tensor:
        seen_BLK = torch.nn.functional.one_hot(z_BL + 1, 28)[..., 1:].float()
        maps_BKHW = seen_BLK.mT.unflatten(2, grid)
        counts = conv2d(maps_BKHW.flatten(0, 1)[:, None], torch.ones(1, 1, 3, 3), padding=1)
        return counts.view_as(maps_BKHW).flatten(2).mT


def main(photo: Path, output: Path, **sampler: int) -> aps.Restoration:
    """Restores a noisy ``photo`` with it."""
    truth_CHW = picture(photo)[:, :64, :64]
    noise = 0.3 * torch.randn(truth_CHW.shape, generator=torch.Generator().manual_seed(0))
    measurement = aps.Measurement(truth_CHW + noise, operator="denoise", sigma=0.3)
    settings = aps.APSConfig(**{"steps": 6, "inner_steps": 30, **sampler})
    loss = aps.MeasurementLoss(perceptual_weight=0)
    result = aps.restore(measurement, Neighbours(), sampler=settings, loss=loss)
    result.image.save(output)
    return result


if __name__ == "__main__":
    main(Path(__file__).parent / "photos" / "coffee.png", Path("own-prior.png"))
