"""Blurred pages without noise, restored with and without the doubt of the noise estimate.

    python -m research.upload_noise.pages

Blurred letters fill every patch, so patches alone take them for noise; the weakest part of the
spectrum contradicts. Pages of ``examples/documents`` for which it does; its limits were chosen on
other pages. Rows go to a CSV file, and PSNR in dB is printed by blur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from aps_core.imaging import images, noise_level
from aps_core.operators import OperatorSpec
from aps_core.operators.defocus_blur import DefocusBlur
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.operators.linear_motion_blur import LinearMotionBlur
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded
from research.common.tables import gained

PAGES = EXAMPLES / "documents"
SIDE, BEYOND, BORDER = 160, 16, 8
"""Pixels of a page, around the upload, and of its border that are not compared."""
BLURS: tuple[OperatorSpec, ...] = (
    GaussianBlur(sigma=1.0),
    DefocusBlur(radius=2.0),
    LinearMotionBlur(length=6.0, angle=30.0),
)


@dataclass(frozen=True)
class Restored:
    """One page, restored twice; deviations on [-1, 1], PSNR in dB."""

    blur: str
    page: str
    patches_sigma: float
    sigma: float
    patches: float
    doubted: float


def restored(path: Path, blur: OperatorSpec, engine: ImageEngine) -> Restored | None:
    """One page; None if the spectrum does not contradict its patches."""
    x_CHW = images.to_tensor(images.open_image(path.read_bytes()))[:, :SIDE, :SIDE]
    inside, seen = slice(BEYOND, -BEYOND), slice(BORDER, -BORDER)
    y_CHW = blur.bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0][:, inside, inside]
    upload = images.Picture(images.to_pil(y_CHW))
    truth_1CHW = x_CHW[None, :, inside, inside][..., seen, seen]
    pixels = images.to_tensor(upload).double().numpy()
    sigma = noise_level.estimate_noise(pixels)
    with patch.object(noise_level, "DOUBTED", 0.0):
        patches_sigma = noise_level.estimate_noise(pixels)
    if sigma == patches_sigma:
        return None

    def quality(assumed: float) -> float:
        least = max(assumed, noise_level.QUANTISATION)
        spec = RestoreSpec(operator=blur, prior="embedded_documents", sigma=least)
        result = run(spec, Inputs(upload), engine)
        assert isinstance(result, PictureResult)
        return float(psnr(result.pictures_BCHW[:1, :, seen, seen], truth_1CHW)[0])

    return Restored(
        blur=blur.words(),
        page=path.stem,
        patches_sigma=patches_sigma,
        sigma=sigma,
        patches=quality(patches_sigma),
        doubted=quality(sigma),
    )


def pages() -> Iterator[Restored]:
    """All of them for which the two estimates differ."""
    engine = ImageEngine.load("embedded_documents", "cpu")
    for blur in BLURS:
        for path in sorted(PAGES.glob("*.png")):
            if (row := restored(path, blur, engine)) is not None:
                yield row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=Path("clean-pages.csv"))
    args = parser.parse_args()
    be_reproducible(torch.get_num_threads())
    rows = recorded(pages(), args.out)
    lines = []
    for blur in BLURS:
        mine = [row for row in rows if row.blur == blur.words()]
        before, after = mean(row.patches for row in mine), mean(row.doubted for row in mine)
        gain = gained([row.doubted - row.patches for row in mine])
        told = [f"{before:.2f}", f"{after:.2f}", gain]
        lines.append([blur.words(), str(len(mine)), *told])
    print(markdown(["blur", "pages", "patches alone", "with doubt", "gain"], lines))


if __name__ == "__main__":
    main()
