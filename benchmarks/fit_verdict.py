"""Calibration of the fit verdict on simulated right and wrong operators.

Run from the repository's root: ``python -m benchmarks.fit_verdict``. Pictures are degraded by a
true operator and judged under an assumed one. The thresholds of :mod:`aps_core.fit` were chosen on
every other picture of ``examples/`` (``--half choose``); the tables of ``docs/diagnosis.md`` show
the remaining ones (``--half report``). The first question of the verdict needs no sampling;
``--results`` also restores some pictures under the right operator, for the second. About three
minutes on one core per half, and a minute per result.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aps_core.fit import Fit, Verdict, fitted_residual, verdict_of
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.operators import OperatorSpec
from aps_core.runtime.engine import ImageEngine
from aps_core.tasks import Inputs, RestoreSpec, run
from aps_core.tasks.results import PictureResult

ROOT = Path(__file__).parents[1]
SIDE, PICTURES = 96, 10
NOISES = (0.0, 0.02, 0.05)
Operator = dict[str, Any]


def gaussian(sigma: float) -> Operator:
    return {"type": "gaussian_blur", "sigma": sigma}


def defocus(radius: float) -> Operator:
    return {"type": "defocus_blur", "radius": radius}


def motion(length: float, angle: float) -> Operator:
    return {"type": "linear_motion_blur", "length": length, "angle": angle}


NONE: Operator = {"type": "denoise"}
RIGHT = [NONE, gaussian(1.0), gaussian(2.0), defocus(3.0), motion(9, 30)]
WRONG = [
    (gaussian(1.0), gaussian(2.0)),
    (gaussian(1.5), gaussian(2.5)),
    (NONE, gaussian(1.5)),
    (motion(9, 30), gaussian(2.0)),
    (motion(9, 30), motion(9, 120)),
    (defocus(3.0), gaussian(2.5)),
    (gaussian(1.5), defocus(4.0)),
]
"""True and assumed operators."""
WEAKER = [(gaussian(2.0), gaussian(1.0)), (defocus(4.0), NONE)]
"""Assumed blurs that are weaker than the true one: always possible, hence never detected."""
KINDS = {
    "right": [(operator, operator) for operator in RIGHT],
    "wrong": WRONG,
    "too weak": WEAKER,
}


@dataclass(frozen=True)
class Case:
    """One judged measurement."""

    kind: str
    true: str
    assumed: str
    picture: str
    noise: float
    explained: float

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.explained, 1.0)


def pictures(half: str) -> list[tuple[str, Tensor]]:
    """Centre squares (3, SIDE, SIDE) of every other photograph and document."""
    found = []
    for folder, number in (("photos", PICTURES // 2), ("documents", PICTURES // 2)):
        paths = sorted((ROOT / "examples" / folder).glob("*.png"))[half == "report" :: 2]
        for path in paths[:: max(1, len(paths) // number)][:number]:
            x = images.to_tensor(images.open_image(path.read_bytes()))
            top, left = ((side - SIDE) // 2 for side in x.shape[1:])
            found.append((path.stem, x[:, top : top + SIDE, left : left + SIDE].contiguous()))
    return found


def measured(x_CHW: Tensor, operator: Operator, sigma: float, seed: int) -> images.Picture:
    """An 8-bit measurement."""
    y_CHW = spec_of(operator).bind((3, SIDE, SIDE))(x_CHW[None])[0]
    generator = torch.Generator().manual_seed(seed)
    return images.Picture(images.to_pil(noise.add_noise(y_CHW, sigma, generator)))


def spec_of(operator: Operator) -> OperatorSpec:
    return OperatorSpec.named(operator["type"]).model_validate(operator)


def cases(half: str) -> Iterator[Case]:
    for seed, (name, x_CHW) in enumerate(pictures(half)):
        for kind, pairs in KINDS.items():
            for true, assumed in pairs:
                for sigma in NOISES:
                    y_CHW = images.to_tensor(measured(x_CHW, true, sigma, seed))
                    bound = spec_of(assumed).bind((3, SIDE, SIDE))
                    level = max(QUANTISATION, noise.estimate_sigma(y_CHW))
                    noise_CHW = torch.full_like(y_CHW, level)
                    residual = fitted_residual(
                        bound, y_CHW, y_CHW, noise_CHW, torch.ones_like(y_CHW)
                    )
                    explained = float((residual / noise_CHW.clamp(min=0.01)).square().mean().sqrt())
                    said = spec_of(true).words(), spec_of(assumed).words()
                    yield Case(
                        kind=kind,
                        true=said[0],
                        assumed=said[1],
                        picture=name,
                        noise=sigma,
                        explained=explained,
                    )


def table(found: list[Case]) -> str:
    """Verdicts by kind and noise."""
    lines = [
        "| assumed operator | noise | cases | agrees | undecided | does not agree |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for sigma in (*NOISES, None):
            rows = [c for c in found if c.kind == kind and sigma in (c.noise, None)]
            shares = [
                f"{sum(c.verdict == verdict for c in rows) / len(rows):.0%}"
                for verdict in ("agrees", "undecided", "disagrees")
            ]
            shown = "all" if sigma is None else f"{sigma:g}"
            lines.append(f"| {kind} | {shown} | {len(rows)} | {' | '.join(shares)} |")
    return "\n".join(lines)


def quantiles(found: list[Case]) -> str:
    """The statistic behind the verdict, for choosing the thresholds."""
    lines = [
        "| assumed operator | noise | 5 % | median | 95 % | largest |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        for sigma in NOISES:
            chosen = [c.explained for c in found if (c.kind, c.noise) == (kind, sigma)]
            values = torch.tensor(chosen)
            low, middle, high = values.quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
            lines.append(
                f"| {kind} | {sigma:g} | {low:.2f} | {middle:.2f} | {high:.2f} |"
                f" {float(values.max()):.2f} |"
            )
    return "\n".join(lines)


def results(half: str, count: int) -> str:
    """Ratios of restorations under the right operator."""
    engine = ImageEngine.load("embedded", "cpu")
    lines = [
        "| picture | operator | noise | misfit | noise and tokenizer | ratio | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    chosen = [(each, RIGHT[i % len(RIGHT)], NOISES[i % 3]) for i, each in enumerate(pictures(half))]
    for (name, x_CHW), operator, sigma in chosen[:count]:
        upload = measured(x_CHW, operator, sigma, 0)
        result = run(RestoreSpec(operator=spec_of(operator)), Inputs(upload), engine)
        assert isinstance(result, PictureResult)
        fit = result.fit
        assert isinstance(fit, Fit)
        floor = fit.misfit / fit.ratio
        lines.append(
            f"| {name} | {spec_of(operator).words()} | {sigma:g} | {fit.misfit:.4f} | {floor:.4f} |"
            f" {fit.ratio:.2f} | {fit.verdict} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--results", type=int, default=0, help="Number of pictures to restore.")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = list(cases(args.half))
    with (args.out / f"fit-verdict-{args.half}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in fields(Case))
        writer.writerows(astuple(case) for case in found)
    print(quantiles(found), table(found), sep="\n\n")
    if args.results:
        print(results(args.half, args.results))


if __name__ == "__main__":
    main()
