"""Calibration of the fit verdict on simulated right and wrong operators.

python -m research.fit_verdict.calibrate

Pictures are degraded by a true operator, get noise or are compressed, and a part is judged under an
assumed operator: what lies outside the part is seen through the blur, as in every photograph. The
thresholds of :mod:`aps_core.verdict.thresholds` were chosen on every other picture of ``examples/``
(``--half choose``); the others show how good they are (``--half report``). Cases come in a random
order, right and wrong in turn, until ``--seconds`` have passed; about two a second on one core. The
first question of the verdict needs no sampling; ``--results`` also restores some pictures under the
right operator, for the second.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from aps_core.engines.engine import ImageEngine
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.operators import OperatorSpec
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult
from aps_core.verdict.fit import Fit, Verdict, fitted_residual, verdict_of
from aps_core.verdict.residual_spectrum import unexplained
from aps_core.verdict.thresholds import VERDICT
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded

SIDE = 96
CONDITIONS = {"noise 0": 0, "noise 0.02": 0.02, "noise 0.05": 0.05, "JPEG 85": 85, "JPEG 60": 60}
Operator = dict[str, Any]


def gaussian(sigma: float) -> Operator:
    return {"type": "gaussian_blur", "sigma": sigma}


def defocus(radius: float) -> Operator:
    return {"type": "defocus_blur", "radius": radius}


def motion(length: float, angle: float) -> Operator:
    return {"type": "linear_motion_blur", "length": length, "angle": angle}


NONE: Operator = {"type": "denoise"}
LONG, SHORT, LEVEL = motion(15, 80), motion(9, 30), motion(7, 0)
RIGHT = [NONE, gaussian(1.0), gaussian(2.0), defocus(3.0), defocus(5.0), LONG, SHORT, LEVEL]
TURNED = [
    *((SHORT, motion(9, angle)) for angle in (60, 75, 120)),
    *((LONG, motion(15, angle)) for angle in (0, 50)),
    *((LONG, motion(6, angle)) for angle in (30, 50)),
    (LEVEL, motion(7, 45)),
]
"""True movements, and some in a wrong direction."""
WRONG = [
    *((SHORT, other) for other in (gaussian(2.0), defocus(4.0))),
    *((other, SHORT) for other in (gaussian(2.0), defocus(3.0))),
    *((gaussian(1.5), other) for other in (gaussian(2.5), defocus(4.0))),
    (defocus(3.0), gaussian(2.5)),
    (gaussian(1.0), gaussian(2.0)),
    (NONE, gaussian(1.5)),
]
"""True and assumed operators."""
WEAKER = [(gaussian(2.0), gaussian(1.0)), (defocus(4.0), NONE)]
"""Assumed blurs that are weaker than the true one: always possible, hence never detected."""
KINDS = {
    "right": [(operator, operator) for operator in RIGHT],
    "wrong": WRONG,
    "wrong direction": TURNED,
    "too weak": WEAKER,
}


@dataclass(frozen=True)
class Case:
    """One judged measurement."""

    kind: str
    true: str
    assumed: str
    picture: str
    condition: str
    explained: float

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.explained, 1.0)


def pictures(half: str) -> list[Path]:
    """Every other photograph and document."""
    return [
        path
        for folder in ("photos", "documents")
        for path in sorted((EXAMPLES / folder).glob("*.png"))[half == "report" :: 2]
    ]


def measured(path: Path, operator: Operator, condition: str) -> images.Picture:
    """The middle of an 8-bit measurement of the whole picture."""
    x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
    y_CHW = spec_of(operator).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
    strength = CONDITIONS[condition]
    if condition.startswith("noise"):
        y_CHW = noise.add_noise(y_CHW, strength, torch.Generator().manual_seed(0))
    image = images.to_pil(y_CHW)
    if condition.startswith("JPEG"):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=int(strength))
        image = Image.open(buffer).convert("RGB")
    left, top = ((side - SIDE) // 2 // 8 * 8 for side in image.size)
    return images.Picture(image.crop((left, top, left + SIDE, top + SIDE)))


def spec_of(operator: Operator) -> OperatorSpec:
    return OperatorSpec.named(operator["type"]).model_validate(operator)


def cases(half: str, seconds: float) -> Iterator[Case]:
    """Right and other assumptions in turn."""
    made = [
        (kind, true, assumed, path, condition)
        for kind, pairs in KINDS.items()
        for true, assumed in pairs
        for path in pictures(half)
        for condition in CONDITIONS
    ]
    random.Random(1).shuffle(made)
    right = [case for case in made if case[0] == "right"]
    others = [case for case in made if case[0] != "right"]
    start = time.monotonic()
    for pair in zip_longest(right, others):
        for kind, true, assumed, path, condition in filter(None, pair):
            if time.monotonic() - start > seconds:
                return
            said = spec_of(true).words(), spec_of(assumed).words()
            value = explained(measured(path, true, condition), assumed, condition)
            yield Case(kind, *said, path.stem, condition, value)


def explained(upload: images.Picture, assumed: Operator, condition: str) -> float:
    """The number behind the verdict's first question."""
    y_CHW = images.to_tensor(upload)
    quality = CONDITIONS[condition] if condition.startswith("JPEG") else None
    rounding = 0.0 if quality is None else spec_of({"type": "jpeg", "quality": quality}).rounding
    level = max(QUANTISATION, noise.estimate_sigma(y_CHW), rounding, VERDICT.least_noise)
    noise_CHW, all_CHW = torch.full_like(y_CHW, level), torch.ones_like(y_CHW)
    bound = spec_of(assumed).bind((3, SIDE, SIDE))
    residual_CHW = fitted_residual(bound, y_CHW, y_CHW, noise_CHW, all_CHW)
    return unexplained(residual_CHW, y_CHW, noise_CHW, all_CHW)


def table(found: list[Case]) -> str:
    """Verdicts by kind and condition, and the numbers behind them."""
    lines = [
        "| assumed operator | condition | cases | agrees | undecided | does not agree | median"
        " | 95 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for condition in (*CONDITIONS, "all"):
            rows = [c for c in found if c.kind == kind and condition in (c.condition, "all")]
            if not rows:
                continue
            shares = [
                f"{sum(c.verdict == verdict for c in rows) / len(rows):.0%}"
                for verdict in ("agrees", "undecided", "disagrees")
            ]
            values = torch.tensor([c.explained for c in rows]).quantile(torch.tensor([0.5, 0.95]))
            cells = [*shares, *(f"{value:.2f}" for value in values.tolist())]
            lines.append(f"| {kind} | {condition} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def results(half: str, count: int) -> str:
    """Ratios of restorations under the right operator."""
    engine = ImageEngine.load("embedded", "cpu")
    lines = [
        "| picture | operator | condition | misfit | noise and tokenizer | ratio | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    noises = [name for name in CONDITIONS if name.startswith("noise")]
    for number, path in enumerate(pictures(half)[:count]):
        operator, condition = RIGHT[number % len(RIGHT)], noises[number % len(noises)]
        upload = measured(path, operator, condition)
        result = run(RestoreSpec(operator=spec_of(operator)), Inputs(upload), engine)
        assert isinstance(result, PictureResult)
        fit = result.fit
        assert isinstance(fit, Fit)
        floor = fit.misfit / fit.ratio
        lines.append(
            f"| {path.stem} | {spec_of(operator).words()} | {condition} | {fit.misfit:.4f} |"
            f" {floor:.4f} |"
            f" {fit.ratio:.2f} | {fit.verdict} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--seconds", type=float, default=1e9, help="Stop after this long.")
    parser.add_argument("--results", type=int, default=0, help="Number of pictures to restore.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    torch.set_num_threads(1)
    file = args.out / f"fit-verdict-{args.half}.csv"
    print(table(recorded(cases(args.half, args.seconds), file)))
    if args.results:
        print(results(args.half, args.results))


if __name__ == "__main__":
    main()
