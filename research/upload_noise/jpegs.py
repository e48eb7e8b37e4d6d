"""Uploads that are JPEGs, restored with and without what the file tells of their errors.

    python -m research.upload_noise.jpegs

The photographs and pages of ``examples`` are blurred or left as they are, get noise, and are
compressed. The job names the blur, or noise alone, and leaves the rest to the service: that a JPEG
was rounded, and how noisy it was before. Compared with the same pixels as a PNG, which tell
neither. Rows go to a CSV file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.tables import markdown, mean
from aps_core.imaging import images, noise
from aps_core.operators import OperatorSpec
from aps_core.operators.denoise import Denoise
from aps_core.operators.gaussian_blur import GaussianBlur
from aps_core.runtime.process import be_reproducible
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded
from research.common.tables import gained

SETS = {
    "embedded_photographs": ("castle", "chelsea", "coffee", "raccoon"),
    "embedded_documents": ("page-karla", "page-sil-andika", "screen-7-shell-appmenu-shell"),
}
"""Pictures by prior."""
SIDE, BEYOND, BORDER = 160, 16, 8
"""Pixels of a picture, around the upload, and of its border that are not compared."""
OPERATORS = (GaussianBlur(sigma=1.5), Denoise())
QUALITIES, SIGMAS = (75, 90), (0.005, 0.02, 0.05)


@dataclass(frozen=True)
class Upload:
    """One upload, restored twice; PSNR in dB."""

    prior: str
    picture: str
    operator: str
    quality: int
    sigma: float
    png: float
    jpeg: float


def measured(prior: str, name: str, operator: OperatorSpec, quality: int, sigma: float) -> Upload:
    """Restores one picture."""
    folder = "photos" if prior == "embedded_photographs" else "documents"
    data = (EXAMPLES / folder / f"{name}.png").read_bytes()
    x_CHW = images.to_tensor(images.open_image(data))[:, :SIDE, :SIDE]
    inside = slice(BEYOND, -BEYOND)
    y_CHW = operator.bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0][:, inside, inside]
    noisy_CHW = noise.add_noise(y_CHW, sigma, torch.Generator().manual_seed(1))
    file = io.BytesIO()
    images.to_pil(noisy_CHW).save(file, "JPEG", quality=quality)
    jpeg = images.open_image(file.getvalue())
    engine, seen = ImageEngine.load(prior, "cpu"), slice(BORDER, -BORDER)

    def restored(upload: images.Picture) -> float:
        result = run(RestoreSpec(operator=operator, prior=prior), Inputs(upload), engine)
        assert isinstance(result, PictureResult)
        truth_1CHW = x_CHW[None, :, inside, inside][..., seen, seen]
        return float(psnr(result.pictures_BCHW[:1, :, seen, seen], truth_1CHW)[0])

    return Upload(
        prior=prior,
        picture=name,
        operator=operator.type,
        quality=quality,
        sigma=sigma,
        png=restored(images.Picture(jpeg.image)),
        jpeg=restored(jpeg),
    )


def uploads() -> Iterator[Upload]:
    """All of them."""
    for prior, names in SETS.items():
        for operator in OPERATORS:
            for quality in QUALITIES:
                for sigma in SIGMAS:
                    for name in names:
                        yield measured(prior, name, operator, quality, sigma)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=Path("jpeg-uploads.csv"))
    args = parser.parse_args()
    be_reproducible(1)
    rows = recorded(uploads(), args.out)
    lines = []
    for prior in SETS:
        for operator in OPERATORS:
            for sigma in SIGMAS:
                some = [
                    row
                    for row in rows
                    if (row.prior, row.operator, row.sigma) == (prior, operator.type, sigma)
                ]
                lines.append(
                    [
                        prior,
                        operator.type,
                        str(sigma),
                        f"{mean([row.png for row in some]):.2f}",
                        f"{mean([row.jpeg for row in some]):.2f}",
                        gained([row.jpeg - row.png for row in some]),
                    ]
                )
    print(markdown(["prior", "operator", "noise", "as PNG", "as JPEG", "difference"], lines))


if __name__ == "__main__":
    main()
