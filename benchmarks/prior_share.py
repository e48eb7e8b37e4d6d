"""How much of a restoration is due to the prior, and how much to the sampler around it.

    python -m benchmarks.prior_share examples/photos

Restores every photograph of a folder with the default sampler of the embedded prior, and again with
one part taken away: equal logits in the prior's place, or random order of the anchors. Start,
correction, measurement and seed stay the same. Rows are appended to a CSV file, and an interrupted
run continues. Printed: mean PSNR of the default by task, and the default minus each control with
its 95 % interval, paired over photographs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.rows import Row
from aps_core.evaluation.run import Variant
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.priors.convolutional.network import ERROR, ConvolutionalPrior
from aps_core.runtime.process import be_reproducible
from aps_core.tokenizers.pixels import PixelTokenizer, brightness, mean_and_variance
from aps_core.types import Denoised, Prior, Tokenizer
from benchmarks.variants import TASKS, arguments, run_variants

DEFAULT = Variant(method="carried_evidence")
RANDOM = Variant(method="carried_evidence", settings={"remasking": "random"})


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


CONTROLS: dict[str, tuple[bool, Variant]] = {
    "default": (True, DEFAULT),
    "equal logits": (False, DEFAULT),
    "random order": (True, RANDOM),
}
"""By name: whether the prior is asked, and the sampler."""
LAST = list(CONTROLS)[-1]


def summary(rows: list[Row]) -> str:
    """One line per task."""
    found = {(row.task, row.image, row.method): row.psnr for row in rows}
    lines = []
    for task in TASKS:
        names = sorted({row.image for row in rows if (row.task, row.method) == (task, LAST)})
        cells = [task, f"{mean(found[task, name, 'default'] for name in names):.2f}"]
        for control in list(CONTROLS)[1:]:
            gain, low, high = paired_interval(
                [found[task, name, "default"] - found[task, name, control] for name in names]
            )
            cells.append(f"{gain:+.2f} [{low:.2f}, {high:.2f}]")
        lines.append(cells)
    header = ["task", "default, dB", *(f"gain over {name}" for name in list(CONTROLS)[1:])]
    return markdown(header, lines)


def main() -> None:
    asked = arguments(__doc__, "prior-share.csv").parse_args()
    be_reproducible(asked.threads)
    engine = ImageEngine.load("embedded")
    nothing: Prior = EqualLogits(engine.prior)
    blank = ImageEngine(engine.spec, nothing, engine.device)
    variants = {
        name: (engine if prior else blank, variant) for name, (prior, variant) in CONTROLS.items()
    }
    photos = photographs(asked.photographs, 128)
    print(summary(run_variants(variants, photos, asked.out)))


if __name__ == "__main__":
    main()
