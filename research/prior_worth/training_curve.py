"""Restoration quality over the documents prior's training: where the prior starts to matter.

    python -m research.prior_worth.training_curve SNAPSHOTS --every 3

SNAPSHOTS has one folder per snapshot, named by its step, each with the files of a prior
(``model.safetensors``, ``config.json``). For each, the command measures nats a token on the middle
128 pixels of the documents with half of their tokens masked, and restores them by the default
sampler. Two controls need no prior: equal logits in its place, and with them a single reverse step
with all inner steps. All else is the same for all, including the number of decodes. Rows are
appended to a CSV file, and an interrupted run continues, also with more snapshots. Written beside
it: a figure. Printed: PSNR gained over the controls, with 95 % intervals, paired over documents and
tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.cases import Setup, make_case
from aps_core.evaluation.metrics import psnr
from aps_core.evaluation.photographs import Photographs
from aps_core.evaluation.plots import pyplot
from aps_core.evaluation.rows import append, read_rows
from aps_core.evaluation.run import Variant, run_method
from aps_core.evaluation.tables import markdown, mean, paired_interval
from aps_core.priors.convolutional.network import ConvolutionalPrior, load_convolutional
from aps_core.runtime.precision import fast_dtype
from aps_core.runtime.process import be_reproducible
from aps_core.tokenizers.pixels import PixelTokenizer
from aps_core.types import MASK, Prior
from research.common.arguments import parser_of
from research.common.pictures import middles
from research.common.tables import gained
from research.common.without_prior import CONTROLS, DEFAULT, EQUAL, SINGLE, without_prior

TASKS = ("sr4", "gaussian_blur")
SIGMA = 0.05
APS = "APS"
NO_SNAPSHOT = -1
"""In the column of the step: the row needs no prior."""


@dataclass(frozen=True)
class Point:
    """One restoration."""

    step: int
    nats: float
    """A token, with half of them masked."""
    task: str
    image: str
    method: str
    psnr: float
    decodes: int


def nats(prior: Prior, pictures: Photographs) -> float:
    """Mean surprise of the prior at a masked token, half of them masked at random."""
    generator, tokenizer = torch.Generator().manual_seed(0), prior.tokenizer
    surprises = []
    for _, x_CHW in pictures:
        codes_1L = tokenizer.encode(x_CHW[None])
        hidden_1L = torch.rand(codes_1L.shape, generator=generator) < 0.5
        z_1L = torch.where(hidden_1L, MASK, codes_1L)
        side = x_CHW.shape[-1] // tokenizer.stride
        with torch.no_grad():
            logits_1LK = prior.logits(
                z_1L, grid=(side, side), mask_fraction=0.5, condition="", guidance_scale=0.0
            )
        chosen_NK = logits_1LK[hidden_1L].float().log_softmax(-1)
        surprises.append(float(-chosen_NK.gather(1, codes_1L[hidden_1L][:, None]).mean()))
    return mean(surprises)


def restored(
    engine: ImageEngine, variant: Variant, task: str, number: int, name: str, x_CHW: Tensor
) -> tuple[float, int]:
    """PSNR and decodes of one restoration."""
    setup = Setup.recommended(engine)
    case = make_case(engine, setup, "native", task, name, x_CHW, SIGMA, number)
    x_BCHW, decodes, _ = run_method(engine, setup, case, variant, 0)
    return float(psnr(x_BCHW, case.truth_CHW[None])), decodes


def run(snapshots: dict[int, Path], pictures: Photographs, out: Path) -> list[Point]:
    """Points of the controls and all snapshots; those that ``out`` has are not computed again."""
    points = read_rows(out, Point)
    known = {(point.step, point.task, point.image, point.method) for point in points}
    shipped = ImageEngine.load("embedded_documents")
    assert isinstance(shipped.prior, ConvolutionalPrior)
    tokenizer, device = shipped.prior.tokenizer, shipped.device
    blanks = without_prior(shipped)
    for step, folder in {NO_SNAPSHOT: Path(), **snapshots}.items():
        if step == NO_SNAPSHOT:
            engine = blanks[EQUAL][0]
            variants = {name: variant for name, (_, variant) in blanks.items()}
            surprise = math.log(len(tokenizer.codebook_KD))
        else:
            engine = ImageEngine(shipped.spec, load_snapshot(folder, tokenizer), device)
            variants = {APS: DEFAULT}
            surprise = nats(engine.prior, pictures)
        for number, (image, x_CHW) in enumerate(pictures):
            for task in TASKS:
                for name, variant in variants.items():
                    if (step, task, image, name) in known:
                        continue
                    quality, decodes = restored(engine, variant, task, number, image, x_CHW)
                    points.append(
                        Point(
                            step=step,
                            nats=surprise,
                            task=task,
                            image=image,
                            method=name,
                            psnr=quality,
                            decodes=decodes,
                        )
                    )
                    append(out, points[-1])
        print(f"step {step}: {surprise:.2f} nats", flush=True)
    return points


def load_snapshot(folder: Path, tokenizer: PixelTokenizer) -> Prior:
    """The prior of one snapshot, in the number format of the shipped one."""
    device = tokenizer.codebook_KD.device
    return load_convolutional(folder, tokenizer, device, fast_dtype(device))


def gains(points: list[Point], step: int, other: str, task: str | None = None) -> list[float]:
    """PSNR of APS at a step minus that of a control, by picture and task."""
    value = {(p.step, p.task, p.image, p.method): p.psnr for p in points}
    return [
        p.psnr - value[NO_SNAPSHOT, p.task, p.image, other]
        for p in points
        if (p.step, p.method) == (step, APS) and task in (None, p.task)
    ]


def summary(points: list[Point]) -> str:
    """One line per snapshot."""
    lines = []
    for step in sorted({p.step for p in points} - {NO_SNAPSHOT}):
        cells = [str(step), f"{next(p.nats for p in points if p.step == step):.2f}"]
        for other in CONTROLS:
            cells.append(gained(gains(points, step, other)))
        lines.append(cells)
    header = ["step", "nats a token", *(f"APS minus {other}" for other in CONTROLS)]
    return markdown(header, lines)


def draw(points: list[Point], path: Path) -> None:
    """PSNR gained over equal logits against nats a token, one panel per task."""
    plots = pyplot()
    figure, axes = plots.subplots(1, len(TASKS), figsize=(9, 3.6), sharey=True, squeeze=False)
    steps = sorted({p.step for p in points} - {NO_SNAPSHOT})
    for axis, task in zip(axes[0], TASKS, strict=True):
        curve = sorted(
            (
                next(p.nats for p in points if p.step == step),
                *paired_interval(gains(points, step, EQUAL, task)),
            )
            for step in steps
        )
        nats_a_token, middle, low, high = zip(*curve, strict=True)
        axis.plot(nats_a_token, middle, marker="o", label=APS)
        axis.fill_between(nats_a_token, low, high, alpha=0.15)
        value: dict[str, list[float]] = {p.method: [] for p in points}
        for point in points:
            if (point.step, point.task) == (NO_SNAPSHOT, task):
                value[point.method].append(point.psnr)
        single = mean(value[SINGLE]) - mean(value[EQUAL])
        axis.axhline(0, color="black", linewidth=1, label=EQUAL)
        axis.axhline(single, color="grey", linestyle="--", linewidth=1, label=SINGLE)
        axis.set(title=task, xlabel="nats a token, half of them masked (training goes right)")
        axis.invert_xaxis()
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("PSNR gained over equal logits, dB")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plots.close(figure)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("snapshots", type=Path)
    parser.add_argument("--documents", type=Path, default=Path("examples/documents"))
    parser.add_argument("--every", type=int, default=1, help="use every Nth document")
    parser.add_argument("--out", type=Path, default=Path("training-curve.csv"))
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    be_reproducible(asked.threads)
    folders = {int(x.name): x for x in asked.snapshots.iterdir() if x.name.isdecimal()}
    points = run(dict(sorted(folders.items())), middles(asked.documents, asked.every), asked.out)
    draw(points, asked.out.with_suffix(".png"))
    print(summary(points))


if __name__ == "__main__":
    main()
