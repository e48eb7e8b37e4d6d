"""Widely blurred pictures, restored at full size or at the size that their blur leaves of them.

    python -m research.wide_blurs.compare --photographs CORPUS --documents CORPUS

Pictures that training withholds (four pages and screens, two photographs, 320 pixels) are blurred
widely, with light from beyond the border, some in linear light; get noise, and are compressed, or
not. The 256 pixels in the middle are the upload, whose blur ``auto`` finds. Restorations are
compared at full size, without the border. Rows go to a CSV file.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.errors import NothingToRestore
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from aps_core.identify.diagnosis.propose import resolved_side
from aps_core.identify.kinds.auto import Auto
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.operators import OperatorSpec
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from research.common.arguments import parser_of
from research.common.recording import recorded
from training import corpus
from training.documents.prior import held_out

SIDE, BEYOND, BORDER = 256, 32, 16
"""Pixels of the upload, around it, and at its border that are not compared."""
SIGMA = 0.006
BLURS: tuple[dict[str, Any], ...] = (
    {"type": "defocus_blur", "radius": 9.5},
    {"type": "linear_motion_blur", "length": 28, "angle": 80},
    {"type": "gaussian_blur", "sigma": 4.5},
)
QUALITIES = (None, 85, 90)


@dataclass(frozen=True)
class Restored:
    """One restoration."""

    picture: str
    blur: str
    found: str
    side: int
    """Longer side in pixels at which it was restored."""
    upload: float
    """PSNR of the upload, dB."""
    psnr: float
    seconds: float


def pictures(photographs: Path, documents: Path) -> Iterator[tuple[str, str, Tensor]]:
    """Name, prior, and picture (3, H, W) in [-1, 1]."""
    side = SIDE + 2 * BEYOND
    pages = held_out(documents, side)
    for kind, number in (("fonts", 1), ("scans", 1), ("fonts", 9), ("screens", 3)):
        ink = 1.0 if kind == "screens" else 0.45
        yield f"{kind}-{number}", "embedded_documents", pages[kind][number] * ink
    withheld = corpus.load(photographs, icons=False)[1]
    for number in (2, 5):
        yield f"photo-{number}", "embedded_photographs", corpus.square(withheld[number], side)


def blurred(x_CHW: Tensor, blur: dict[str, Any], linear: bool) -> Tensor:
    """The blurred picture, blurred as a camera does if ``linear``."""
    bound = OperatorSpec.from_fields(blur).bind((3, *x_CHW.shape[1:]))
    if not linear:
        return bound(x_CHW[None])[0]
    light_CHW = ((x_CHW + 1) / 2).clamp(min=1e-6) ** 2.2
    seen_CHW: Tensor = bound(light_CHW[None] * 2 - 1)[0] / 2 + 0.5
    return seen_CHW.clamp(min=0) ** (1 / 2.2) * 2 - 1


def upload(y_CHW: Tensor, quality: int | None) -> images.Picture:
    """The picture as a file."""
    data = io.BytesIO()
    if quality is None:
        images.to_pil(y_CHW).save(data, "PNG")
    else:
        images.to_pil(y_CHW).save(data, "JPEG", quality=quality)
    return images.open_image(data.getvalue())


def compared(
    name: str, prior: str, x_CHW: Tensor, blur: dict[str, Any], number: int
) -> Iterator[Restored]:
    """Restorations at full size, and at that which the blur leaves."""
    engine, inside = ImageEngine.load(prior, "cpu"), slice(BEYOND, -BEYOND)
    generator = torch.Generator().manual_seed(number)
    y_CHW = blurred(x_CHW, blur, number % 2 == 1)[:, inside, inside]
    given = upload(noise.add_noise(y_CHW, SIGMA, generator), QUALITIES[number % len(QUALITIES)])
    try:
        operator = Auto().find(Search(given)).operator
    except NothingToRestore:
        return

    def quality(z_CHW: Tensor) -> float:
        full_1CHW = F.interpolate(z_CHW[None], (SIDE, SIDE), mode="bicubic", antialias=True)
        seen = slice(BORDER, -BORDER)
        truth_CHW = x_CHW[:, inside, inside][:, seen, seen]
        return float(psnr(full_1CHW.clamp(-1, 1)[..., seen, seen], truth_CHW[None])[0])

    side = resolved_side(operator.model_dump(), given.size)
    for each in (SIDE,) if side is None else (SIDE, side):
        started = time.perf_counter()
        result = run(
            RestoreSpec(operator=operator, prior=prior, working_size=each), Inputs(given), engine
        )
        assert isinstance(result, PictureResult)
        yield Restored(
            picture=name,
            blur=blur["type"],
            found=operator.words(),
            side=each,
            upload=quality(images.to_tensor(given)),
            psnr=quality(result.pictures_BCHW[0]),
            seconds=round(time.perf_counter() - started, 1),
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("wide-blurs.csv"))
    args = parser.parse_args()
    be_reproducible(1)
    made = (
        row
        for place, (name, prior, x_CHW) in enumerate(pictures(args.photographs, args.documents))
        for other, blur in enumerate(BLURS)
        for row in compared(name, prior, x_CHW, blur, 10 * place + other)
    )
    rows = recorded(made, args.out)
    both = {(row.picture, row.blur) for row in rows if row.side < SIDE}
    kept = [row for row in rows if (row.picture, row.blur) in both]
    lines = [
        [name, f"{mean([r.psnr for r in some]):.2f}", f"{mean([r.seconds for r in some]):.1f}"]
        for name, some in (
            ("full size", [row for row in kept if row.side == SIDE]),
            ("size that the blur leaves", [row for row in kept if row.side < SIDE]),
        )
    ]
    print(markdown(["restored at", f"PSNR, {len(both)} pictures", "seconds"], lines))


if __name__ == "__main__":
    main()
