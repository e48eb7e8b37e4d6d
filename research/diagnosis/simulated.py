"""Errors and calibration of the diagnosis on simulated degradations of withheld pictures.

    python -m research.diagnosis.simulated

Degrades the 17 photographs and 30 documents in ``examples/``, which neither trained the estimator
nor chose its thresholds, writes every case to ``diagnosis.csv``, and prints the tables of
``docs/diagnosis.md``. About five minutes on one core.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from aps_core.identify.diagnosis import Diagnosis, diagnose
from aps_core.identify.diagnosis.blur import ANGLE_TOLERANCE, LEAST_TOLERANCE, TOLERANCE, Family
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded
from training.diagnosis.simulate import Truth, degraded, to_image

SETS = {"photographs": EXAMPLES / "photos", "documents": EXAMPLES / "documents"}
BLURS: tuple[tuple[Family, float, float], ...] = (
    ("sharp", 0.05, 0),
    *(("gaussian", size, 0) for size in (1.0, 2.0, 3.5)),
    *(("defocus", size, 0) for size in (2.0, 4.0, 7.0)),
    *(("motion", size, angle) for size, angle in ((6.0, 20), (12.0, 75), (20.0, 140))),
    *(("enlarged", size, 0) for size in (2.0, 3.0, 4.0)),
    *(("shaken", size, 0) for size in (9.0, 13.0, 20.0)),
)
CONDITIONS = {"clean": (0.0, 0), "noise 0.02": (0.02, 0), "JPEG 60": (0.0, 60)}
"""Noise and JPEG quality after the blur."""


@dataclass(frozen=True)
class Case:
    """One diagnosis."""

    dataset: str
    picture: str
    condition: str
    family: str
    size: float
    angle: float
    answer: str
    answer_size: float
    answer_angle: float
    word: str
    """Confidence in the answer about sharpness."""
    noise: float
    """Reported noise; 0 if none."""
    quality: int
    """Reported JPEG quality; 0 if none."""
    quality_pixels: int
    """The same for the pixels saved in another format."""
    document: bool

    @property
    def right(self) -> bool:
        """Family right; size within 15 % or 0.3 pixels, if it is used; direction within 10
        degrees.
        """
        if self.answer != self.family:
            return False
        if self.family in ("sharp", "shaken"):
            return True
        off = abs(self.answer_angle - self.angle) % 180
        turned = self.family == "motion" and min(off, 180 - off) > ANGLE_TOLERANCE
        allowed = max(TOLERANCE * self.size, LEAST_TOLERANCE)
        return abs(self.answer_size - self.size) <= allowed and not turned


def cases(path: Path, dataset: str) -> Iterator[Case]:
    """All degradations of one picture."""
    x = np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) / 127.5 - 1
    for number, (family, size, angle) in enumerate(BLURS):
        for condition, (noise, quality) in CONDITIONS.items():
            truth = Truth(
                family=family,
                size=size,
                angle=angle,
                noise=noise,
                quality=0,
                document=dataset == "documents",
            )
            image = to_image(degraded(x, truth, np.random.default_rng(number)))
            files = [_encoded(image, "PNG", 0)]
            if quality:
                compressed = _encoded(image, "JPEG", quality)
                files = [compressed, _encoded(Image.open(io.BytesIO(compressed)), "PNG", 0)]
            found = [diagnose(file) for file in files]
            case = _case(found[0], dataset, path.stem, condition, truth)
            yield replace(case, quality_pixels=int(_value(found[-1], "jpeg", "quality") or 0))


def _encoded(image: Image.Image, kind: str, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"quality": quality} if quality else {}))
    return buffer.getvalue()


def _value(found: Diagnosis, kind: str, name: str) -> float | None:
    return next((f.values.get(name) for f in found.findings if f.kind == kind), None)


def _case(found: Diagnosis, dataset: str, picture: str, condition: str, truth: Truth) -> Case:
    blur = next((f for f in found.findings if f.kind in ("blur", "enlarged")), None)
    values = {} if blur is None else blur.values
    answer = "sharp" if blur is None else values.get("family", "enlarged")
    sizes = [values[n] for n in ("sigma", "radius", "length", "factor", "extent") if n in values]
    doubted = any("blurred" in note for note in found.unsure)
    return Case(
        dataset=dataset,
        picture=picture,
        condition=condition,
        family=truth.family,
        size=truth.size,
        angle=truth.angle,
        answer=answer,
        answer_size=sizes[0] if sizes else 0.0,
        answer_angle=values.get("angle", 0.0),
        word=("not sure" if doubted else "sure") if blur is None else blur.confidence,
        noise=_value(found, "noise", "sigma") or 0.0,
        quality=int(_value(found, "jpeg", "quality") or 0),
        quality_pixels=0,
        document=bool(_value(found, "content", "document")),
    )


def _share(chosen: list[Case], test: Callable[[Case], bool]) -> str:
    return f"{sum(map(test, chosen)) / len(chosen):.0%}" if chosen else "-"


def sharpness_table(found: list[Case]) -> str:
    """Per set and family: how often it is right, how sure, and how right it is when sure."""
    lines = [
        "| set | truth | cases | family right | all right | median size error | called sure |"
        " right of those |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for dataset in (*SETS, "all"):
        for family in (*dict.fromkeys(family for family, *_ in BLURS), "all"):
            rows = [
                c for c in found if dataset in (c.dataset, "all") and family in (c.family, "all")
            ]
            if dataset == "all" and family != "all":
                continue
            named = [c for c in rows if c.answer == c.family and c.family != "sharp"]
            error = (
                f"{median(abs(c.answer_size / c.size - 1) for c in named):.0%}" if named else "-"
            )
            sure = [c for c in rows if c.word == "sure"]
            confident = _share(rows, lambda c: c.word == "sure")
            lines.append(
                f"| {dataset} | {family} | {len(rows)} |"
                f" {_share(rows, lambda c: c.answer == c.family)} |"
                f" {_share(rows, lambda c: c.right)} | {error} | {confident}"
                f" | {_share(sure, lambda c: c.right)} |"
            )
    return "\n".join(lines)


def calibration_table(found: list[Case]) -> str:
    """How right each word is, per condition."""
    words = ("sure", "fairly sure", "not sure")
    lines = [
        f"| condition | {' | '.join(f'{word}: cases | right' for word in words)} |",
        f"|---|{'---|' * (2 * len(words))}",
    ]
    for condition in (*CONDITIONS, "all"):
        cells = []
        for word in words:
            rows = [c for c in found if c.word == word and condition in (c.condition, "all")]
            cells += [str(len(rows)), _share(rows, lambda c: c.right)]
        lines.append(f"| {condition} | {' | '.join(cells)} |")
    return "\n".join(lines)


def others_table(found: list[Case]) -> str:
    """False alarms on the pictures as they are, noise, JPEG quality, photograph or document."""
    lines = ["| question | photographs | documents |", "|---|---|---|"]
    questions: list[tuple[str, Callable[[Case], bool], Callable[[Case], bool]]] = [
        (
            "unchanged picture: nothing said to be wrong",
            lambda c: c.family == "sharp" and c.condition == "clean",
            lambda c: c.answer == "sharp" and not c.noise and not c.quality,
        ),
        (
            "noise 0.02 not enlarged: within 30 %",
            lambda c: c.family != "enlarged" and c.condition == "noise 0.02",
            lambda c: abs(c.noise / 0.02 - 1) < 0.3,
        ),
        ("no noise: none reported", lambda c: c.condition == "clean", lambda c: not c.noise),
        (
            "JPEG 60, from the file: quality within 2",
            lambda c: c.condition == "JPEG 60",
            lambda c: abs(c.quality - 60) <= 2,
        ),
        (
            "JPEG 60, saved as PNG: quality within 5",
            lambda c: c.condition == "JPEG 60",
            lambda c: abs(c.quality_pixels - 60) <= 5,
        ),
        (
            "never a JPEG: none reported",
            lambda c: c.condition != "JPEG 60",
            lambda c: not c.quality_pixels,
        ),
        (
            "photograph or document",
            lambda c: True,
            lambda c: c.document == (c.dataset == "documents"),
        ),
    ]
    for text, chosen, right in questions:
        cells = []
        for dataset in SETS:
            rows = [c for c in found if c.dataset == dataset and chosen(c)]
            cells.append(f"{_share(rows, right)} of {len(rows)}")
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("diagnosis.csv"))
    args = parser.parse_args()
    every = (
        case
        for dataset, folder in SETS.items()
        for path in sorted(folder.glob("*.png"))
        for case in cases(path, dataset)
    )
    found = recorded(every, args.out)
    for table in (sharpness_table(found), calibration_table(found), others_table(found)):
        print(table, end="\n\n")


if __name__ == "__main__":
    main()
