"""A prior in a file outside the repository's packages."""

from typing import ClassVar, Literal

from aps_core import ImagePriorSpec


class PalettePrior(ImagePriorSpec):
    """Blocks of 27 colours, of which neighbours are alike."""

    type: Literal["outside_prior"] = "outside_prior"
    native_size: ClassVar = (64, 64)
    stride: ClassVar = 4
    recommended: ClassVar = {"steps": 3, "inner_steps": 4}
    recommended_loss: ClassVar = {"measurement": {"perceptual_weight": 0.0}}

    def token_bytes(self, device):
        return 10_000

    def load(self, device):
        from own_prior import Neighbours

        return Neighbours()
