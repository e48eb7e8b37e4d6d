"""Controls that have no prior: equal logits in its place."""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.run import Variant
from aps_core.priors.convolutional.network import ERROR, ConvolutionalPrior
from aps_core.tokenizers.pixels import PixelTokenizer, brightness, mean_and_variance
from aps_core.types import Denoised, Prior, Tokenizer

DEFAULT = Variant(method="plug_and_play")
EQUAL, SINGLE = CONTROLS = ("equal logits", "single optimisation")
CONTROL_WEIGHTS = {"embedded_documents": (0.4, 0.4), "embedded_photographs": (6.4, 6.4)}
"""Of equal logits by the prior that they replace, in the default's rounds and in a single one.
Chosen on withheld pictures, as the default's was: estimates are believed less if no prior judges
them.
"""


class EqualLogits:
    """A prior that knows nothing, and believes any estimate. Implements
    :class:`aps_core.types.DenoisingPrior`.
    """

    def __init__(self, replaced: Prior) -> None:
        """Of the prior that is ``replaced``, it has the tokenizer, and for documents the levels: it
        knows that none is beyond black or white.
        """
        self.tokenizer: Tokenizer = replaced.tokenizer
        self.continuous = (
            isinstance(replaced, ConvolutionalPrior) and replaced.net.config.continuous
        )

    def logits(self, z_BL: Tensor, **_: object) -> Tensor:
        """Zeros (B, L, K)."""
        return torch.zeros(*z_BL.shape, len(self.tokenizer.codebook_KD))

    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        """The estimate, with the same error at every pixel."""
        assert isinstance(self.tokenizer, PixelTokenizer)
        mean_BL = brightness(estimate_BCHW).flatten(1)
        variance_BL = torch.full_like(mean_BL, ERROR**2)
        if not self.continuous:
            y_BLY = self.tokenizer.log_likelihood(estimate_BCHW, variance_BL.sqrt())
            levels_Y = self.tokenizer.levels_Y
            mean_BL, variance_BL = mean_and_variance(y_BLY.softmax(-1), levels_Y)
        unchanged_B2HW = torch.zeros_like(estimate_BCHW[:, :2])
        colours_BCHW = self.tokenizer.colours(estimate_BCHW, unchanged_B2HW)
        return Denoised(mean_BL, variance_BL, colours_BCHW, torch.ones_like(mean_BL))


def without_prior(engine: ImageEngine) -> dict[str, tuple[ImageEngine, Variant]]:
    """The default with equal logits in the prior's place, in its rounds, and in a single one with
    as many corrections.
    """
    blank = ImageEngine(engine.spec, EqualLogits(engine.prior), engine.device)
    usual = engine.spec.tuned[DEFAULT.method]
    corrections = usual["steps"] * usual["inner_steps"]
    rounds_weight, single_weight = CONTROL_WEIGHTS[engine.spec.type]
    single = {"steps": 1, "inner_steps": corrections, "prior_weight": single_weight}
    return {
        EQUAL: (blank, Variant(DEFAULT.method, settings={"prior_weight": rounds_weight})),
        SINGLE: (blank, Variant(DEFAULT.method, settings=single)),
    }
