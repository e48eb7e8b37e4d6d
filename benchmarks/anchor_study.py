"""Orders of the anchors and starts of the inner optimisation that the sampler does not offer,
against those it does.

    python -m benchmarks.anchor_study --corpus CORPUS

On withheld training photographs, as ``benchmarks.tune_samplers``: four photographs, each reduced
fourfold and with 70 % of its pixels missing; some variants also with motion blur. Everything that a
variant does not name is as the embedded prior's settings have it, with 15 reverse steps of 20 at a
learning rate of 3. Every run goes to ``benchmarks/results/anchor-study.csv``; a study that is
stopped continues. ``anchor-study.md`` has the means, the differences from the first variant, and
two measurements of why the order matters as little as it does: whether the tokens trusted most are
those decoded best, and how much the anchors cling together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core import aps, evaluation
from aps_core.evaluation.rows import Cost, append, read_rows, score
from aps_core.evaluation.tables import figure
from aps_core.runtime.engine import ImageEngine
from aps_core.sampling import anchors
from aps_core.types import MASK, Grid, Tokenizer
from benchmarks.withheld import open_study

PHOTOS, TASKS, SEED = 4, ("sr4", "inpainting70"), 0
WITH_BLUR = (*TASKS, "motion_blur")
BASE = "margin, noise 2"
START: dict[str, Any] = {"steps": 15, "inner_steps": 20, "learning_rate": 3.0}
"""What a variant does not change, where it differs from the embedded prior's recommended settings.
"""

Score = Callable[["Step", Tensor], Tensor]
"""Trust (N,) in the codes (N,) of a reverse step's masked tokens."""


@dataclass
class Step:
    """What a score may look at when anchors are chosen."""

    phi_NK: Tensor
    prior_NK: Tensor
    z_BL: Tensor
    codebook_KD: Tensor
    history: list[Tensor]
    """Codes (N,) after every inner step."""

    @property
    def places_N2(self) -> Tensor:
        """Row and column of the masked tokens on the (square) grid."""
        side = round(self.z_BL.shape[1] ** 0.5)
        index_N = (self.z_BL == MASK).nonzero()[:, 1]
        return torch.stack([index_N // side, index_N % side], dim=1)


def confidence(step: Step, x_N: Tensor) -> Tensor:
    return anchors.token_score(step.phi_NK, x_N, "confidence")


def margin(step: Step, x_N: Tensor) -> Tensor:
    return anchors.token_score(step.phi_NK, x_N, "margin")


def chance(step: Step, x_N: Tensor) -> Tensor:
    return torch.rand(len(x_N), generator=torch.Generator().manual_seed(SEED + len(x_N)))


def bits(step: Step, x_N: Tensor) -> Tensor:
    """Log-probability of every bit of the code by itself: the tokenizer rounds bit by bit."""
    on_ND = torch.softmax(step.phi_NK, -1) @ (step.codebook_KD > 0).float()
    return torch.where(step.codebook_KD[x_N] > 0, on_ND, 1 - on_ND).clamp(min=1e-12).log().sum(-1)


def agreement(step: Step, x_N: Tensor) -> Tensor:
    """What the prior gave the code that the measurement chose."""
    return torch.log_softmax(step.prior_NK, -1).gather(-1, x_N[:, None])[:, 0]


def margin_and_agreement(step: Step, x_N: Tensor) -> Tensor:
    return _standard(margin(step, x_N)) + _standard(agreement(step, x_N))


def stability(step: Step, x_N: Tensor) -> Tensor:
    """Share of the inner steps at which the code was what it is in the end; the margin decides
    between equals.
    """
    return torch.stack([(codes_N == x_N).float() for codes_N in step.history]).mean(
        0
    ) + 1e-3 * _standard(margin(step, x_N))


def spread(step: Step, x_N: Tensor) -> Tensor:
    """The order of a two-dimensional Halton sequence, which covers the picture evenly at every
    length; blind to the tokens.
    """
    side = round(step.z_BL.shape[1] ** 0.5)
    rank_HW = torch.full((side, side), -1)
    number = placed = 0
    while placed < side * side:
        row, column = (
            int(_radical_inverse(number, 2) * side),
            int(_radical_inverse(number, 3) * side),
        )
        if rank_HW[row, column] < 0:
            rank_HW[row, column], placed = placed, placed + 1
        number += 1
    return -rank_HW[step.places_N2[:, 0], step.places_N2[:, 1]].float()


def spread_and_margin(step: Step, x_N: Tensor) -> Tensor:
    """The Halton order, moved by the margin."""
    return 2 * _standard(spread(step, x_N)) + _standard(margin(step, x_N))


def spread_and_confidence(step: Step, x_N: Tensor) -> Tensor:
    """The Halton order, moved by the confidence."""
    return 2 * _standard(spread(step, x_N)) + _standard(confidence(step, x_N))


def spread_margin(step: Step, x_N: Tensor) -> Tensor:
    """The best margin of every block of 4x4 tokens first, then the second best, and so on."""
    margin_N, block_N = (
        margin(step, x_N),
        step.places_N2.div(4, rounding_mode="floor") @ torch.tensor([1000, 1]),
    )
    better_NN = (block_N[:, None] == block_N[None]) & (margin_N[None] > margin_N[:, None])
    return -better_NN.sum(1) + 1e-3 * _standard(margin_N)


def _standard(x_N: Tensor) -> Tensor:
    return (x_N - x_N.mean()) / x_N.std(correction=0).clamp(min=1e-12)


def _radical_inverse(number: int, base: int) -> float:
    value, share = 0.0, 1.0 / base
    while number:
        value, number, share = value + number % base * share, number // base, share / base
    return value


@dataclass(frozen=True)
class Variant:
    """Another score, another start, or other noise on the order."""

    score: Score = margin
    noise: float = 2.0
    carried: float = 0.0
    """Share of the step before's result in the start of a token that stayed masked; the rest is the
    prior's logits.
    """
    informed: bool = True
    """Whether anything is known of the prior: otherwise every step starts from equal logits."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of :class:`aps_core.samplers.aps.APSConfig`."""
    reduction: Literal["sum", "mean"] = "sum"
    """Of the loss over the measured values."""
    tasks: tuple[str, ...] = TASKS


ONE_STEP = {"steps": 1, "inner_steps": 300, "learning_rate": 0.05}
VARIANTS = {
    BASE: Variant(tasks=WITH_BLUR),
    "random": Variant(chance, 0.0),
    "margin": Variant(margin, 0.0),
    "spread (Halton)": Variant(spread, 0.0),
    "spread by margin": Variant(spread_margin, 0.0),
    "spread + margin": Variant(spread_and_margin, 0.0),
    "spread + confidence": Variant(spread_and_confidence, 0.0),
    "confidence (the paper's)": Variant(confidence, 0.0),
    "confidence, noise 2": Variant(confidence),
    "bits": Variant(bits, 0.0),
    "bits, noise 2": Variant(bits),
    "stability": Variant(stability, 0.0),
    "stability, noise 2": Variant(stability),
    "agreement": Variant(agreement, 0.0),
    "margin + agreement": Variant(margin_and_agreement, 0.0),
    "warm start": Variant(carried=1.0),
    "half warm start": Variant(carried=0.5),
    "mean in place of sum": Variant(reduction="mean"),
    "warm start, learning rate 0.3": Variant(
        carried=1.0, changes={"learning_rate": 0.3}, tasks=WITH_BLUR
    ),
    "learning rate 0.3": Variant(changes={"learning_rate": 0.3}, tasks=WITH_BLUR),
    "10 steps of 30, learning rate 1": Variant(
        changes={"steps": 10, "inner_steps": 30, "learning_rate": 1.0}, tasks=WITH_BLUR
    ),
    "one step of 300, learning rate 0.05": Variant(changes=ONE_STEP, tasks=WITH_BLUR),
    "the same without the prior": Variant(informed=False, changes=ONE_STEP, tasks=WITH_BLUR),
}


class Changed:
    """A run's sampler with a variant in place: the functions of :mod:`aps_core.aps` it changes, and
    what they remember.
    """

    def __init__(self, variant: Variant, codebook_KD: Tensor, truth_CHW: Tensor) -> None:
        self.variant, self.codebook_KD, self.truth_CHW = variant, codebook_KD, truth_CHW
        self.insight: list[float] = []
        self.clinging: list[float] = []
        self.history: list[Tensor] = []
        self.kept_NK: Tensor | None = None

    def remasking(
        self, phi_NK: Tensor, prior_NK: Tensor, z_BL: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        step = Step(phi_NK, prior_NK, z_BL, self.codebook_KD, self.history)
        with patch.object(aps, "token_score", lambda _, x_N, kind: self.variant.score(step, x_N)):
            z_next_BL, kappa_BL = _REMASKING(phi_NK, prior_NK, z_BL, *rest)
        if (z_next_BL == MASK).any():  # the last step keeps all tokens, in whatever order
            self.look(step, z_next_BL, kappa_BL[z_BL == MASK], *rest)
        self.kept_NK, self.history = phi_NK[z_next_BL[z_BL == MASK] == MASK], []
        return z_next_BL, kappa_BL

    def look(
        self, step: Step, z_next_BL: Tensor, kappa_N: Tensor, tokenizer: Tokenizer, *_: Any
    ) -> None:
        """Measures a reverse step."""
        masked_BL, side = step.z_BL == MASK, round(step.z_BL.shape[1] ** 0.5)
        x_N = tokenizer.quantize(torch.softmax(step.phi_NK, -1) @ self.codebook_KD)[0]
        x_BCHW = tokenizer.decode(
            self.codebook_KD[step.z_BL.masked_scatter(masked_BL, x_N)], (side, side)
        )
        error_BHW = F.avg_pool2d(
            (x_BCHW - self.truth_CHW).square().mean(1), x_BCHW.shape[-1] // side
        )
        ranks_2N = (
            torch.stack([kappa_N, -error_BHW.flatten(1)[masked_BL]]).argsort(1).argsort(1).float()
        )
        self.insight.append(float(torch.corrcoef(ranks_2N)[0, 1]))
        decided_BHW = (z_next_BL != MASK).view(-1, side, side).float()
        beside = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])[None, None]
        neighbours_BHW, places_BHW = (
            F.conv2d(map_BHW[:, None], beside, padding=1)[:, 0]
            for map_BHW in (decided_BHW, torch.ones_like(decided_BHW))
        )
        new_BHW = (masked_BL & (z_next_BL != MASK)).view(-1, side, side)
        share = float(neighbours_BHW[new_BHW].sum() / places_BHW[new_BHW].sum())
        self.clinging.append(share / float((decided_BHW.sum() - 1) / (decided_BHW.numel() - 1)))

    def start(self, prior_NK: Tensor, *_: Any) -> Tensor:
        if not self.variant.informed:
            return torch.zeros_like(prior_NK)
        share = self.variant.carried
        if self.kept_NK is None or not share:
            return prior_NK
        return share * torch.log_softmax(self.kept_NK, -1) + (1 - share) * torch.log_softmax(
            prior_NK, -1
        )

    def expectation(
        self, phi_NK: Tensor, place: Any, tokenizer: Any, objective: Any, grid: Grid
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.variant.score is stability:
            with torch.no_grad():
                self.history.append(
                    tokenizer.quantize(torch.softmax(phi_NK, -1) @ self.codebook_KD)[0]
                )
        loss_B, misfit_B, x_hat_BCHW = _EXPECTATION(phi_NK, place, tokenizer, objective, grid)
        return (
            loss_B / (objective.observed if self.variant.reduction == "mean" else 1),
            misfit_B,
            x_hat_BCHW,
        )


_REMASKING, _EXPECTATION = aps.anchored_remasking, aps.quantized_expectation


@dataclass(frozen=True)
class Run:
    """One run."""

    variant: str
    photo: int
    task: str
    psnr: float
    ssim: float
    misfit_over_floor: float
    insight: float
    """Rank correlation of the scores with how well the tokens' pixels match the truth, mean over
    the reverse steps.
    """
    clinging: float
    """Decided neighbours of a new anchor, against those of a token drawn by chance, mean over the
    reverse steps.
    """
    cpu_seconds: float


def run(engine: ImageEngine, name: str, photo: int, task: str, x_CHW: Tensor) -> Run:
    """One run; the noise depends on the photograph alone."""
    variant = VARIANTS[name]
    setup = evaluation.Setup.recommended(
        engine, {**START, "anchor_temperature": variant.noise, **variant.changes}
    )
    case = evaluation.make_case(engine, setup, "native", task, str(photo), x_CHW, 0.05, photo)
    changed, started = (
        Changed(variant, engine.prior.tokenizer.codebook_KD, case.truth_CHW),
        time.process_time(),
    )
    with (
        patch.object(aps, "anchored_remasking", changed.remasking),
        patch.object(aps, "gumbel_perturbed", changed.start),
        patch.object(aps, "quantized_expectation", changed.expectation),
    ):
        x_BCHW, decodes, _ = evaluation.run_method(
            engine, setup, case, evaluation.Variant("aps"), SEED
        )
    seconds = time.process_time() - started
    row = score(case, name, x_BCHW, Cost(seconds, decodes), None)
    # one step has no order
    insight, clinging = (
        round(mean(found), 3) if found else math.nan
        for found in (changed.insight, changed.clinging)
    )
    return Run(
        name,
        photo,
        task,
        round(row.psnr, 3),
        round(row.ssim, 4),
        round(row.residual, 3),
        insight,
        clinging,
        round(seconds, 1),
    )


def table(runs: list[Run]) -> str:
    """Means and differences from the first variant, as Markdown; ± is the standard error over the
    photographs.
    """
    heads = [
        "variant",
        *(head for task in WITH_BLUR for head in (f"{task} PSNR dB / SSIM", "difference")),
        "insight",
        "clinging",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    found = {(r.variant, r.photo, r.task): r for r in runs}
    for name, variant in VARIANTS.items():
        own = [r for r in runs if r.variant == name and r.task in TASKS]
        if any(
            (name, photo, task) not in found for photo in range(PHOTOS) for task in variant.tasks
        ):
            continue
        cells = []
        for task in WITH_BLUR:
            mine = (
                [found[name, photo, task] for photo in range(PHOTOS)]
                if task in variant.tasks
                else []
            )
            differences = [r.psnr - found[BASE, r.photo, task].psnr for r in mine]
            cells += [
                (
                    f"{mean(r.psnr for r in mine):.2f} / {mean(r.ssim for r in mine):.3f}"
                    if mine
                    else "-"
                ),
                (
                    f"{mean(differences):+.2f} ± {stdev(differences) / PHOTOS**0.5:.2f}"
                    if mine
                    else "-"
                ),
            ]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {figure(mean(r.insight for r in own), 2)} |"
            f" {figure(mean(r.clinging for r in own), 2)} |"
        )
    return "\n".join(lines)


def main() -> None:
    study = open_study(__doc__, "anchor-study", PHOTOS)
    runs = read_rows(study.log, Run)
    done = {(r.variant, r.photo, r.task) for r in runs}
    for name, photo, task in (
        (name, photo, task)
        for name, variant in VARIANTS.items()
        for photo in range(PHOTOS)
        for task in variant.tasks
    ):
        if (name, photo, task) in done:
            continue
        runs.append(run(study.engine, name, photo, task, study.photos[photo]))
        print(runs[-1], flush=True)
        append(study.log, runs[-1])
    study.report.write_text(table(runs) + "\n")


if __name__ == "__main__":
    main()
