r"""Character error rates of pages that were blurred by an unknown amount.

    apt-get install tesseract-ocr
    python -m training.documents.fetch --out CORPUS      # fonts; archives of the Debian project
    python -m research.blind.characters --corpus CORPUS --text text.tar.xz

Sets pages of new text in the font families withheld from training, as
``research.peers.characters`` does, blurs them by the blurs of ``research.blind.compare``, adds
noise, restores them, and lets tesseract read the result. ``auto`` is a job with the operator
'auto'; ``known`` is one with the true operator; ``maxim`` is a network
(``research/blind/maxim.py``, with ``--maxim``). Cases come in a random order until ``--seconds``
have passed. Rows go to a CSV file. Printed: mean error rates by kind of blur, and what ``auto``
misreads less, with its 95 % interval, paired over cases.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.errors import NothingToRestore
from aps_core.evaluation.tables import markdown, mean
from aps_core.identify.blind.families import FAMILIES
from aps_core.imaging import images, noise
from aps_core.operators import OperatorSpec
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import Inputs, RestoreSpec
from aps_core.tasks import run as run_task
from aps_core.tasks.results import PictureResult
from research.blind.compare import BLURS
from research.blind.maxim import Maxim
from research.common.arguments import parser_of
from research.common.legibility import Page, error_rate, pages, read, require_tesseract
from research.common.recording import recorded
from research.common.tables import gained
from research.peers.characters import READABLE

SIGMA = 0.02
UNKNOWN = OperatorSpec.named("auto").model_validate({})


@dataclass(frozen=True)
class Reading:
    """One page, restored and read."""

    page: str
    kind: str
    blur: str
    method: str
    error_rate: float


def job(operator: OperatorSpec, upload: images.Picture, engine: ImageEngine) -> Tensor:
    """The restoration (3, H, W) of a job; the upload if there is nothing to restore."""
    try:
        result = run_task(
            RestoreSpec(operator=operator, prior=engine.spec.type), Inputs(upload), engine
        )
    except NothingToRestore:
        return images.to_tensor(upload)
    assert isinstance(result, PictureResult)
    return result.pictures_BCHW[result.best]


def readings(
    chosen: Sequence[Page], seconds: float, engine: ImageEngine, maxim: Maxim | None
) -> Iterator[Reading]:
    """One row for every page, blur and method, until the time has passed."""
    cases = [(page, blur) for page in chosen for blur in BLURS]
    random.Random(0).shuffle(cases)
    start = time.monotonic()
    for page, (kind, true) in cases:
        if time.monotonic() - start > seconds:
            return
        blur, x_CHW = FAMILIES[kind].blur(true), page.picture_CHW
        seen_CHW = blur.bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
        noisy_CHW = noise.add_noise(seen_CHW, SIGMA, torch.Generator().manual_seed(0))
        upload = images.Picture(images.to_pil(noisy_CHW))
        y_CHW = images.to_tensor(upload)
        found = {
            "truth": x_CHW,
            "blurred": y_CHW,
            "auto": job(UNKNOWN, upload, engine),
            "known": job(blur, upload, engine),
        }
        if maxim is not None:
            found["maxim"] = maxim(y_CHW)
        for method, picture_CHW in found.items():
            rate = error_rate(page.text, read(picture_CHW.clamp(-1, 1)))
            yield Reading(
                page=page.name, kind=kind, blur=blur.words(), method=method, error_rate=rate
            )


def table(found: Sequence[Reading]) -> str:
    """One line per method."""
    kinds = [*dict.fromkeys(blur[0] for blur in BLURS), "all"]
    lines = []
    for method in dict.fromkeys(row.method for row in found):
        cells = [method]
        for kind in kinds:
            mine = {
                (row.page, row.blur): row.error_rate
                for row in found
                if row.method == method and kind in (row.kind, "all")
            }
            cells.append(f"{mean(mine.values()):.1%} of {len(mine)}" if mine else "")
        ours = {(row.page, row.blur): row.error_rate for row in found if row.method == "auto"}
        more = gained([mine[case] - ours[case] for case in mine], ".1%")
        lines.append([*cells, "" if method == "auto" else more])
    return markdown(["method", *kinds, "more than auto"], lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="of training.documents.fetch")
    parser.add_argument("--text", type=Path, required=True, help="text.tar.xz")
    parser.add_argument("--maxim", type=Path, help="folder of MAXIM's weights, for that method")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after them")
    parser.add_argument("--out", type=Path, default=Path("blind-characters.csv"))
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    require_tesseract()
    be_reproducible(asked.threads)
    every = pages(asked.corpus, asked.text, 160, 20, seed=2029)
    chosen = [page for page in every if error_rate(page.text, read(page.picture_CHW)) <= READABLE]
    engine = ImageEngine.load("embedded_documents")
    maxim = Maxim(asked.maxim) if asked.maxim else None
    print(table(recorded(readings(chosen, asked.seconds, engine, maxim), asked.out)))


if __name__ == "__main__":
    main()
