"""Compares anchor orders and initialisations of the inner loop, including experimental ones.

    python -m research.anchor_order.compare --corpus CORPUS

Uses four withheld training photographs, as does ``research.tuning.samplers``: each is downsampled
by four, and inpainted with 70 % of its pixels missing; some variants also use motion blur. Settings
that a variant does not change are those of the embedded prior, with 15 reverse steps of 20 inner
steps at a learning rate of 3. Runs are appended to ``research/anchor_order/anchor-study.csv``; an
interrupted study can be resumed. ``anchor-study.md`` contains means and differences from the first
variant. It also contains two statistics that explain why the order matters little: the correlation
of the scores with the reconstruction quality of the tokens, and the spatial clustering of anchors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core import aps, evaluation
from aps_core.engines.engine import ImageEngine
from aps_core.evaluation.rows import Cost, append, read_rows, score
from aps_core.evaluation.tables import figure
from aps_core.types import MASK, Grid, Tokenizer
from research.anchor_order import scores
from research.anchor_order.scores import Score, Step
from research.common.withheld import open_study

PHOTOS, TASKS, SEED = 4, ("sr4", "inpainting70"), 0
WITH_BLUR = (*TASKS, "motion_blur")
BASE = "margin, noise 2"
START: dict[str, Any] = {"steps": 15, "inner_steps": 20, "learning_rate": 3.0}
"""Settings of all variants that differ from those recommended for the embedded prior."""


@dataclass(frozen=True)
class Variant:
    """A variant of the sampler: score, initialisation or noise on the order."""

    score: Score = scores.margin
    noise: float = 2.0
    carried: float = 0.0
    """Weight of the previous step's result in the initial logits of tokens that stayed masked; the
    remaining weight is that of the prior's logits.
    """
    informed: bool = True
    """Whether to use the prior; otherwise every step starts from uniform logits."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of :class:`aps_core.samplers.aps.APSConfig`."""
    reduction: Literal["sum", "mean"] = "sum"
    """Reduction of the loss over the measured values."""
    tasks: tuple[str, ...] = TASKS


ONE_STEP = {"steps": 1, "inner_steps": 300, "learning_rate": 0.05}
VARIANTS = {
    BASE: Variant(tasks=WITH_BLUR),
    "random": Variant(scores.chance, 0.0),
    "margin": Variant(scores.margin, 0.0),
    "spread (Halton)": Variant(scores.spread, 0.0),
    "spread by margin": Variant(scores.spread_margin, 0.0),
    "spread + margin": Variant(scores.spread_and_margin, 0.0),
    "spread + confidence": Variant(scores.spread_and_confidence, 0.0),
    "confidence (the paper's)": Variant(scores.confidence, 0.0),
    "confidence, noise 2": Variant(scores.confidence),
    "bits": Variant(scores.bits, 0.0),
    "bits, noise 2": Variant(scores.bits),
    "stability": Variant(scores.stability, 0.0),
    "stability, noise 2": Variant(scores.stability),
    "agreement": Variant(scores.agreement, 0.0),
    "margin + agreement": Variant(scores.margin_and_agreement, 0.0),
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
    """Replaces functions of :mod:`aps_core.aps` by those of a variant and holds their state."""

    def __init__(self, variant: Variant, codebook_KD: Tensor, truth_CHW: Tensor) -> None:
        self.variant = variant
        self.codebook_KD = codebook_KD
        self.truth_CHW = truth_CHW
        self.insight: list[float] = []
        self.clinging: list[float] = []
        self.history: list[Tensor] = []
        self.kept_NK: Tensor | None = None

    def remasking(
        self, phi_NK: Tensor, prior_NK: Tensor, z_BL: Tensor, *rest: Any
    ) -> tuple[Tensor, Tensor]:
        step = Step(
            phi_NK=phi_NK,
            prior_NK=prior_NK,
            z_BL=z_BL,
            codebook_KD=self.codebook_KD,
            history=self.history,
        )
        with patch.object(aps, "token_score", lambda _, x_N, kind: self.variant.score(step, x_N)):
            z_next_BL, kappa_BL = _REMASKING(phi_NK, prior_NK, z_BL, *rest)
        last = not (z_next_BL == MASK).any()
        if not last:  # the last step keeps all tokens, so their order does not matter
            self.look(step, z_next_BL, kappa_BL[z_BL == MASK], *rest)
        self.kept_NK = phi_NK[z_next_BL[z_BL == MASK] == MASK]
        self.history = []
        return z_next_BL, kappa_BL

    def look(
        self, step: Step, z_next_BL: Tensor, kappa_N: Tensor, tokenizer: Tokenizer, *_: Any
    ) -> None:
        """Records the statistics of a reverse step."""
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
        if self.variant.score is scores.stability:
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
    """Rank correlation of scores and accuracy of the tokens' pixels, mean over reverse steps."""
    clinging: float
    """Decided neighbours of a new anchor relative to those of a random token, mean over reverse
    steps.
    """
    cpu_seconds: float


def run(engine: ImageEngine, name: str, photo: int, task: str, x_CHW: Tensor) -> Run:
    """Executes one run; the measurement noise depends only on the photograph."""
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
        variant=name,
        photo=photo,
        task=task,
        psnr=round(row.psnr, 3),
        ssim=round(row.ssim, 4),
        misfit_over_floor=round(row.residual, 3),
        insight=insight,
        clinging=clinging,
        cpu_seconds=round(seconds, 1),
    )


def table(runs: list[Run]) -> str:
    """Markdown table of means and differences from the first variant, with standard errors over the
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
            if task not in variant.tasks:
                cells += ["-", "-"]
                continue
            mine = [found[name, photo, task] for photo in range(PHOTOS)]
            differences = [r.psnr - found[BASE, r.photo, task].psnr for r in mine]
            cells += [
                f"{mean(r.psnr for r in mine):.2f} / {mean(r.ssim for r in mine):.3f}",
                f"{mean(differences):+.2f} ± {stdev(differences) / PHOTOS**0.5:.2f}",
            ]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {figure(mean(r.insight for r in own), 2)} |"
            f" {figure(mean(r.clinging for r in own), 2)} |"
        )
    return "\n".join(lines)


def main() -> None:
    study = open_study(__doc__, Path(__file__).with_name("anchor-study.csv"), PHOTOS)
    runs = read_rows(study.log, Run)
    done = {(r.variant, r.photo, r.task) for r in runs}
    planned = [
        (name, photo, task)
        for name, variant in VARIANTS.items()
        for photo in range(PHOTOS)
        for task in variant.tasks
    ]
    for name, photo, task in planned:
        if (name, photo, task) in done:
            continue
        runs.append(run(study.engine, name, photo, task, study.photos[photo]))
        print(runs[-1], flush=True)
        append(study.log, runs[-1])
    study.report.write_text(table(runs) + "\n")


if __name__ == "__main__":
    main()
