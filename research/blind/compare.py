"""Blind estimates of a blur against the truth: ``python -m research.blind.compare``.

Photographs (``--set photos``) or pages, scans and screens (``--set documents``) of ``examples/``
are blurred and get noise; their most detailed part is examined. Every method starts at the
diagnosis and knows the kind of the blur:

- ``diagnosis``: no more than that;
- ``unsupervised_wiener``: the same, but the part is restored by scikit-image's filter;
- ``maxim``: no blur is estimated; the part is restored by a network (``research/blind/maxim.py``,
  with ``--maxim package/models``);
- ``joint``: picture and blur are optimised in turn, the picture by total-variation least squares;
- ``em_equal``: ``blind_blur`` with ``method="em"``, and equal logits in place of the prior's;
- ``em_prior``: ``blind_blur`` with ``method="em"``;
- ``em_prior_plain``: the same, but the M step attributes all deviations to noise;
- ``power_law``: ``blind_blur`` with ``method="spectrum"``, its default, as a job runs it on the
  whole upload (on pages it stays near the diagnosis): no pictures at all;
- ``aps``: the same, but the part is restored by the default of the prior for such pictures.

Kernels are compared by normalised correlation. A collapse is a size below half of the true one.
PSNR is that of the blurred part, of its restoration with the true blur, and of that with the
estimated one: by total variation where nothing else is said. Cases come in a random order, the same
for all methods, until ``--seconds`` have passed.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aps_core.engines.engine import ImageEngine
from aps_core.identify.blind.effort import MARGIN, Effort
from aps_core.identify.blind.em import Estimate, expectation_maximisation
from aps_core.identify.blind.families import FAMILIES, Family, Name, Parameters
from aps_core.identify.blind.likelihood import UnseenDetail, WhiteNoise
from aps_core.identify.blind.photograph import PosteriorSamples
from aps_core.priors import specialised_in
from aps_core.priors.base import Content
from research.blind.maxim import Maxim
from research.blind.parts import SETS, Part, Restorers, kernel_of
from research.common.arguments import parser_of
from research.common.pictures import EXAMPLES
from research.common.recording import recorded
from research.common.without_prior import EqualLogits

BLURS: list[tuple[Name, Parameters]] = [
    *(("gaussian", (deviation,)) for deviation in (0.8, 1.2, 1.8, 2.5, 3.5)),
    *(("defocus", (radius,)) for radius in (1.5, 2.0, 3.0, 4.0, 6.0)),
    *(
        ("motion", way)
        for way in ((5.0, 120.0), (7.0, 75.0), (9.0, 0.0), (13.0, 20.0), (17.0, 150.0))
    ),
]
METHODS = (
    *("diagnosis", "unsupervised_wiener", "maxim", "power_law", "aps"),
    *("em_prior", "em_equal", "joint", "em_prior_plain"),
)


def estimated(part: Part, method: str, engine: ImageEngine, effort: Effort) -> Estimate:
    """The blur of a part by one of :data:`METHODS`."""
    if method in ("diagnosis", "unsupervised_wiener", "maxim"):
        return Estimate(
            parameters=part.start, chains=[], path=[part.start], deviation=0.0, converged=True
        )
    if method in ("power_law", "aps"):
        return part.as_used()
    draw: Any = PosteriorSamples(
        engine=engine, y_CHW=part.y_CHW, sigma=part.sigma, effort=effort, seed=0
    )
    if method == "em_equal":
        equal: Any = ImageEngine(engine.spec, engine.prior, engine.device)
        equal.prior = EqualLogits(engine.prior)
        draw.engine = equal
    likelihood: Any = UnseenDetail(part.y_CHW, part.sigma, MARGIN)
    if method == "joint":
        draw = part.restored
    if method in ("joint", "em_prior_plain"):
        likelihood = WhiteNoise(part.y_CHW, part.sigma)
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
    a, b = (kernel_of(family.blur(each)).flatten() for each in (one, other))
    return float(a @ b / a.norm() / b.norm())


def rows(
    paths: list[Path], sigmas: list[float], methods: list[str], seconds: float, tools: Restorers
) -> Iterator[dict[str, Any]]:
    """One row for every picture, blur, noise and method, until the time has passed."""
    effort = Effort(chains=3, iterations=3)
    cases = [(path, blur, sigma) for sigma in sigmas for path in paths for blur in BLURS]
    random.Random(0).shuffle(cases)  # the first ones are a sample of all
    start = time.monotonic()
    for path, (kind, true), sigma in cases:
        if time.monotonic() - start > seconds:
            return
        family = FAMILIES[kind]
        part = Part(path, kind, true, sigma)
        same = {
            "picture": path.stem,
            "kind": kind,
            "true": family.named(true),
            "noise": sigma,
            "psnr_input": round(part.psnr(part.y_CHW), 2),
            "psnr_known": round(part.psnr(part.restored(family.blur(true))[0]), 2),
        }
        for method in methods:
            yield same | outcome(part, true, method, tools, effort)


def outcome(
    part: Part, true: Parameters, method: str, tools: Restorers, effort: Effort
) -> dict[str, Any]:
    """What one method finds, and how well the part is restored with it."""
    family, started = part.family, time.perf_counter()
    found = estimated(part, method, tools.engine, effort)
    seconds = time.perf_counter() - started
    x_CHW = part.restored_by(method, family.blur(found.parameters), tools)
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
    parser = parser_of(__doc__)
    parser.add_argument("--set", choices=SETS, default="photos", help="folder of examples/")
    parser.add_argument("--pictures", nargs="+", default=[], help="names; default: all")
    parser.add_argument("--noise", nargs="+", type=float, default=[0.02, 0.05])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--maxim", type=Path, help="folder of MAXIM's weights, for that method")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after them")
    parser.add_argument("--out", type=Path, default=Path("blind.csv"))
    asked = parser.parse_args()
    if "maxim" in asked.methods and asked.maxim is None:
        parser.error("the method maxim needs --maxim; see research/blind/maxim.py")
    torch.set_num_threads(1)
    engine = ImageEngine.load(SETS[asked.set][0], "cpu")
    content: Content = "documents" if asked.set == "documents" else "photographs"
    default = ImageEngine.load(specialised_in(content, {"gaussian_blur"}) or "embedded", "cpu")
    maxim = Maxim(asked.maxim) if "maxim" in asked.methods else None
    restorers = Restorers(engine, default, maxim)
    paths = [
        path
        for path in sorted((EXAMPLES / asked.set).glob("*.png"))
        if not asked.pictures or path.stem in asked.pictures
    ]
    made = rows(paths, asked.noise, asked.methods, asked.seconds, restorers)
    print(table(recorded(made, asked.out)))


if __name__ == "__main__":
    main()
