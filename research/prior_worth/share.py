"""How much of a restoration is due to the prior, and how much to the sampler around it.

    python -m research.prior_worth.share examples/photos

Restores every photograph of a folder with the default sampler of the embedded prior, and again with
one part taken away: equal logits in the prior's place, or random order of the anchors. Start,
correction, measurement and seed stay the same. Rows are appended to a CSV file, and an interrupted
run continues. Printed by task: mean PSNR of the default and of each control, and what the default
gains over them with its 95 % interval, paired over photographs.
"""

from __future__ import annotations

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.run import Variant
from aps_core.runtime.process import be_reproducible
from aps_core.types import Prior
from research.common.variants import arguments, run_variants, summary
from research.common.without_prior import EqualLogits

DEFAULT = Variant(method="carried_evidence")
RANDOM = Variant(method="carried_evidence", settings={"remasking": "random"})


CONTROLS: dict[str, tuple[bool, Variant]] = {
    "default": (True, DEFAULT),
    "equal logits": (False, DEFAULT),
    "random order": (True, RANDOM),
}
"""By name: whether the prior is asked, and the sampler."""


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
    print(summary(run_variants(variants, photos, asked.out), "default"))


if __name__ == "__main__":
    main()
