"""Blind estimates of a blur against the truth: ``python -m benchmarks.blind``.

Photographs (``--set photos``) or pages, scans and screens (``--set documents``) of ``examples/``
are blurred and get noise; their most detailed part is examined. Every method starts at the
diagnosis and knows the kind of the blur:

- ``diagnosis``: no more than that;
- ``unsupervised_wiener``: the same, but the part is restored by scikit-image's filter;
- ``joint``: picture and blur are optimised in turn, the picture by total-variation least squares;
- ``em_equal``: ``blind_blur`` with ``method="em"``, and equal logits in place of the prior's;
- ``em_prior``: ``blind_blur`` with ``method="em"``;
- ``em_prior_plain``: the same, but the M step attributes all deviations to noise;
- ``power_law``: ``blind_blur`` with ``method="spectrum"``, its default: no pictures at all;
- ``aps``: the same, but the part is restored by the default of the prior for such pictures.

Kernels are compared by normalised correlation. A collapse is a size below half of the true one.
PSNR is that of the blurred part, of its restoration with the true blur, and of that with the
estimated one: by total variation where nothing else is said. Cases come in a random order, the same
for all methods, until ``--seconds`` have passed.
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
import torch.nn.functional as F
from skimage.restoration import unsupervised_wiener
from torch import Tensor

from aps_core.blind.effort import MARGIN, Effort
from aps_core.blind.em import Estimate, expectation_maximisation
from aps_core.blind.families import FAMILIES, Family, Name, Parameters
from aps_core.blind.likelihood import PowerLaw, UnseenDetail, WhiteNoise
from aps_core.blind.photograph import PosteriorSamples, most_detailed
from aps_core.diagnosis import examine
from aps_core.evaluation.baselines import TV_WEIGHTS_DOCUMENTS
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.operators.blind_blur import first_guess
from aps_core.runtime.engine import ImageEngine
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult
from benchmarks.prior_share import EqualLogits

EXAMPLES = Path(__file__).parents[1] / "examples"
SETS = {
    "photos": ("embedded", WEIGHT),
    "documents": ("embedded_documents", TV_WEIGHTS_DOCUMENTS["motion_blur"]),
}
"""By folder: prior, and weight of the total variation."""
BLURS: list[tuple[Name, Parameters]] = [
    ("gaussian", (1.2,)),
    ("gaussian", (2.5,)),
    ("defocus", (2.0,)),
    ("defocus", (4.0,)),
    ("motion", (7.0, 75.0)),
    ("motion", (13.0, 20.0)),
]
METHODS = (
    *("diagnosis", "unsupervised_wiener", "power_law", "aps"),
    *("em_prior", "em_equal", "joint", "em_prior_plain"),
)
COLUMNS = (
    *("picture", "kind", "true", "noise", "method", "found", "error", "correlation", "collapsed"),
    *("psnr_input", "psnr_known", "psnr", "converged", "seconds"),
)
REFLECTED = 32
"""Pixels by which a picture is continued for the Wiener filter, which assumes that it repeats."""


class Part:
    """The most detailed part of a blurred picture."""

    def __init__(self, path: Path, family: Family, true: Parameters, sigma: float) -> None:
        x_CHW = images.to_tensor(images.open_image(path.read_bytes()))
        seen_CHW = family.blur(true).bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
        y_CHW = noise.add_noise(seen_CHW, sigma, torch.Generator().manual_seed(0))
        upload = images.to_pil(y_CHW)
        self.values = examine(images.Picture(upload)).blur
        left, top, right, bottom = most_detailed(upload)
        self.x_CHW = x_CHW[:, top:bottom, left:right]
        self.picture = images.Picture(upload.crop((left, top, right, bottom)))
        self.y_CHW = images.to_tensor(self.picture)
        self.family = family
        self.sigma = max(noise.estimate_sigma(self.y_CHW), QUANTISATION)
        self.weight = SETS[path.parent.name][1]
        self.start, self.widest = first_guess(family, self.values)

    def restored(self, blur: OperatorSpec) -> Tensor:
        """The total-variation restoration (1, 3, H, W)."""
        bound = blur.bind((3, *self.y_CHW.shape[1:]))
        likelihood = MeasurementObjective(bound, self.y_CHW, self.sigma, "l2")
        return total_variation_estimate(likelihood, self.y_CHW[None], steps=120, weight=self.weight)

    def restored_by(self, method: str, blur: OperatorSpec, engine: ImageEngine) -> Tensor:
        """The restoration (3, H, W) of one of :data:`METHODS`."""
        if method == "unsupervised_wiener":
            return wiener(self.y_CHW, blur)
        if method == "aps":
            result = run(
                RestoreSpec(operator=blur, prior=engine.spec.type), Inputs(self.picture), engine
            )
            assert isinstance(result, PictureResult)
            return result.pictures_BCHW[result.best]
        return self.restored(blur)[0]

    def psnr(self, x_CHW: Tensor) -> float:
        """Of a picture of the part, without the border."""
        inner = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))
        return 10 * math.log10(4 / float((x_CHW - self.x_CHW)[inner].square().mean()))


def wiener(y_CHW: Tensor, blur: OperatorSpec) -> Tensor:
    """The restoration by a Wiener filter that estimates noise and regularity itself (Orieux et al.
    2010).
    """
    wide_CHW = F.pad(y_CHW[None], (REFLECTED,) * 4, mode="reflect")[0].double()
    kernel = kernel_of(blur).double().numpy()
    found = [unsupervised_wiener(each.numpy(), kernel, clip=False, rng=0)[0] for each in wide_CHW]
    inner = (..., slice(REFLECTED, -REFLECTED), slice(REFLECTED, -REFLECTED))
    return torch.from_numpy(np.stack(found))[inner].float().clamp(-1, 1)


def estimated(part: Part, method: str, engine: ImageEngine, effort: Effort) -> Estimate:
    """The blur of a part by one of :data:`METHODS`."""
    if method in ("diagnosis", "unsupervised_wiener"):
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
    if method in ("power_law", "aps"):
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


def kernel_of(blur: OperatorSpec) -> Tensor:
    """What the blur makes of a point (97, 97)."""
    point = torch.zeros(1, 1, 97, 97)
    point[..., 48, 48] = 1
    return blur.bind((1, 97, 97))(point)[0, 0]


def correlation(family: Family, one: Parameters, other: Parameters) -> float:
    """Normalised correlation of two kernels."""
    a, b = (kernel_of(family.blur(each)).flatten() for each in (one, other))
    return float(a @ b / a.norm() / b.norm())


def rows(
    folder: str, chosen: list[str], sigmas: list[float], methods: list[str], seconds: float
) -> Iterator[dict[str, Any]]:
    """One row for every picture, blur, noise and method, until the time has passed."""
    engine, effort = ImageEngine.load(SETS[folder][0], "cpu"), Effort(chains=3, iterations=3)
    torch.set_num_threads(1)
    paths = [
        path
        for path in sorted((EXAMPLES / folder).glob("*.png"))
        if not chosen or path.stem in chosen
    ]
    cases = [(path, blur, sigma) for sigma in sigmas for path in paths for blur in BLURS]
    random.Random(0).shuffle(cases)  # the first ones are a sample of all
    start = time.monotonic()
    for path, (kind, true), sigma in cases:
        if time.monotonic() - start > seconds:
            return
        family = FAMILIES[kind]
        part = Part(path, family, true, sigma)
        same = {
            "picture": path.stem,
            "kind": kind,
            "true": family.named(true),
            "noise": sigma,
            "psnr_input": round(part.psnr(part.y_CHW), 2),
            "psnr_known": round(part.psnr(part.restored(family.blur(true))[0]), 2),
        }
        for method in methods:
            yield same | outcome(part, true, method, engine, effort)


def outcome(
    part: Part, true: Parameters, method: str, engine: ImageEngine, effort: Effort
) -> dict[str, Any]:
    """What one method finds, and how well the part is restored with it."""
    family, started = part.family, time.perf_counter()
    found = estimated(part, method, engine, effort)
    seconds = time.perf_counter() - started
    x_CHW = part.restored_by(method, family.blur(found.parameters), engine)
    return {
        "method": method,
        "found": family.named(found.parameters),
        "error": round(family.distance(found.parameters, true), 3),
        "correlation": round(correlation(family, found.parameters, true), 3),
        "collapsed": int(found.parameters[0] < true[0] / 2),
        "psnr": round(part.psnr(x_CHW), 2),
        "converged": int(found.converged),
        "seconds": round(seconds, 1),
    }


def table(found: list[dict[str, Any]]) -> str:
    """Means by kind, by noise and of all, for every method, as Markdown."""
    lines = [
        "| cases of | method | cases | median error | correlation | collapsed | PSNR - blurred"
        " | PSNR - known |",
        "|---|---|---|---|---|---|---|---|",
    ]
    noises = dict.fromkeys(f"noise {row['noise']}" for row in found)
    for group in (*FAMILIES, *noises, "all"):
        for method in METHODS:
            chosen = [
                row
                for row in found
                if row["method"] == method
                and group in (row["kind"], f"noise {row['noise']}", "all")
            ]
            if not chosen:
                continue
            error = np.median([row["error"] for row in chosen])
            match = np.mean([row["correlation"] for row in chosen])
            collapsed = np.mean([row["collapsed"] for row in chosen])
            gained = np.mean([row["psnr"] - row["psnr_input"] for row in chosen])
            lost = np.mean([row["psnr"] - row["psnr_known"] for row in chosen])
            lines.append(
                f"| {group} | {method} | {len(chosen)} | {error:.0%} | {match:.3f} |"
                f" {collapsed:.0%} | {gained:+.2f} | {lost:+.2f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Computes the cases, writes a CSV as it goes, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=SETS, default="photos", help="folder of examples/")
    parser.add_argument("--pictures", nargs="+", default=[], help="names; default: all")
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.05])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after them")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/blind.csv"))
    asked = parser.parse_args()
    made = []
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows(asked.set, asked.pictures, asked.noise, asked.methods, asked.seconds):
            made.append(row)
            writer.writerow(row)
            file.flush()
    print(table(made))


if __name__ == "__main__":
    main()
