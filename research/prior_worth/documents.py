"""What the documents prior gives on pages, scans and screens, beside the one for any picture.

    python -m research.prior_worth.documents examples/documents

Restores the middle 128 pixels of every picture of a folder with the default sampler of the
documents prior and of ``embedded``, and again with equal logits in the place of the documents
prior, which believe any estimate: in the same rounds, and in a single one with as many corrections.
``--controls`` adds the paper's anchors (of the most confident, of random, and of the tokens that
the prior alone is most confident of) in the place of rounds, and the prior alone. Measurement and
seed are the same for all. Rows are appended to a CSV file, and an interrupted run continues.
Printed by task: mean PSNR of the baselines and of every method, and what the documents prior gains
over the others, with its 95 % interval, paired over pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.baselines import (
    TV_WEIGHTS_DOCUMENTS,
    shrinkage,
    simple,
    total_variation,
    wiener,
)
from aps_core.evaluation.cases import Case
from aps_core.evaluation.run import Variant
from aps_core.runtime.process import be_reproducible
from research.common.pictures import middles
from research.common.variants import arguments, run_variants, summary
from research.common.without_prior import DEFAULT, without_prior

TASKS = ("sr4", "gaussian_blur", "motion_blur")
MORE_TASKS = ("sr2", "jpeg", "inpainting50")
BASELINES: dict[str, Callable[[Case], Tensor]] = {
    "input": simple,
    "tv": partial(total_variation, weights=TV_WEIGHTS_DOCUMENTS),
    "shrinkage": partial(shrinkage, clipped_smoothness=0.0),
    "wiener": wiener,
}
ANCHORS = {"anchors": "posterior", "random anchors": "random", "prior's anchors": "prior"}
"""Orders of :mod:`aps_core.samplers.carried_evidence`."""


def anchored(engine: ImageEngine) -> dict[str, tuple[ImageEngine, Variant]]:
    """Samplers with anchors, in three orders, and the prior alone."""
    return {
        **{
            name: (engine, Variant("carried_evidence", settings={"remasking": order}))
            for name, order in ANCHORS.items()
        },
        "prior alone": (engine, Variant("prior_only")),
    }


def main() -> None:
    parser = arguments(__doc__, "documents.csv")
    parser.add_argument("--every", type=int, default=1, help="use every Nth picture")
    parser.add_argument("--task", choices=[*TASKS, *MORE_TASKS], action="append")
    parser.add_argument("--controls", action="store_true")
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    documents = ImageEngine.load("embedded_documents")
    general = ImageEngine.load("embedded")
    variants = {
        "embedded": (general, Variant(general.spec.restoring_sampler)),
        "documents": (documents, DEFAULT),
        **without_prior(documents),
    }
    if asked.controls:
        variants |= anchored(documents)
    pictures = middles(asked.photographs, asked.every)
    tasks = tuple(asked.task or TASKS)
    rows = run_variants(variants, pictures, asked.out, tasks, BASELINES)
    print(summary([row for row in rows if row.task in tasks], "documents"))


if __name__ == "__main__":
    main()
