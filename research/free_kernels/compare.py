"""Blind deblurring of pictures moved along curves: kernels of any shape.

Every case is a page or screen of ``examples``, or a photograph (``--set photos``), blurred with the
trace of a random smooth movement (``SIDES`` pixels) and with noise added. The most detailed part is
restored by total variation with each method's kernel:

- ``known``: the true kernel;
- ``family``: ``blind_blur`` with ``method="spectrum"``, its default: a Gaussian, defocus or
  straight motion; the blurred part itself if it finds no blur;
- ``joint``: picture and kernel are optimised in turn, the picture by total variation;
- ``em_equal``: expectation-maximisation with equal logits in place of the prior's;
- ``em_prior``: expectation-maximisation with the prior (``research.free_kernels.em``);
- ``candidate``: the kernel of ``method="free_kernel"``, the one with the most evidence when the
  picture's gradients are integrated out, whether it is used or not;
- ``free_kernel``: ``blind_blur`` with ``method="free_kernel"``: the candidate if the picture
  supports it and, if it is a photograph, the diagnosis finds a shaken camera; else ``family``.

With ``--straight``, the blurs are those of ``research.blind``: ``family`` should be preferred.
With ``--withheld``, the pictures are those that training withholds (``training/README.md``): on
them, the constants of the search were chosen.
Correlation is that of kernels, and PSNR that of pictures, at the best shift: a shifted kernel with
a picture shifted the other way explains the upload as well. A collapse is a kernel with less than
half of the true width.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.errors import NothingToRestore
from aps_core.identify.blind.effort import MARGIN
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.kernel import deviation, light_of, likeness
from aps_core.identify.blind.kernel_search import kernel_of
from aps_core.identify.blind.photograph import examined, most_detailed
from aps_core.identify.diagnosis import examine
from aps_core.identify.kinds.blind_blur import UNGUIDED, BlindBlur, shape_is_searched
from aps_core.identify.search import Search
from aps_core.imaging import images, noise
from aps_core.imaging.total_variation import total_variation_estimate
from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import OperatorSpec
from aps_core.operators.kernel_blur import KernelBlur
from research.blind.compare import BLURS
from research.blind.parts import SETS
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded
from research.common.tables import gained
from research.common.without_prior import EqualLogits
from research.free_kernels.em import Draw, estimated, samples
from training import corpus
from training.documents.prior import held_out

SIDES = (9, 13, 17)
"""Extents of the movements in pixels."""
METHODS = ("known", "family", "joint", "em_equal", "em_prior", "candidate", "free_kernel")
WITHHELD_SIDE = 256
"""Side of the withheld pictures in pixels."""
SHIFT = 3
"""Largest shift in pixels by which kernels and pictures are aligned."""


def movement(seed: int, side: int) -> KernelBlur:
    """The blur of a random smooth movement that covers ``side`` pixels."""
    rng = np.random.default_rng(seed)
    velocity, place = rng.normal(size=2), np.zeros(2)
    trace = []
    for _ in range(400):
        velocity = 0.98 * velocity + 0.25 * rng.normal(size=2)
        place = place + velocity
        trace.append(place)
    centred = np.array(trace) - np.mean(trace, axis=0)
    centred *= (side / 2 - 1) / np.abs(centred).max()
    edges = np.arange(side + 1) - side / 2
    fine = np.concatenate([np.linspace(a, b, 20) for a, b in itertools.pairwise(centred)])
    kernel, _, _ = np.histogram2d(fine[:, 0], fine[:, 1], bins=(edges, edges))
    return KernelBlur(kernel=tuple(tuple(row) for row in kernel.tolist()))


class Case:
    """A blurred page."""

    def __init__(self, x_CHW: Tensor, blur: OperatorSpec, sigma: float, weight: float) -> None:
        seen_CHW = blur.bind((3, *x_CHW.shape[1:]))(x_CHW[None])[0]
        y_CHW = noise.add_noise(seen_CHW, sigma, torch.Generator().manual_seed(0))
        self.blur = blur
        self.upload = images.Picture(images.to_pil(y_CHW))
        left, top, right, bottom = most_detailed(self.upload.image)
        self.x_CHW = x_CHW[:, top:bottom, left:right]
        self.y_CHW, self.sigma = examined(self.upload.image, 1, None, 0.0, "cpu")
        self.weight = weight

    def restored(self, blur: OperatorSpec | None) -> Tensor:
        """The total-variation restoration of the part; without a blur the part itself."""
        if blur is None:
            return self.y_CHW
        bound = blur.bind((3, *self.y_CHW.shape[1:]))
        likelihood = MeasurementObjective(bound, self.y_CHW, self.sigma, "l2")
        return total_variation_estimate(
            likelihood, self.y_CHW[None], steps=120, weight=self.weight
        )[0]

    def psnr(self, x_CHW: Tensor) -> float:
        """Without the border, at the best shift to a quarter of a pixel."""
        height, width = x_CHW.shape[1:]
        down, right = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None]
        spectrum, inner = torch.fft.rfft2(x_CHW), slice(MARGIN, -MARGIN)

        def error(dy: float, dx: float) -> tuple[float, float, float]:
            turned = spectrum * torch.exp(-2j * math.pi * (down * dy + right * dx))
            moved = torch.fft.irfft2(turned, (height, width))
            return float((moved - self.x_CHW)[:, inner, inner].square().mean()), dy, dx

        whole = range(-SHIFT, SHIFT + 1)
        _, dy, dx = min(error(dy, dx) for dy in whole for dx in whole)
        quarters = [step / 4 for step in range(-3, 4)]
        least, _, _ = min(error(dy + a, dx + b) for a in quarters for b in quarters)
        return 10 * math.log10(4 / least)


def joint(y_CHW: Tensor, sigma: float) -> Draw:
    """In the place of the E step: the one best picture (1, 3, H, W) by total variation."""

    def best(kernel_KK: Tensor) -> Tensor:
        blur = KernelBlur.of(kernel_KK).bind((3, *y_CHW.shape[1:]))
        likelihood = MeasurementObjective(blur, y_CHW, sigma, "l2")
        weight = SETS["documents"][1]
        return total_variation_estimate(likelihood, y_CHW[None], steps=80, weight=weight)

    return best


def blurs_of(
    case: Case, engine: ImageEngine, methods: list[str]
) -> Iterator[tuple[str, OperatorSpec | None, float | None, float]]:
    """Method, its blur, its support and its seconds."""
    yield "known", case.blur, None, 0.0
    begun = time.perf_counter()
    family: OperatorSpec | None
    try:
        family = BlindBlur().find(Search(case.upload)).operator
    except NothingToRestore:
        family = None
    yield "family", family, None, time.perf_counter() - begun
    equal: Any = ImageEngine(engine.spec, engine.prior, engine.device)
    equal.prior = EqualLogits(engine.prior)
    pictures = {"joint": joint, "em_equal": samples(equal), "em_prior": samples(engine)}
    for method in (each for each in pictures if each in methods):
        begun = time.perf_counter()
        kernel_KK = estimated(case.upload.image, pictures[method], 3)
        yield method, KernelBlur.of(kernel_KK), None, time.perf_counter() - begun
    begun = time.perf_counter()
    found = kernel_of(case.upload.image, family or FAMILIES["gaussian"].blur((UNGUIDED,)))
    seconds, kernel = time.perf_counter() - begun, KernelBlur.of(found.kernel_KK)
    yield "candidate", kernel, found.support, seconds
    used = found.support > 0 and shape_is_searched(examine(case.upload))
    yield "free_kernel", kernel if used else family, found.support, seconds


def picture_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that choose the pictures, and how many of their cases."""
    parser.add_argument("--set", choices=sorted(SETS), default="documents")
    parser.add_argument("--withheld", type=Path, metavar="CORPUS", help="training's, of the set")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after them")


def pictures(asked: argparse.Namespace) -> dict[str, Tensor]:
    """Pictures (3, H, W) in [-1, 1] by name."""
    if asked.withheld is None:
        paths = sorted((EXAMPLES / asked.set).glob("*.png"))
        return {path.stem: images.to_tensor(images.open_image(path.read_bytes())) for path in paths}
    if asked.set == "photos":
        photographs = corpus.load(asked.withheld, icons=False)[1]
        return {each.source: corpus.square(each, WITHHELD_SIDE) for each in photographs}
    kinds = held_out(asked.withheld, WITHHELD_SIDE).items()
    return {f"{kind} {i}": x_CHW for kind, x_NCHW in kinds for i, x_CHW in enumerate(x_NCHW[:30])}


def rows(
    cases: list[tuple[str, Tensor, str, OperatorSpec, float]],
    engine: ImageEngine,
    weight: float,
    methods: list[str],
    seconds: float,
) -> Iterator[dict[str, Any]]:
    """One row for every case and method, until the time has passed."""
    start = time.monotonic()
    for picture, x_CHW, name, blur, sigma in cases:
        if time.monotonic() - start > seconds:
            return
        case = Case(x_CHW, blur, sigma, weight)
        same = {
            "picture": picture,
            "blur": name,
            "noise": sigma,
            "psnr_input": round(case.psnr(case.y_CHW), 2),
            "psnr_known": round(case.psnr(case.restored(blur)), 2),
        }
        for method, found, support, spent in blurs_of(case, engine, methods):
            width = deviation(light_of(found)) if found else 0.0
            true = deviation(light_of(blur))
            yield same | {
                "method": method,
                "correlation": round(likeness(light_of(found), light_of(blur)), 3) if found else "",
                "width": round(width / true, 3),
                "collapsed": int(width < true / 2),
                "support": "" if support is None else round(support),
                "psnr": round(case.psnr(case.restored(found)), 2),
                "seconds": round(spent, 1),
            }


def table(found: list[dict[str, Any]]) -> str:
    """Means of every method, as Markdown."""
    lines = [
        "| method | cases | correlation | width / true | collapsed | PSNR - blurred"
        " | PSNR - known: mean, median | within 2 dB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        chosen = [row for row in found if row["method"] == method]
        if not chosen:
            continue
        lost = [row["psnr"] - row["psnr_known"] for row in chosen]
        match = np.mean([row["correlation"] for row in chosen if row["correlation"] != ""])
        lines.append(
            f"| {method} | {len(chosen)} | {match:.3f}"
            f" | {np.median([row['width'] for row in chosen]):.2f}"
            f" | {np.mean([row['collapsed'] for row in chosen]):.0%}"
            f" | {gained([row['psnr'] - row['psnr_input'] for row in chosen])}"
            f" | {gained(lost)}, {np.median(lost):+.2f}"
            f" | {np.mean([each > -2 for each in lost]):.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Computes the cases, writes a CSV as it goes, prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--straight", action="store_true", help="blurs of known families instead")
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.05])
    parser.add_argument(
        "--methods", nargs="*", default=["joint", "em_equal", "em_prior"], help="slow comparisons"
    )
    picture_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    prior, weight = SETS[asked.set]
    engine = ImageEngine.load(prior, "cpu")
    moved = {f"{side} px, {seed}": movement(seed, side) for side in SIDES for seed in range(5)}
    straight = {f"{kind} {' '.join(map(str, of))}": FAMILIES[kind].blur(of) for kind, of in BLURS}
    cases = [
        (picture, x_CHW, name, blur, sigma)
        for picture, x_CHW in pictures(asked).items()
        for name, blur in (straight if asked.straight else moved).items()
        for sigma in asked.noise
    ]
    random.Random(0).shuffle(cases)  # the first ones are a sample of all
    made = rows(cases, engine, weight, asked.methods, asked.seconds)
    print(table(recorded(made, asked.out)))


if __name__ == "__main__":
    main()
