"""Blind estimates of a blur against the truth: ``python -m benchmarks.blind``.

Parts of the photographs in ``examples/`` are blurred and get noise. Every method starts at the
diagnosis and knows the kind of the blur:

- ``diagnosis``: no more than that;
- ``joint``: picture and blur are optimised in turn, the picture by total-variation least squares;
- ``em_equal``: ``blind_blur`` with ``method="em"``, and equal logits in place of the prior's;
- ``em_prior``: ``blind_blur`` with ``method="em"``;
- ``em_prior_plain``: the same, but the M step attributes all deviations to noise;
- ``power_law``: ``blind_blur`` with ``method="spectrum"``, its default: no pictures at all.

Kernels are compared by normalised correlation. A collapse is a size below half of the true one.
PSNR is that of the total-variation restoration of the part, with the estimated and the true blur.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aps_core.blind.effort import MARGIN, Effort
from aps_core.blind.em import Estimate, expectation_maximisation
from aps_core.blind.families import FAMILIES, Family, Name, Parameters
from aps_core.blind.likelihood import PowerLaw, UnseenDetail, WhiteNoise
from aps_core.blind.photograph import PosteriorSamples, most_detailed
from aps_core.diagnosis import examine
from aps_core.imaging import images, noise
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.operators.blind_blur import first_guess
from aps_core.runtime.engine import ImageEngine
from benchmarks.prior_share import EqualLogits

PHOTOS = Path(__file__).parents[1] / "examples/photos"
BLURS: list[tuple[Name, Parameters]] = [
    ("gaussian", (1.2,)),
    ("gaussian", (2.5,)),
    ("defocus", (2.0,)),
    ("defocus", (4.0,)),
    ("motion", (7.0, 75.0)),
    ("motion", (13.0, 20.0)),
]
METHODS = ("diagnosis", "power_law", "em_prior", "em_equal", "joint", "em_prior_plain")
COLUMNS = (
    *("photo", "kind", "true", "noise", "method", "found", "error", "correlation", "collapsed"),
    *("psnr_known", "psnr", "converged", "seconds"),
)


class Part:
    """The most detailed part of a blurred photograph."""

    def __init__(self, name: str, family: Family, true: Parameters, sigma: float) -> None:
        photo = images.open_image((PHOTOS / f"{name}.png").read_bytes())
        x_CHW = images.to_tensor(photo)
        seen_CHW = family.blur(true).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
        y_CHW = noise.add_noise(seen_CHW, sigma, torch.Generator().manual_seed(0))
        upload = images.to_pil(y_CHW)
        self.values = examine(images.Picture(upload)).blur
        left, top, right, bottom = most_detailed(upload)
        self.x_CHW = x_CHW[:, top:bottom, left:right]
        self.y_CHW = images.to_tensor(images.Picture(upload.crop((left, top, right, bottom))))
        self.family = family
        self.sigma = max(noise.estimate_sigma(self.y_CHW), 0.0023)
        self.start, self.widest = first_guess(family, self.values)

    def restored(self, blur: OperatorSpec) -> Tensor:
        """The total-variation restoration (1, 3, H, W)."""
        bound = blur.bind((3, *self.y_CHW.shape[1:]))
        likelihood = MeasurementObjective(bound, self.y_CHW, self.sigma, "l2")
        return total_variation_estimate(likelihood, self.y_CHW[None], steps=120)

    def psnr(self, blur: OperatorSpec) -> float:
        """Of the restoration, without the border."""
        inner = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))
        return 10 * math.log10(
            4 / float((self.restored(blur)[0] - self.x_CHW)[inner].square().mean())
        )


def estimated(part: Part, method: str, engine: ImageEngine, effort: Effort) -> Estimate:
    """The blur of a part by one of :data:`METHODS`."""
    if method == "diagnosis":
        return Estimate(
            parameters=part.start, chains=[], path=[part.start], deviation=0.0, converged=True
        )
    draw: Any = PosteriorSamples(
        engine=engine, y_CHW=part.y_CHW, sigma=part.sigma, effort=effort, seed=0
    )
    if method == "em_equal":
        equal: Any = ImageEngine(engine.spec, engine.prior, engine.device)
        equal.prior = EqualLogits(engine.prior.tokenizer)
        draw.engine = equal
    likelihood: Any = UnseenDetail(part.y_CHW, part.sigma, MARGIN)
    if method == "joint":
        draw = part.restored
    if method in ("joint", "em_prior_plain"):
        likelihood = WhiteNoise(part.y_CHW, part.sigma)
    if method == "power_law":
        draw, likelihood = (
            lambda _: part.y_CHW[None],
            PowerLaw(part.y_CHW, part.sigma, MARGIN),
        )
    iterations = 5 if method == "joint" else effort.iterations
    side = min(part.y_CHW.shape[1:]) - 2 * MARGIN
    return expectation_maximisation(
        part.family,
        part.start,
        draw,
        likelihood,
        side=side,
        iterations=iterations,
        widest=part.widest,
    )


def correlation(family: Family, one: Parameters, other: Parameters) -> float:
    """Normalised correlation of two kernels."""
    point = torch.zeros(1, 1, 97, 97)
    point[..., 48, 48] = 1
    a, b = (family.blur(each).bind((1, 97, 97))(point).flatten() for each in (one, other))
    return float(a @ b / a.norm() / b.norm())


def rows(photos: list[str], sigmas: list[float], methods: list[str]) -> Iterator[dict[str, Any]]:
    """One row for every photograph, blur, noise and method."""
    engine, effort = ImageEngine.load("embedded", "cpu"), Effort(chains=3, iterations=3)
    torch.set_num_threads(1)
    cases = [(photo, blur, sigma) for sigma in sigmas for photo in photos for blur in BLURS]
    random.Random(0).shuffle(cases)  # the first ones are a sample of all
    for photo, (kind, true), sigma in cases:
        family = FAMILIES[kind]
        part = Part(photo, family, true, sigma)
        known = part.psnr(family.blur(true))
        for method in methods:
            started = time.perf_counter()
            found = estimated(part, method, engine, effort)
            seconds = time.perf_counter() - started
            yield {
                "photo": photo,
                "kind": kind,
                "true": family.named(true),
                "noise": sigma,
                "method": method,
                "found": family.named(found.parameters),
                "error": round(family.distance(found.parameters, true), 3),
                "correlation": round(correlation(family, found.parameters, true), 3),
                "collapsed": int(found.parameters[0] < true[0] / 2),
                "psnr_known": round(known, 2),
                "psnr": round(part.psnr(family.blur(found.parameters)), 2),
                "converged": int(found.converged),
                "seconds": round(seconds, 1),
            }


def table(found: list[dict[str, Any]]) -> str:
    """Means by kind and method as Markdown."""
    lines = [
        "| kind | method | cases | median error | correlation | collapsed | PSNR - known |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in ("gaussian", "defocus", "motion", "all"):
        for method in METHODS:
            chosen = [
                row for row in found if row["method"] == method and kind in (row["kind"], "all")
            ]
            if not chosen:
                continue
            error = np.median([float(row["error"]) for row in chosen])
            match = np.mean([float(row["correlation"]) for row in chosen])
            lost = np.mean([float(row["psnr"]) - float(row["psnr_known"]) for row in chosen])
            collapsed = np.mean([int(row["collapsed"]) for row in chosen])
            lines.append(
                f"| {kind} | {method} | {len(chosen)} | {error:.0%} | {match:.3f} |"
                f" {collapsed:.0%} | {lost:+.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Computes the cases, writes a CSV as it goes, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", nargs="+", default=sorted(p.stem for p in PHOTOS.glob("*.png")))
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.05])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/blind.csv"))
    asked = parser.parse_args()
    made = []
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows(asked.photos, asked.noise, asked.methods):
            made.append(row)
            writer.writerow(row)
            file.flush()
    print(table(made))


if __name__ == "__main__":
    main()
