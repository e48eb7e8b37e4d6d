"""Restores a picture larger than the device's limit in overlapping tiles, one after another.

A tile is an ordinary restoration of a part of the picture, with a seed of its own. Measured values
that depend on pixels outside the tile are ignored: they are restored by a neighbour. Tiles at the
picture's border extend beyond it, if the sampler restores what lies there. A *step* of
such a job is one tile. Its state are the tokens of all finished tiles, from which a resumed job
decodes them again; or the picture so far, if the sampler's pictures are not those of its tokens.

The device holds one tile. Main memory holds the upload, the measurement in float32, and each sample
with its deviation in float16: 12 and 8 bytes a pixel of measurement and samples, besides the
upload.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.errors import SamplingCancelled
from aps_core.imaging.tiling import Tile, Tiling
from aps_core.restoration.drawing import Hooks, StepNumbers, seconds_of
from aps_core.restoration.plan import EXAMINED, Plan
from aps_core.restoration.result import Pictures
from aps_core.types import MASK, InnerHook, InnerInfo, SamplerState, StepInfo
from aps_core.verdict.fit import Fit, combined, judge

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.sampling import driver
else:
    torch, driver = lazy_import("torch"), lazy_import("aps_core.sampling.driver")


@dataclass(frozen=True)
class Finished:
    """What is kept of a finished tile."""

    misfit_B: Tensor
    noise_floor: float
    steps: list[StepNumbers]
    """Its reverse steps in this run; none if the tile was in the checkpoint."""
    loss_curve: list[float]
    """Loss of every evaluation of the objective in this run."""


@dataclass
class TiledRun:
    """One run of a tiled restoration."""

    plan: Plan
    engine: ImageEngine
    hooks: Hooks
    tiling: Tiling

    def run(self) -> Pictures:
        """Decodes or copies the tiles of the checkpoint, then restores the others.

        Raises:
            InvalidSpec: no pixel of a tile is known.
            SamplingCancelled, SamplingDiverged: as for a whole picture.
        """
        tiling, resume, samples = self.tiling, self.hooks.resume, self.plan.settings.samples
        for tile in tiling.tiles:
            self.plan.observation.check_known(tile)
        canvas_BCHW = torch.zeros(samples, 4, tiling.height, tiling.width, dtype=torch.float16)
        codes_BL = torch.full((samples, tiling.tokens(self.engine.stride)), MASK, dtype=self._type)
        tiles: list[Finished] = []
        resumed = 0
        if resume is not None:
            resumed = resume.step
            codes_BL[:, : resume.z_BL.shape[1]] = resume.z_BL
            if not self.plan.settings.sampler.decodes_tokens:
                tiles = _copied(resume, canvas_BCHW)
        used = 0
        for number, tile in enumerate(tiling.tiles, start=1):
            width, height = tile.size
            first, used = used, used + math.prod(self.engine.grid(height, width))
            if number <= len(tiles):
                continue
            tokens = codes_BL[:, first:used]
            x_BCHW, done = self._restore(tile, tokens, number <= resumed, max(number, resumed + 1))
            self._blend(x_BCHW, tile, canvas_BCHW)
            tiles.append(done)
            if number > resumed:
                self._report(tiles, codes_BL[:, : _rounded(used)], canvas_BCHW)
        return self._result(tiles, codes_BL, canvas_BCHW)

    @property
    def _type(self) -> torch.dtype:
        """The smallest type of a token."""
        small = len(self.engine.prior.tokenizer.codebook_KD) <= 2**15
        return torch.int16 if small else torch.int32

    def _restore(
        self, tile: Tile, tokens: Tensor, known: bool, step: int
    ) -> tuple[Tensor, Finished]:
        """One tile's samples in [-1, 1] and their deviation (B, 4, H, W).

        Args:
            tile: its place.
            tokens: of the samples (B, tokens of the tile); written unless ``known``.
            known: whether they are those of the checkpoint.
            step: the tile that is reported to the inner hook.
        """
        plan, engine, (width, height) = self.plan, self.engine, tile.size
        settings = plan.settings
        operator, y_CHW = plan.observation.part(tile, engine.device)
        objective = engine.measurement_objective(
            operator.cropped(height, width), y_CHW, plan.likelihood_noise(y_CHW), settings.loss
        )
        generator = torch.Generator(engine.device).manual_seed(_seed(settings.seed, tile))
        last = SamplerState(settings.sampler.steps, tokens.long(), generator.get_state())
        steps: list[StepNumbers] = []
        losses: list[float] = []

        def keep(info: StepInfo) -> None:
            steps.append(StepNumbers.of(info))
            losses.extend(info.loss_curve)

        sample = driver.sample(
            engine.prior,
            objective,
            settings.sampler,
            grid=engine.grid(height, width),
            generator=generator,
            batch=settings.samples,
            condition=settings.prompt,
            on_step=keep,
            on_inner=self._inner_hook(step),
            resume=last if known else None,
        )
        tokens.copy_(sample.z_BL)
        x_BCHW, deviation_BHW = sample.x_BCHW.clamp(-1, 1), sample.deviation_BHW
        if deviation_BHW is None:
            deviation_BHW = torch.zeros_like(x_BCHW[:, 0])
        x_BCHW = torch.cat([x_BCHW, deviation_BHW[:, None]], 1)[..., :height, :width]
        return x_BCHW, Finished(sample.misfit_B.cpu(), objective.noise_floor, steps, losses)

    def _blend(self, x_BCHW: Tensor, tile: Tile, canvas_BCHW: Tensor) -> None:
        """Adds a tile to the canvas with its crossfades."""
        rows, columns = tile
        down, across = (torch.tensor(span.weights(self.tiling.fade)) for span in tile)
        part_BCHW = canvas_BCHW[..., rows.start : rows.stop, columns.start : columns.stop]
        part_BCHW += x_BCHW.float().cpu() * down[:, None] * across

    def _inner_hook(self, step: int) -> InnerHook | None:
        """The run's inner hook, with tile ``step`` in place of the reverse step."""
        hook, total = self.hooks.on_inner, len(self.tiling.tiles)
        return hook and (
            lambda info: hook(
                InnerInfo(
                    step=step,
                    total=total,
                    iteration=(info.step - 1) * info.inner_steps + info.iteration,
                    inner_steps=info.total * info.inner_steps,
                    loss=info.loss,
                )
            )
        )

    def _picture(self, canvas_BCHW: Tensor) -> Tensor:
        """The canvas without what lies beyond the picture's borders."""
        beyond, (height, width) = self.plan.layout.beyond, canvas_BCHW.shape[-2:]
        return canvas_BCHW[..., beyond : height - beyond, beyond : width - beyond]

    def _report(self, tiles: Sequence[Finished], codes_BL: Tensor, canvas_BCHW: Tensor) -> None:
        """Calls the step hook with the picture so far, and with tiles in place of steps."""
        hook, done, total = self.hooks.on_step, tiles[-1], len(self.tiling.tiles)
        if hook is None:
            return
        decodes = self.plan.settings.sampler.decodes_tokens
        carried = {} if decodes else _carried(tiles, canvas_BCHW)
        seconds = seconds_of(done.steps)
        info = StepInfo(
            state=SamplerState(len(tiles), codes_BL, torch.empty(0, dtype=torch.uint8), carried),
            total=total,
            x_hat_BCHW=self._picture(canvas_BCHW)[:, :3],
            anchors_BL=torch.zeros_like(codes_BL, dtype=torch.bool),
            confidence_BL=torch.zeros_like(codes_BL, dtype=torch.float32),
            loss_curve=done.loss_curve,
            misfit=float(done.misfit_B.mean()),
            noise_floor=done.noise_floor,
            seconds=seconds["sampling"],
            prior_seconds=seconds["prior"],
        )
        if hook(info) is False:
            raise SamplingCancelled(f"Stopped after tile {len(tiles)} of {total}.")

    def _result(self, tiles: Sequence[Finished], codes_BL: Tensor, canvas_BCHW: Tensor) -> Pictures:
        areas = torch.tensor([float(math.prod(tile.size)) for tile in self.tiling.tiles])
        shares, new = areas / areas.sum(), [done for done in tiles if done.steps]
        misfit_B: list[float] = (
            torch.stack([done.misfit_B for done in tiles], 1) @ shares
        ).tolist()
        result = Pictures(
            pictures_BCHW=self._picture(canvas_BCHW)[:, :3],
            deviation_BHW=self._picture(canvas_BCHW)[:, 3],
            codes_BL=codes_BL,
            misfit_B=misfit_B,
            noise_floor=float(torch.tensor([done.noise_floor for done in tiles]) @ shares),
            misfit_curve=[float(done.misfit_B.mean()) for done in new],
            inner_steps=[len(done.loss_curve) for done in new],
            seconds=seconds_of(step for done in new for step in done.steps),
            resumed_from_step=self.hooks.resume.step if self.hooks.resume else None,
            notes=[f"Restored in {len(tiles)} overlapping tiles."],
        )
        return replace(result, fit=self._judged(canvas_BCHW[result.best, :3]))

    def _judged(self, x_CHW: Tensor) -> Fit:
        """The verdict on some tiles of one sample, with what lies beyond its borders."""
        plan, device, fits = self.plan, self.engine.device, list[Fit]()
        for tile in self.tiling.evenly(EXAMINED):
            (operator, y_CHW), (rows, columns) = plan.observation.part(tile, device), tile
            picture_CHW = x_CHW[:, rows.start : rows.stop, columns.start : columns.stop]
            fits.append(
                judge(
                    operator,
                    plan.words,
                    picture_CHW.to(device, torch.float32),
                    y_CHW,
                    plan.judged_noise(y_CHW),
                    self.engine.prior.tokenizer,
                    self.hooks.while_judging(len(self.tiling.tiles)),
                )
            )
        return combined(fits, plan.words)


def _carried(tiles: Sequence[Finished], canvas_BCHW: Tensor) -> dict[str, Tensor]:
    """Finished tiles T for a checkpoint."""
    return {
        "canvas": canvas_BCHW,
        "misfit": torch.stack([done.misfit_B for done in tiles], 1),
        "noise_floor": torch.tensor([done.noise_floor for done in tiles], dtype=torch.float64),
    }


def _copied(resume: SamplerState, canvas_BCHW: Tensor) -> list[Finished]:
    """The finished tiles of a checkpoint; fills the canvas."""
    canvas_BCHW.copy_(resume.carried["canvas"])
    floors: list[float] = resume.carried["noise_floor"].tolist()
    columns = zip(resume.carried["misfit"].unbind(1), floors, strict=True)
    return [Finished(misfit_B, floor, [], []) for misfit_B, floor in columns]


def _seed(seed: int, tile: Tile) -> int:
    """Seed of a tile's random draws, from the job's seed and the tile's place."""
    place = f"{seed} {tile.rows.start} {tile.columns.start}"
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:4], "little")


def _rounded(count: int) -> int:
    """The next power of two. Checkpoints of ever new sizes would fragment the memory."""
    return 1 << (count - 1).bit_length()
