"""What the photographs prior gives on photographs, beside classical methods and `embedded`.

    python -m research.prior_worth.photographs examples/photos

Restores every photograph at 128 pixels with the default sampler of the photographs prior, with that
of `embedded`, and with equal logits in the place of the photographs prior: in the same rounds, and
in a single one with as many corrections. Measurement and seed are the same for all. Rows are
appended to a CSV file, and an interrupted run continues. Printed by task: mean PSNR of the
baselines and of every method, and what the photographs prior gains over the others, with its 95 %
interval, paired over photographs; then the same of the structural similarity.
"""

from __future__ import annotations

from dataclasses import replace

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import BASELINES
from aps_core.evaluation.photographs import photographs
from aps_core.evaluation.run import Variant
from aps_core.runtime.process import be_reproducible
from research.common.variants import TASKS, arguments, run_variants, summary
from research.common.without_prior import without_prior

DEFAULT = "photographs"


def main() -> None:
    parser = arguments(__doc__, "photographs.csv")
    parser.add_argument("--task", choices=[*TASKS, "sr2", "jpeg", "denoise"], action="append")
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    prior, general = ImageEngine.load("embedded_photographs"), ImageEngine.load("embedded")
    variants = {
        "embedded": (general, Variant(general.spec.restoring_sampler)),
        DEFAULT: (prior, Variant(prior.spec.restoring_sampler)),
        **without_prior(prior),
    }
    pictures = photographs(asked.photographs, 128)
    tasks = tuple(asked.task or TASKS)
    rows = run_variants(variants, pictures, asked.out, tasks, BASELINES)
    print(summary(rows, DEFAULT))
    print(summary([replace(row, psnr=row.ssim) for row in rows], DEFAULT))


if __name__ == "__main__":
    main()
